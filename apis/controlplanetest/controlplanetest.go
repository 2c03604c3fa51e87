// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplanetest gives tests a real Kubernetes API server with RBAC, admission and the controllers of a normal
// cluster, and with the CustomResourceDefinitions of Muster installed.
//
// One control plane serves all tests of a test binary, so tests keep apart by namespace. It ends with the test binary,
// however that ends, and leaves neither a process nor a file behind.
//
//	func TestSomething(t *testing.T) {
//		config := controlplanetest.Start(t)
//		…
//	}
//
// It begins as a copy of one that the first test binary has prepared, so that all have the same keys and the same UIDs of what Kubernetes itself makes.
//
// The control plane is bin/controlplane at the root of the workspace ("make controlplane" builds it), or the program that
// the environment variable MUSTER_CONTROLPLANE names. Where it is missing the test is skipped, or fails when CI=true.
package controlplanetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/apis/needtest"
)

// startTimeout is for how long the control plane may take to come up; a machine that runs many tests is slow.
const startTimeout = 3 * time.Minute

// Option adds to what a test needs from the control plane.
type Option func(*requirements)

type requirements struct {
	crds []fs.FS
}

// WithCRDs installs the CustomResourceDefinitions of the YAML files of a directory in addition to those of Muster.
// Other tests of the same test binary see them too.
func WithCRDs(dir fs.FS) Option {
	return func(r *requirements) { r.crds = append(r.crds, dir) }
}

// addressClaimCRD is as much of a kind of Cluster API's contract for addresses as Muster uses.
const addressClaimCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]s.ipam.cluster.x-k8s.io
spec:
  group: ipam.cluster.x-k8s.io
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]s, singular: %[3]s}
  scope: Namespaced
  versions:
  - name: v1beta2
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// WithAddressClaims installs IPAddressClaim and IPAddress of Cluster API's contract, as WithCRDs does.
func WithAddressClaims() Option {
	return WithCRDs(fstest.MapFS{
		"claims.yaml":    {Data: fmt.Appendf(nil, addressClaimCRD, "IPAddressClaim", "ipaddressclaims", "ipaddressclaim")},
		"addresses.yaml": {Data: fmt.Appendf(nil, addressClaimCRD, "IPAddress", "ipaddresses", "ipaddress")},
	})
}

// Start returns the configuration of an administrator's client for the control plane of this test binary; the first
// call starts it. The client does not limit its rate. Every call returns its own copy.
func Start(t testing.TB, options ...Option) *rest.Config {
	t.Helper()
	var required requirements
	for _, option := range options {
		option(&required)
	}
	kubeconfig := Kubeconfig(t)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatalf("reading the kubeconfig of the control plane: %v", err)
	}
	config.QPS, config.DisableCompression = -1, true // as operators set it
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for _, dir := range required.crds {
		if err := installed.install(ctx, config, dir); err != nil {
			t.Fatalf("installing CustomResourceDefinitions: %v", err)
		}
	}
	return config
}

// Kubeconfig returns the path of an administrator's kubeconfig for the control plane of this test binary; the first
// call starts it.
func Kubeconfig(t testing.TB) string {
	t.Helper()
	return started(t, shared)
}

// BareKubeconfig is the same for a control plane without kinds of Muster, for tests that install those of another program.
func BareKubeconfig(t testing.TB) string {
	t.Helper()
	return started(t, bare)
}

func started(t testing.TB, start func() (string, error)) string {
	t.Helper()
	kubeconfig, err := start()
	if missing, is := errors.AsType[*missingError](err); is {
		needtest.NoError(t, missing)
	}
	if err != nil {
		t.Fatalf("starting a control plane: %v", err)
	}
	return kubeconfig
}

// shared and bare start the control planes of this process.
var (
	shared = sync.OnceValues(func() (string, error) {
		root, err := workspace()
		if err != nil {
			return "", err
		}
		return start("--crds=" + filepath.Join(root, "apis", "crd"))
	})
	bare = sync.OnceValues(func() (string, error) { return start() })
)

func start(flags ...string) (string, error) {
	program, err := findProgram()
	if err != nil {
		return "", err
	}
	return startProgram(program, flags...)
}

var installed = installer{done: map[[sha256.Size]byte]bool{}}
