// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command pool-operator keeps pools of clusters and serves claims from them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/pool-operator/internal/app"
)

func main() {
	if buildinfo.Print(os.Stdout, "pool-operator", os.Args[1:]) {
		return
	}
	options, err := app.ParseOptions(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := app.Run(ctrl.SetupSignalHandler(), options); err != nil {
		logging.Ended("pool-operator", err)
		os.Exit(1)
	}
}
