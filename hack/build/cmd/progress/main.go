// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command progress runs "go build" and shows how far it is, on standard error.
//
//	progress -label TEXT [-C DIRECTORY] -o OUTPUT [-ldflags FLAGS] PACKAGE...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/muster-io/muster/hack/build/progress"
)

func main() {
	label := flag.String("label", "", "what is built")
	dir := flag.String("C", ".", "directory of the module")
	output := flag.String("o", "", "file, or directory ending in /, for the programs")
	ldflags := flag.String("ldflags", "", "flags of the linker")
	flag.Parse()
	if *label == "" || *output == "" || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: progress -label TEXT [-C DIRECTORY] -o OUTPUT [-ldflags FLAGS] PACKAGE...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := progress.Build{
		Label: *label, Dir: *dir, Flags: []string{"-o", *output, "-ldflags", *ldflags}, Packages: flag.Args(),
		Out: os.Stderr, Terminal: progress.IsTerminal(os.Stderr),
	}.Run(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "progress:", err)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		os.Exit(exit.ExitCode())
	}
	os.Exit(1)
}
