// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

const (
	// servedTimeout is for how long kinds may take to be served; a machine that runs many tests is slow.
	servedTimeout  = 2 * time.Minute
	servedInterval = 50 * time.Millisecond
)

// provideCRDs returns when the CustomResourceDefinitions of the directories are served; it applies them unless the control plane holds them.
func provideCRDs(plane *controlplane.Plane, dirs []string, held bool) error {
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
	if !held {
		if err := envtest.CreateCRDs(config, options.CRDs); err != nil {
			return fmt.Errorf("installing the CustomResourceDefinitions: %w", err)
		}
	}
	if err := envtest.WaitForCRDs(config, options.CRDs, options); err != nil {
		return fmt.Errorf("waiting until the CustomResourceDefinitions are served: %w", err)
	}
	return nil
}
