// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

// binaries prints one "name path" line per program.
func binaries(_ context.Context, args []string) error {
	flags := flag.NewFlagSet("binaries", flag.ExitOnError)
	dir := flags.String("binaries", "", "directory to look in first")
	if err := flags.Parse(args); err != nil {
		return err
	}
	found, err := controlplane.FindBinaries(*dir)
	if err != nil {
		return err
	}
	for _, binary := range []struct{ name, path string }{
		{"etcd", found.Etcd},
		{"kube-apiserver", found.APIServer},
		{"kube-controller-manager", found.ControllerManager},
		{"kubectl", found.Kubectl},
	} {
		fmt.Println(binary.name, binary.path)
	}
	return nil
}
