// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

// installCRDs applies the CustomResourceDefinitions of the directories and waits until they are served.
func installCRDs(plane *controlplane.Plane, dirs []string) error {
	if len(dirs) == 0 {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", plane.KubeconfigPath())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	if _, err := envtest.InstallCRDs(config, envtest.CRDInstallOptions{Paths: dirs, ErrorIfPathMissing: true}); err != nil {
		return fmt.Errorf("installing the CustomResourceDefinitions: %w", err)
	}
	return nil
}
