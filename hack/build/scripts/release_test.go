// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// A release of one operator and of the plugin, for this machine, is complete and says its version.
func TestAReleaseOfOneOperator(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles an operator")
	}
	dist := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), hack(t, "release"), "--dist="+dist, "--platforms=linux/"+runtime.GOARCH, "--plugin-platforms=linux/"+runtime.GOARCH,
		"v0.2.0", "ipam-operator", "kubectl-muster")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{
		"LICENSE", "NOTES.md", "SHA256SUMS", "charts/ipam-operator-0.2.0.tgz", "images/ipam-operator/index.json", "install/ipam-operator.yaml",
		"licences/LICENCES.txt", "licences/SOURCES.txt", "provenance/ipam-operator.intoto.json",
		"sbom/ipam-operator_linux_" + runtime.GOARCH + ".spdx.json", "bin/release-linux-" + runtime.GOARCH, "sbom/release_linux_" + runtime.GOARCH + ".spdx.json",
		"muster.yaml", "kubectl-muster_linux_" + runtime.GOARCH + ".tar.gz", "provenance/kubectl-muster.intoto.json", "sbom/kubectl-muster_linux_" + runtime.GOARCH + ".spdx.json",
	} {
		info, err := os.Stat(filepath.Join(dist, name))
		if assert.NoError(t, err) {
			assert.Positive(t, info.Size(), name)
		}
	}
	install, err := os.ReadFile(filepath.Join(dist, "install", "ipam-operator.yaml"))
	require.NoError(t, err)
	assert.Contains(t, string(install), "image: ghcr.io/muster-io/ipam-operator:v0.2.0")
	assert.Contains(t, string(install), "name: ippools.ipam.metal3.io")
	assert.NotContains(t, string(install), "v0.1.0")
	hasPlugin(t, dist)
	hasOperations(t, dist)
	canBeCarriedOver(t, dist)
}

// hasPlugin installs the plugin as krew does: it has the checksum and the program that its manifest says, and the version of the release.
func hasPlugin(t *testing.T, dist string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "muster.yaml"))
	require.NoError(t, err)
	var manifest struct {
		Spec struct {
			Version   string `yaml:"version"`
			Platforms []struct {
				URI    string `yaml:"uri"`
				SHA256 string `yaml:"sha256"`
				Bin    string `yaml:"bin"`
			} `yaml:"platforms"`
		} `yaml:"spec"`
	}
	require.NoError(t, yaml.Unmarshal(text, &manifest))
	assert.Equal(t, "v0.2.0", manifest.Spec.Version)
	require.Len(t, manifest.Spec.Platforms, 1)
	platform := manifest.Spec.Platforms[0]
	assert.Contains(t, platform.URI, "/v0.2.0/")
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `echo "$1  $2" | sha256sum --check --quiet && tar -xzf "$2" -C "$3" && PATH=$3 && export PATH && "$4" --version && kubectl_complete-muster sta`, "sh",
		platform.SHA256, filepath.Join(dist, path.Base(platform.URI)), t.TempDir(), platform.Bin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "v0.2.0")
	assert.Contains(t, string(out), "status\t")
	licences, err := os.ReadFile(filepath.Join(dist, "licences", "LICENCES.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(licences), "github.com/spf13/cobra ")
	assert.Contains(t, string(licences), "github.com/google/go-containerregistry ")
}

// hasOperations unpacks what an administrator operates an installation with. All that its scripts have kubectl read is beside them.
func hasOperations(t *testing.T, dist string) {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(dist, "muster-operations-0.2.0.tgz"), "-C", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	dir = filepath.Join(dir, "muster-operations-0.2.0")
	for _, script := range []string{"backup", "restore", "uninstall"} {
		info, err := os.Stat(filepath.Join(dir, "hack", script))
		require.NoError(t, err)
		assert.NotZero(t, info.Mode()&0o100, "%s is a program", script)
	}
	for _, pattern := range []string{"crds/*", "overlays/production/*-*", "overlays/standalone/*-*"} {
		kustomizations, err := filepath.Glob(filepath.Join(dir, "deploy", filepath.FromSlash(pattern), "kustomization.yaml"))
		require.NoError(t, err)
		require.NotEmpty(t, kustomizations)
		for _, kustomization := range kustomizations {
			out, err := exec.CommandContext(t.Context(), hack(t, "kubectl"), "kustomize", filepath.Dir(kustomization)).CombinedOutput()
			assert.NoError(t, err, "%s", out)
		}
	}
}

// canBeCarriedOver packs the release, unpacks it elsewhere, and copies its image to a registry with nothing but what is in the archive.
func canBeCarriedOver(t *testing.T, dist string) {
	t.Helper()
	archive, err := exec.CommandContext(t.Context(), hack(t, "airgap"), "--dist="+dist).Output()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `tar -xf "$1" && cd muster-v0.2.0 && sha256sum --check --quiet SHA256SUMS`, "sh", strings.TrimSpace(string(archive)))
	cmd.Dir = t.TempDir()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://") + "/muster"
	push := exec.CommandContext(t.Context(), filepath.Join(cmd.Dir, "muster-v0.2.0", "bin", "release-linux-"+runtime.GOARCH), "push", ".", address)
	push.Dir = filepath.Join(cmd.Dir, "muster-v0.2.0")
	out, err = push.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), address+"/ipam-operator@sha256:")
	tag, err := name.ParseReference(address + "/ipam-operator:v0.2.0")
	require.NoError(t, err)
	_, err = remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	require.NoError(t, err)
}

func TestAReleaseHasAVersionAndKnownParts(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), hack(t, "release"), "0.2").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "write one such as v0.2.0")
	out, err = exec.CommandContext(t.Context(), hack(t, "release"), "v0.2.0", "pool").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), `there is no part "pool"`)
}

// clusterctl refuses a version of a provider whose release series its metadata does not have.
func TestAProviderRepositoryHasTheSeriesOfItsVersion(t *testing.T) {
	for version, series := range map[string]string{"v0.2.0": "0.2", "v0.2.1-rc.1": "0.2", "v0.1.7": "0.1"} {
		cmd := exec.CommandContext(t.Context(), hack(t, "clusterctl"), version)
		cmd.Env = append(cmd.Environ(), "OUT="+t.TempDir())
		out, err := cmd.Output()
		require.NoError(t, err)
		text, err := os.ReadFile(filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "metadata.yaml"))
		require.NoError(t, err)
		var metadata struct {
			ReleaseSeries []struct{ Major, Minor int } `yaml:"releaseSeries"`
		}
		require.NoError(t, yaml.Unmarshal(text, &metadata))
		var all []string
		for _, one := range metadata.ReleaseSeries {
			all = append(all, fmt.Sprintf("%d.%d", one.Major, one.Minor))
		}
		assert.Contains(t, all, series, version)
	}
	out, err := exec.CommandContext(t.Context(), hack(t, "clusterctl"), "v9.20.0").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "metadata.yaml has no release series 9.20")
}

// Without packages of Debian there is no live image, and no release of agent-service: machines could not boot it.
func TestAReleaseOfAgentServiceHasALiveImage(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the program that writes releases")
	}
	tools := t.TempDir()
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg-deb"} {
		require.NoError(t, os.WriteFile(filepath.Join(tools, tool), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	}
	builds, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	dist := filepath.Join(t.TempDir(), "dist")
	cmd := exec.CommandContext(t.Context(), hack(t, "release"), "--dist="+dist, "--platforms=linux/"+runtime.GOARCH, "v0.2.0", "agent-service")
	cmd.Env = append(cmd.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+t.TempDir(), "GOCACHE="+strings.TrimSpace(string(builds)))
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	assert.Contains(t, string(out), "a release of agent-service has a live image")
	assert.NoDirExists(t, dist)
}
