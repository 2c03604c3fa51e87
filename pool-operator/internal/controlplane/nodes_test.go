// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"io/fs"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// aboutNodes are parts of files and flags that only control planes with nodes have.
var aboutNodes = []string{"scheduler", "kubelet-client", "node-manager", "bootstrap", "NodeRestriction", "kubelet-certificate-authority", "cidrs", "cluster-cidr"}

// written are the files of a control plane, and the flags of its programs.
func written(t *testing.T, o Options) []string {
	t.Helper()
	plane := openPlane(t, o)
	c := plane.configuration()
	require.NoError(t, c.write())
	found := slices.Concat(c.etcd(), c.apiServer(), c.controllerManager())
	require.NoError(t, filepath.WalkDir(plane.Dir(), func(path string, _ fs.DirEntry, err error) error {
		found = append(found, filepath.Base(path))
		return err
	}))
	for i := range found { // the directory has the name of the test
		found[i] = strings.ReplaceAll(found[i], plane.Dir(), "")
	}
	return found
}

// A control plane that takes no nodes has three processes, and neither credentials, tokens nor a network for nodes.
func TestAControlPlaneWithoutNodesHasNothingOfThem(t *testing.T) {
	without, with := written(t, Options{}), written(t, Options{PodCIDR: netip.MustParsePrefix("10.244.0.0/16")})
	for _, part := range aboutNodes {
		has := func(s string) bool { return strings.Contains(s, part) }
		assert.False(t, slices.ContainsFunc(without, has), part)
		assert.True(t, slices.ContainsFunc(with, has), part)
	}

	binaries := testBinaries(t)
	binaries.Scheduler = "/nonexistent"
	plane := openPlane(t, Options{Binaries: binaries, UnsafeNoFsync: true})
	require.NoError(t, plane.Start(t.Context()))
	var names []string
	for _, p := range plane.getCurrent().list() {
		names = append(names, p.name)
	}
	assert.ElementsMatch(t, []string{etcdName, apiServerName, controllerManagerName}, names)
}
