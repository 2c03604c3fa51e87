// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command raced lists the packages of a module whose tests need the race detector, or the others.
//
//	raced [-not] DIRECTORY
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/muster-io/muster/hack/build/raced"
)

func main() {
	others := flag.Bool("not", false, "list the packages that do not need it")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: raced [-not] DIRECTORY")
		os.Exit(2)
	}
	needed, plain, err := raced.Split(context.Background(), flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "raced:", err)
		os.Exit(1)
	}
	if *others {
		needed = plain
	}
	for _, path := range needed {
		fmt.Println(path)
	}
}
