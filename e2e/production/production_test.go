// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package production_test installs a release, as hack/release writes it, on three nodes of kind with two replicas of each operator, uses it from outside of the
// cluster, and removes it. Where the clone has the former release, that is installed first and upgraded.
package production_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
)

const (
	// distVariable names the directory of a release.
	distVariable = "MUSTER_DIST"
	// registry is where the images of a release are.
	registry = "ghcr.io/muster-io/"
)

// operators in the order in which they are installed.
var operators = []string{"ipam-operator", "discovery-operator", "agent-service", "pool-operator"}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func TestAReleaseIsInstalledUsedUpgradedAndRemoved(t *testing.T) {
	dist := os.Getenv(distVariable)
	if dist == "" {
		t.Skipf("set %s to the directory of a release: make e2e-kind-production writes one and runs this test", distVariable)
	}
	c := newCluster(t)
	c.loadRelease(dist)
	c.startDatabase()
	before := c.everything()

	var had estate.Estate
	upgraded := t.Run("the former release", func(t *testing.T) {
		c := c.of(t)
		c.installFormer()
		c.estate().Fill()
		had = c.untilRead(func(estate.Estate) {})
	}) && had.Claims != nil
	step := func(name string, do func(c *cluster)) {
		if !t.Failed() {
			t.Run(name, func(t *testing.T) { do(c.of(t)) })
		}
	}
	step("install", func(c *cluster) {
		c.install(dist)
		c.untilOnTwoNodes(version(t, dist))
	})
	step("upgrade", func(c *cluster) {
		if !upgraded {
			c.Skip("the former release was not installed: there is nothing to compare")
		}
		c.untilRead(func(has estate.Estate) { assert.Equal(c, had, has) })
	})
	step("network policies", func(c *cluster) { c.checkPolicies() })
	step("journeys", func(c *cluster) { c.walk() })
	step("uninstall", func(c *cluster) {
		c.uninstall()
		c.untilAsBefore(before)
	})
}

// version is that of a release.
func version(t *testing.T, dist string) string {
	t.Helper()
	var manifests struct {
		Manifests []struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	text, err := os.ReadFile(filepath.Join(dist, "images", "pool-operator", "index.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &manifests))
	require.Len(t, manifests.Manifests, 1)
	return manifests.Manifests[0].Annotations["org.opencontainers.image.ref.name"]
}

// newCluster makes three nodes with volumes for hosted clusters.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	kind, err := environment.NewEmptyKind(t.Context(), environment.KindOptions{Workers: 2, Say: func(s string) { t.Log(s) }})
	require.NoError(t, err)
	t.Cleanup(func() { closeKind(t, kind) })
	require.NoError(t, kind.AddVolumes(t.Context()))
	return connect(t, kind)
}
