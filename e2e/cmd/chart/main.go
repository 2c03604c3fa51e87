// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command chart writes the Helm charts of the operators.
//
//	chart VERSION DIRECTORY [OPERATOR...]
package main

import (
	"fmt"
	"os"

	"github.com/muster-io/muster/e2e/chart"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: chart VERSION DIRECTORY [OPERATOR...]")
		os.Exit(2)
	}
	operators := os.Args[3:]
	if len(operators) == 0 {
		operators = chart.Operators()
	}
	for _, operator := range operators {
		if err := chart.Write(os.Args[2], operator, os.Args[1]); err != nil {
			fmt.Fprintln(os.Stderr, "chart:", err)
			os.Exit(1)
		}
		fmt.Println(os.Args[2] + "/" + operator)
	}
}
