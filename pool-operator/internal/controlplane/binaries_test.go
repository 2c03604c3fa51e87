// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPinnedVersionsAreThoseOfTheModule(t *testing.T) {
	pins := filepath.Join("..", "..", "..", "hack", "controlplane")
	module, err := os.ReadFile(filepath.Join(pins, "go.mod"))
	require.NoError(t, err)
	assert.Contains(t, string(module), "k8s.io/kubernetes "+kubernetesVersion+" ")
	assert.Contains(t, string(module), "go.etcd.io/etcd/server/v3 "+etcdVersion+" ")
	sums, err := os.ReadFile(filepath.Join(pins, "go.sum"))
	require.NoError(t, err)
	hash := sha256.Sum256(sums)
	assert.Equal(t, sumHash, hex.EncodeToString(hash[:])[:len(sumHash)], "sumHash is the hash of hack/controlplane/go.sum")
}

func program(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
	return path
}

func TestBinariesAreFoundInOrder(t *testing.T) {
	home, assets, explicit := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	t.Setenv("KUBEBUILDER_ASSETS", assets)
	inCache := map[string]string{}
	for _, name := range []string{etcdName, apiServerName, controllerManagerName, kubectlName} {
		inCache[name] = program(t, cacheDir(), name)
	}
	assetEtcd := program(t, assets, etcdName)

	found, err := FindBinaries("")
	require.NoError(t, err)
	assert.Equal(t, Binaries{
		Etcd: assetEtcd, APIServer: inCache[apiServerName],
		ControllerManager: inCache[controllerManagerName], Kubectl: inCache[kubectlName],
	}, found, "programs that KUBEBUILDER_ASSETS lacks come from the cache")

	explicitServer := program(t, explicit, apiServerName)
	found, err = FindBinaries(explicit)
	require.NoError(t, err)
	assert.Equal(t, explicitServer, found.APIServer)
	assert.Equal(t, inCache[etcdName], found.Etcd, "an explicit directory is not mixed with KUBEBUILDER_ASSETS")
}

func TestMissingBinaryIsNamedWithTheWayOut(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("KUBEBUILDER_ASSETS", "")
	program(t, cacheDir(), etcdName)
	_, err := FindBinaries("")
	var missing *MissingBinaryError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, apiServerName, missing.Name)
	assert.Contains(t, err.Error(), "make controlplane")
	assert.NotContains(t, err.Error(), "\n", "one sentence")
}

// A program on the PATH is used if it is of the pinned minor, and only where nothing else is there.
func TestBinaryOnThePathIsOfThePinnedMinor(t *testing.T) {
	onPath := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("KUBEBUILDER_ASSETS", "")
	t.Setenv("PATH", onPath+string(os.PathListSeparator)+os.Getenv("PATH"))
	prints := func(name, text string) string {
		path := program(t, onPath, name)
		require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\necho '"+text+"'\n"), 0o700))
		return path
	}
	server := prints(apiServerName, "Kubernetes "+minorOf(kubernetesVersion)+".99")
	manager := prints(controllerManagerName, "Kubernetes "+kubernetesVersion)
	prints(etcdName, "etcd Version: 3.0.1")

	_, err := FindBinaries("")
	var missing *MissingBinaryError
	require.ErrorAs(t, err, &missing, "etcd on the PATH is of another minor")
	assert.Equal(t, etcdName, missing.Name)

	etcd := prints(etcdName, "etcd Version: "+strings.TrimPrefix(etcdVersion, "v"))
	found, err := FindBinaries("")
	require.NoError(t, err)
	assert.Equal(t, Binaries{Etcd: etcd, APIServer: server, ControllerManager: manager}, found)

	cached := program(t, cacheDir(), apiServerName)
	found, err = FindBinaries("")
	require.NoError(t, err)
	assert.Equal(t, cached, found.APIServer, "built programs come first")
}

func TestFileThatCannotBeExecutedIsNoBinary(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, etcdName), nil, 0o600))
	assert.Empty(t, findIn([]string{dir}, etcdName))
}
