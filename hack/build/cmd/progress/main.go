// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command progress runs "go build" and shows how far it is, on standard error.
//
//	progress -label TEXT [-C DIRECTORY] -o OUTPUT [-ldflags FLAGS] PACKAGE...
//	progress -label TEXT [-C DIRECTORY] -tests [-race] PACKAGE...
//
// The second compiles what tests of the packages are linked from.
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
	label := flag.String("label", "", "name of the build")
	dir := flag.String("C", ".", "directory of the module")
	output := flag.String("o", "", "file, or directory ending in /, for the programs")
	ldflags := flag.String("ldflags", "", "flags of the linker")
	tests := flag.Bool("tests", false, "compile what tests are linked from")
	race := flag.Bool("race", false, "for tests with the race detector")
	flag.Parse()
	if *label == "" || (*output == "") != *tests || flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "usage: progress -label TEXT [-C DIRECTORY] {-o OUTPUT [-ldflags FLAGS] | -tests [-race]} PACKAGE...")
		os.Exit(2)
	}
	flags := []string{"-o", *output, "-ldflags", *ldflags}
	if *tests {
		flags = nil
	}
	if *race {
		flags = append(flags, "-race")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := progress.Build{
		Label: *label, Dir: *dir, Tests: *tests, Flags: flags, Packages: flag.Args(),
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
