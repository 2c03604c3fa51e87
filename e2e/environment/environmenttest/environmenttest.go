// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package environmenttest starts environments of journeys for tests.
package environmenttest

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/e2e/environment"
)

// ControlPlane starts a control plane that ends with the test and has no operator and no kinds of ours, and returns it and an administrator's way in.
// A short run skips the test.
func ControlPlane(t *testing.T) (*environment.ControlPlane, *rest.Config) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	plane, err := environment.StartControlPlane(t.Context(), filepath.Join(t.TempDir(), "plane"), "--unsafe-no-fsync", "--prepared")
	require.NoError(t, err)
	t.Cleanup(plane.Close)
	config, err := environment.Read(plane.Kubeconfig())
	require.NoError(t, err)
	return plane, config
}
