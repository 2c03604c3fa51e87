// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// takeTurn waits until no other build compiles, and returns what ends the turn. Builds that run side by side lack the same
// packages, and go would compile these once for each. The lock is on the directory of the build cache, and ends with the process.
func (b Build) takeTurn(ctx context.Context, view *view) (end func(), err error) {
	cache, err := b.command(ctx, []string{"env", "GOCACHE"}).Output()
	if err != nil {
		return nil, fmt.Errorf("asking for the build cache: %w", err)
	}
	dir, err := os.Open(strings.TrimSpace(string(cache)))
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = dir.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("locking the build cache: %w", err), dir.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), dir.Close())
		case now := <-tick.C:
			view.line.Update(now, fmt.Sprintf("%s: waits for another compilation, %.0f s", b.Label, now.Sub(view.started).Seconds()))
		}
	}
}
