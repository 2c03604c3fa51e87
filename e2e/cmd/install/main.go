// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command install prints what installs an operator, its kinds first, for kubectl apply.
//
//	install VERSION OPERATOR
package main

import (
	"fmt"
	"os"

	"github.com/muster-io/muster/e2e/chart"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: install VERSION OPERATOR")
		os.Exit(2)
	}
	text, err := chart.Manifest(os.Args[2], os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "install:", err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(text)
}
