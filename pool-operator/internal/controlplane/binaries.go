// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Pinned versions; hack/controlplane/go.mod and go.sum say the same, and a test compares them.
const (
	// kubernetesVersion is the version of kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
	kubernetesVersion = "v1.37.2"
	// etcdVersion is the version of etcd.
	etcdVersion = "v3.7.3"
	// sumHash is the beginning of the SHA-256 of hack/controlplane/go.sum.
	sumHash = "0252cefcd9bb"
)

// Names of the programs.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "kube-controller-manager"
	schedulerName         = "kube-scheduler"
	kubectlName           = "kubectl"
)

// Binaries are the paths of a control plane's programs.
type Binaries struct {
	Etcd              string
	APIServer         string
	ControllerManager string
	// Scheduler may be empty: only a control plane that takes nodes needs it.
	Scheduler string
	// Kubectl may be empty: no control plane needs it to run.
	Kubectl string
}

// FindBinaries looks for the programs in dir when that is not empty, else in $KUBEBUILDER_ASSETS and then in the cache
// that hack/controlplane/build fills. Programs that dir or KUBEBUILDER_ASSETS lacks are taken from the cache, then from
// the PATH, if it is of the pinned minor. It returns a MissingBinaryError for the first program that is found nowhere.
func FindBinaries(dir string) (Binaries, error) {
	var found Binaries
	looked := searchPath(dir)
	for _, want := range []struct {
		name string
		into *string
	}{
		{etcdName, &found.Etcd},
		{apiServerName, &found.APIServer},
		{controllerManagerName, &found.ControllerManager},
		{schedulerName, &found.Scheduler},
		{kubectlName, &found.Kubectl},
	} {
		*want.into = findIn(looked, want.name)
		if *want.into == "" && want.name != kubectlName {
			*want.into = findOnPath(want.name)
		}
		if optional := want.name == schedulerName || want.name == kubectlName; *want.into == "" && !optional {
			return Binaries{}, &MissingBinaryError{Name: want.name, Looked: looked}
		}
	}
	return found, nil
}

// cacheDir is where hack/controlplane/build keeps the programs of the pinned versions; "" without a home directory.
func cacheDir() string {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return ""
		}
		base = filepath.Join(home, ".cache")
	}
	return filepath.Join(base, "muster", "controlplane", cacheKey())
}

// cacheKey names the pinned versions for this platform, as "hack/controlplane/build --key" does.
func cacheKey() string {
	return kubernetesVersion + "-etcd-" + etcdVersion + "-" + runtime.GOOS + "-" + runtime.GOARCH + "-" + sumHash
}

func searchPath(dir string) []string {
	var path []string
	for _, candidate := range []string{dir, os.Getenv("KUBEBUILDER_ASSETS"), cacheDir()} {
		if candidate == "" {
			continue
		}
		if absolute, err := filepath.Abs(candidate); err == nil {
			path = append(path, absolute)
		}
	}
	if dir != "" && len(path) > 2 {
		// An explicit directory is not mixed with whatever the environment names.
		path = []string{path[0], path[2]}
	}
	return path
}

// findOnPath returns the path of a program of the pinned minor on the PATH, or "".
func findOnPath(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return ""
	}
	text, err := exec.Command(path, "--version").Output() //nolint:noctx // it prints its version and ends
	if err != nil || minorOf(versionIn(string(text))) != minorOf(pinnedVersion(name)) {
		return ""
	}
	return path
}

func pinnedVersion(name string) string {
	if name == etcdName {
		return etcdVersion
	}
	return kubernetesVersion
}

// versionIn returns the version that "etcd --version" or "kube-apiserver --version" prints, as v1.2.3, or "".
func versionIn(text string) string {
	for line := range strings.Lines(text) {
		for _, prefix := range []string{"Kubernetes ", "etcd Version: "} {
			if version, ok := strings.CutPrefix(strings.TrimSpace(line), prefix); ok {
				return "v" + strings.TrimPrefix(version, "v")
			}
		}
	}
	return ""
}

// minorOf returns v1.2 of v1.2.3.
func minorOf(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(len(parts), 2)], ".")
}

func findIn(dirs []string, name string) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
