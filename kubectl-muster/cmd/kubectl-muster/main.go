// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-muster is a plugin of kubectl: "kubectl muster" shows what Muster's operators do, and asks them for clusters,
// machines and addresses. It reads and writes custom resources only, with the rights of the user who runs it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/muster-io/muster/kubectl-muster/internal/command"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command.New(command.Streams{Out: os.Stdout, Err: os.Stderr}).ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}
