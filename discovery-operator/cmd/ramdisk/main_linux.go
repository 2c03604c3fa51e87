// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ramdisk is the agent that Ironic deploys and cleans machines with. It runs in a ramdisk, which takes its parameters from the command line of the
// kernel, as ironic-python-agent does.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/muster-io/muster/discovery-operator/internal/ramdisk"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ramdisk:", err)
		os.Exit(1)
	}
}

func run() error {
	o, machine, err := ramdisk.Parse(os.Args[1:])
	if err == flag.ErrHelp { //nolint:errorlint // as package flag returns it
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	how, err := ramdisk.New(o, ramdisk.This{}, os.Stdout).Run(ctx)
	if err != nil || how == "" || !machine {
		return err
	}
	return ramdisk.This{}.Do(how)
}
