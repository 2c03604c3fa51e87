// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command agent-service knows the machines that booted a discovery image, and gives them to clusters.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/muster-io/muster/agent-service/internal/app"
	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
)

// collectAfter is by how much memory grows between two collections, in percent: each of them reads the stacks of all held polls, so that half as many as usual are
// worth the memory. GOGC overrules it, and GOMEMLIMIT bounds it.
const collectAfter = 200

func main() {
	if buildinfo.Print(os.Stdout, "agent-service", os.Args[1:]) {
		return
	}
	run, err := app.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAfter)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		logging.Ended("agent-service", err)
		os.Exit(1) //nolint:gocritic // the process ends: there is nothing left to stop
	}
}
