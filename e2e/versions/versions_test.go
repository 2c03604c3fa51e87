// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package versions_test installs Muster on API servers of several minors of Kubernetes: the one that bin/controlplane runs, those that it can emulate, and
// those of the directories that MUSTER_OLDER_ASSETS names.
package versions_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
)

const (
	// oldest is the first minor of Kubernetes that README.md names for every operator.
	oldest = 31
	// emulated is how many minors back an API server can be asked to emulate.
	emulated = 3
	// mutating is the first minor that serves MutatingAdmissionPolicy in v1.
	mutating = 36
	// olderAssets names directories with the programs of older minors, laid out as KUBEBUILDER_ASSETS is and separated as PATH is.
	olderAssets = "MUSTER_OLDER_ASSETS"

	patience = 3 * time.Minute
	interval = 50 * time.Millisecond
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// variant is an API server to install on.
type variant struct {
	minor int
	args  []string
}

var gitVersion = regexp.MustCompile(`v1\.([0-9]+)\.`)

// minorOf asks an API server's program for its minor version.
func minorOf(t *testing.T, program string) int {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), program, "--version").Output()
	require.NoError(t, err, program)
	found := gitVersion.FindSubmatch(said)
	require.NotNil(t, found, "%s says %s", program, said)
	minor, err := strconv.Atoi(string(found[1]))
	require.NoError(t, err)
	return minor
}

// built is the minor that bin/controlplane runs.
func built(t *testing.T) int {
	t.Helper()
	program, err := checkout.Binary("controlplane")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	require.NoError(t, err)
	said, err := exec.CommandContext(t.Context(), program, "binaries").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(said)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "kube-apiserver "); ok {
			return minorOf(t, path)
		}
	}
	t.Fatalf("bin/controlplane names no kube-apiserver: %s", said)
	return 0
}

func variants(t *testing.T) map[string]variant {
	t.Helper()
	newest := built(t)
	out := map[string]variant{fmt.Sprintf("1.%d", newest): {minor: newest}}
	for minor := max(oldest, newest-emulated); minor < newest; minor++ {
		version := fmt.Sprintf("1.%d", minor)
		out[version+" emulated"] = variant{minor: minor, args: []string{"--emulated-version=" + version}}
	}
	older := filepath.SplitList(os.Getenv(olderAssets))
	if len(older) == 0 {
		t.Logf("no API server older than 1.%d is tried: set %s to directories that hold one", newest-emulated, olderAssets)
	}
	for _, dir := range older {
		minor := minorOf(t, filepath.Join(dir, "kube-apiserver"))
		out[fmt.Sprintf("1.%d real", minor)] = variant{minor: minor, args: []string{"--binaries=" + dir}}
	}
	return out
}

// The manifests that clusters get are taken by every supported API server, all operators become ready on it, and addresses are given and released there.
func TestMusterInstallsOnEverySupportedMinor(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	for name, v := range variants(t) {
		t.Run(name, func(t *testing.T) {
			require.GreaterOrEqual(t, v.minor, oldest)
			local, err := environment.NewLocal(t.Context(), environment.LocalOptions{
				Operators: environment.All(), Overlay: "deploy/overlays/kind", UnsafeNoFsync: true, ControlPlaneArgs: v.args,
			})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
			w := newWorld(t, local)
			w.speaksAs(v.minor)
			w.refusesBadPools()
			w.givesAddresses()
		})
	}
}

// world is a namespace of one environment.
type world struct {
	*testing.T
	client.Client
	namespace string
}

func newWorld(t *testing.T, env environment.Environment) *world {
	t.Helper()
	config, err := environment.Config(env)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	require.NoError(t, ipamv1.AddToScheme(scheme))
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "versions-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &world{T: t, Client: c, namespace: namespace.Name}
}

// speaksAs holds that the API server serves what its minor does: otherwise the test shows nothing.
func (w *world) speaksAs(minor int) {
	w.Helper()
	kind := schema.GroupKind{Group: "admissionregistration.k8s.io", Kind: "MutatingAdmissionPolicy"}
	_, err := w.RESTMapper().RESTMapping(kind, "v1")
	if minor < mutating {
		require.True(w, meta.IsNoMatchError(err), "an API server of 1.%d serves %s: %v", minor, kind, err)
	} else {
		require.NoError(w, err)
	}
}

// refusesBadPools holds that the validating policies are in force.
func (w *world) refusesBadPools() {
	w.Helper()
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backwards"}}
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "backwards", Pools: []ipamv1.Pool{{
		Start: new(ipamv1.IPAddressStr("fd00::2")), End: new(ipamv1.IPAddressStr("fd00::1")),
	}}}
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		assert.ErrorContains(c, w.Create(w.Context(), pool.DeepCopy(), client.DryRunAll), "must not be greater than end")
	}, patience, interval)
}

// givesAddresses walks a claim from its creation to its end. Its finalizer is there, with any writer.
func (w *world) givesAddresses() {
	w.Helper()
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rack"}}
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "rack", Prefix: 24, Pools: []ipamv1.Pool{{
		Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.10")),
	}}}
	require.NoError(w, w.Create(w.Context(), pool))
	first := w.claim("first")
	w.untilServed(first)
	second := w.claim("second")
	require.NoError(w, w.Delete(w.Context(), first))
	w.untilGone(first)
	w.untilServed(second)
	require.NoError(w, w.Delete(w.Context(), second))
	w.untilGone(second)
	require.NoError(w, w.Delete(w.Context(), pool))
	w.untilGone(pool)
	left := &ipamv1.IPAddressList{}
	require.NoError(w, w.List(w.Context(), left, client.InNamespace(w.namespace)))
	assert.Empty(w, left.Items)
}

// claim creates one. For a few seconds after the kinds were installed the API server's admission does not know them yet.
func (w *world) claim(name string) *ipamv1.IPClaim {
	w.Helper()
	claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	claim.Spec.Pool.Name = "rack"
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.Create(w.Context(), claim))
	}, patience, interval)
	return claim
}

// untilServed waits until a claim has its address and its finalizer.
func (w *world) untilServed(claim *ipamv1.IPClaim) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.Get(w.Context(), client.ObjectKeyFromObject(claim), claim))
		require.NotNil(c, claim.Status.Address)
		assert.Equal(c, []string{ipamv1.IPClaimFinalizer}, claim.Finalizers)
	}, patience, interval)
}

func (w *world) untilGone(obj client.Object) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		assert.True(c, apierrors.IsNotFound(w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)))
	}, patience, interval)
}
