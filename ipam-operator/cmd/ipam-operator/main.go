// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command ipam-operator gives addresses of pools to claims. "ipam-operator check" looks for contradictions in a cluster, "ipam-operator import" imports the pools of
// another provider, "ipam-operator probe" is an inventory of addresses that answer on the network.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/ipam-operator/internal/app"
)

func main() {
	if buildinfo.Print(os.Stdout, "ipam-operator", os.Args[1:]) {
		return
	}
	ctx := ctrl.SetupSignalHandler()
	if run, ok := app.Command(os.Args[1:]); ok {
		os.Exit(run(ctx, os.Args[2:], os.Stdout, os.Stderr))
	}
	options, err := app.ParseOptions(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := app.Run(ctx, options); err != nil {
		logging.Ended("ipam-operator", err)
		os.Exit(1)
	}
}
