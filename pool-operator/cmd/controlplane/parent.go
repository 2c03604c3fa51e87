// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// parentInterval is how often the parent process is looked for. The kernel's death signal would not do: it is bound to
// the thread that started this process, and a Go parent may end that thread long before itself.
const parentInterval = 200 * time.Millisecond

// watchParent ends the context when the parent process has ended, or when standard input has, if that is asked for.
func watchParent(ctx context.Context, cancel context.CancelCauseFunc, stdin bool) {
	if stdin {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel(errors.New("standard input was closed"))
		}()
	}
	parent := os.Getppid()
	ticker := time.NewTicker(parentInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if os.Getppid() != parent {
				cancel(errors.New("the parent process ended"))
				return
			}
		}
	}
}
