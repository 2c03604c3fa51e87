// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command discovery-operator makes BareMetalHosts of the machines that Ironic has discovered.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/discovery-operator/internal/app"
)

func main() {
	if buildinfo.Print(os.Stdout, "discovery-operator", os.Args[1:]) {
		return
	}
	options, err := app.Parse(os.Args[1:], os.Getenv)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "discovery-operator:", err)
		os.Exit(2)
	}
	if err := app.Run(ctrl.SetupSignalHandler(), options); err != nil {
		logging.Ended("discovery-operator", err)
		os.Exit(1)
	}
}
