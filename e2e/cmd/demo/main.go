// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo does the main job on this machine and shows it: a pool of clusters, a claim, and work in the claimed cluster.
// With KEEP=1 in the environment it leaves everything running until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/demo"
)

func main() {
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := demo.Run(ctx, demo.Options{Out: os.Stdout, Keep: os.Getenv("KEEP") != "" && os.Getenv("KEEP") != "0"})
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case errors.Is(err, context.Canceled) && interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
