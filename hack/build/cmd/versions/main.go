// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command versions compares the libraries of Go modules.
//
//	versions [-align] ROOT MODULE...
//
// It prints each library that the modules, directories below ROOT, require at different versions, and ends with status 1 if
// there is one. With -align it tidies the modules and raises such libraries to their newest version first.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/muster-io/muster/hack/build/versions"
)

func main() {
	align := flag.Bool("align", false, "tidy the modules and raise libraries that differ to their newest version")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "usage: versions [-align] ROOT MODULE...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status := run(ctx, *align, flag.Arg(0), flag.Args()[1:])
	stop()
	os.Exit(status)
}

func run(ctx context.Context, align bool, root string, modules []string) int {
	if align {
		if err := versions.Align(ctx, root, modules); err != nil {
			fmt.Fprintln(os.Stderr, "versions:", err)
			return 1
		}
	}
	drifts, err := versions.Check(ctx, root, modules)
	if err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		return 1
	}
	if len(drifts) == 0 {
		return 0
	}
	fmt.Fprintf(os.Stderr, "versions: %d libraries have different versions in the modules; run \"make tidy\":\n", len(drifts))
	for _, drift := range drifts {
		fmt.Fprintln(os.Stderr, "  "+drift.String())
	}
	return 1
}
