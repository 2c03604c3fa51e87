// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

const (
	// servedTimeout is for how long kinds may take to be served; a machine that runs many tests is slow.
	servedTimeout  = 2 * time.Minute
	servedInterval = 50 * time.Millisecond
)

// installCRDs applies the CustomResourceDefinitions of the directories and waits until they are served.
func installCRDs(plane *controlplane.Plane, dirs []string) error {
	return withCRDs(plane, dirs, func(config *rest.Config, options envtest.CRDInstallOptions) error {
		if err := envtest.CreateCRDs(config, options.CRDs); err != nil {
			return err
		}
		return envtest.WaitForCRDs(config, options.CRDs, options)
	})
}

// awaitCRDs waits until those that a copy holds are served.
func awaitCRDs(plane *controlplane.Plane, dirs []string) error {
	return withCRDs(plane, dirs, func(config *rest.Config, options envtest.CRDInstallOptions) error {
		return envtest.WaitForCRDs(config, options.CRDs, options)
	})
}

func withCRDs(plane *controlplane.Plane, dirs []string, do func(*rest.Config, envtest.CRDInstallOptions) error) error {
	if len(dirs) == 0 {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", plane.KubeconfigPath())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	options := envtest.CRDInstallOptions{Paths: dirs, ErrorIfPathMissing: true, MaxTime: servedTimeout, PollInterval: servedInterval}
	if err := envtest.ReadCRDFiles(&options); err != nil {
		return fmt.Errorf("reading the CustomResourceDefinitions: %w", err)
	}
	if err := do(config, options); err != nil {
		return fmt.Errorf("installing the CustomResourceDefinitions: %w", err)
	}
	return nil
}
