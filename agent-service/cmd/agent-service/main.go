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
	"syscall"

	"github.com/muster-io/muster/agent-service/internal/app"
	"github.com/muster-io/muster/agent-service/internal/collection"
	"github.com/muster-io/muster/agent-service/internal/query"
	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
)

func main() {
	if query.Serve() {
		return
	}
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
		collection.Adapt()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		logging.Ended("agent-service", err)
		os.Exit(1) //nolint:gocritic // the process ends: there is nothing left to stop
	}
}
