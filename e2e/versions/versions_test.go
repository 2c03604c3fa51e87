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

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
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
	// real says that these are programs of the minor, and not newer ones that behave like it: journeys of all operators are walked there.
	real bool
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
	tried := map[int]bool{}
	for _, dir := range older {
		minor := minorOf(t, filepath.Join(dir, "kube-apiserver"))
		tried[minor] = true
		out[fmt.Sprintf("1.%d real", minor)] = variant{minor: minor, args: []string{"--binaries=" + dir}, real: true}
	}
	for _, dir := range older {
		own := minorOf(t, filepath.Join(dir, "kube-apiserver"))
		for minor := max(oldest, own-reach(own)); minor < own; minor++ {
			if version := fmt.Sprintf("1.%d", minor); !tried[minor] {
				tried[minor] = true
				out[version+" emulated by older"] = variant{minor: minor, args: []string{"--binaries=" + dir, "--emulated-version=" + version}}
			}
		}
	}
	return out
}

// reach is how many minors back an API server can be asked to emulate: one before 1.33.
func reach(minor int) int {
	if minor < 33 {
		return 1
	}
	return emulated
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
			w := newTestEnv(t, local)
			w.speaksAs(v.minor)
			w.refusesBadPools()
			w.givesAddresses()
			if v.real {
				w.givesClusters()
				w.findsMachines()
				w.takesMachines()
			}
			require.NoError(t, local.Failed())
		})
	}
}

// testEnv is a namespace of one environment.
type testEnv struct {
	*testing.T
	client.Client
	namespace string
}

func newTestEnv(t *testing.T, env environment.Environment) *testEnv {
	t.Helper()
	config, err := environment.Config(env)
	require.NoError(t, err)
	scheme := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	for _, add := range []func(*runtime.Scheme) error{hivev1.AddToScheme, ipamv1.AddToScheme, metal3v1.AddToScheme, agentv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "versions-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &testEnv{T: t, Client: c, namespace: namespace.Name}
}

// speaksAs holds that the API server serves what its minor does: otherwise the test shows nothing.
func (w *testEnv) speaksAs(minor int) {
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
func (w *testEnv) refusesBadPools() {
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
func (w *testEnv) givesAddresses() {
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

// givesClusters walks a claim of a hosted cluster from its creation to its end.
func (w *testEnv) givesClusters() {
	w.Helper()
	set := &hivev1.ClusterImageSet{ObjectMeta: metav1.ObjectMeta{Name: "hosted"}, Spec: hivev1.ClusterImageSetSpec{ReleaseImage: "muster.local/control-plane:v1"}}
	require.NoError(w, w.Create(w.Context(), set))
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "dev"}, Spec: hivev1.ClusterPoolSpec{
		Size: 0, BaseDomain: "clusters.example.com", ImageSetRef: hivev1.ClusterImageSetReference{Name: set.Name}, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{}},
	}}
	require.NoError(w, w.Create(w.Context(), pool))
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "mine"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: pool.Name}}
	require.NoError(w, w.Create(w.Context(), claim))
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.Get(w.Context(), client.ObjectKeyFromObject(claim), claim))
		assert.True(c, hivev1.IsConditionTrue(claim.Status.Conditions, hivev1.ClusterClaimRunning), "%+v", claim.Status.Conditions)
	}, patience, interval)
	require.NoError(w, w.Delete(w.Context(), claim))
	w.untilGone(claim)
	require.NoError(w, w.Delete(w.Context(), pool))
	w.untilGone(pool)
}

// findsMachines makes hosts of the rack that discovery-operator makes up, and refuses a second host of one machine.
func (w *testEnv) findsMachines() {
	w.Helper()
	discovery := &metal3v1.BareMetalHostDiscovery{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rack"}}
	discovery.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{Prefix: "rack-", HardwareDetails: metal3v1.DetailSerialNumber}
	discovery.Spec.Selector = "hardware.hostname == 'node-00001'"
	discovery.Spec.Interval = &metav1.Duration{Duration: time.Second}
	require.NoError(w, w.Create(w.Context(), discovery))
	hosts := &metal3v1.BareMetalHostList{}
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.List(w.Context(), hosts, client.InNamespace(w.namespace)))
		require.Len(c, hosts.Items, 1)
		assert.Equal(c, metal3v1.OperationalStatusDiscovered, hosts.Items[0].Status.OperationalStatus)
	}, patience, interval)
	twin := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "twin"}}
	twin.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: hosts.Items[0].Spec.BootMACAddress}
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		assert.True(c, apierrors.IsForbidden(w.Create(w.Context(), twin.DeepCopy(), client.DryRunAll)))
	}, patience, interval)
	require.NoError(w, w.Delete(w.Context(), discovery))
	require.NoError(w, w.DeleteAllOf(w.Context(), &metal3v1.BareMetalHost{}, client.InNamespace(w.namespace)))
	w.untilGone(&hosts.Items[0])
}

// takesMachines has agent-service answer for an InfraEnv: with an image where there is a live one, and otherwise with what is missing.
func (w *testEnv) takesMachines() {
	w.Helper()
	require.NoError(w, w.Create(w.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	}))
	env := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rack"}}
	env.Spec.PullSecretRef.Name = "pull"
	require.NoError(w, w.Create(w.Context(), env))
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.Get(w.Context(), client.ObjectKeyFromObject(env), env))
		created := agentv1.FindCondition(env.Status.Conditions, agentv1.ConditionImageCreated)
		require.NotNil(c, created)
		assert.NotEmpty(c, created.Message)
	}, patience, interval)
	require.NoError(w, w.Delete(w.Context(), env))
	w.untilGone(env)
}

// claim creates one. For a few seconds after the kinds were installed the API server's admission does not know them yet.
func (w *testEnv) claim(name string) *ipamv1.IPClaim {
	w.Helper()
	claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	claim.Spec.Pool.Name = "rack"
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.Create(w.Context(), claim))
	}, patience, interval)
	return claim
}

// untilServed waits until a claim has its address and its finalizer.
func (w *testEnv) untilServed(claim *ipamv1.IPClaim) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		require.NoError(c, w.Get(w.Context(), client.ObjectKeyFromObject(claim), claim))
		require.NotNil(c, claim.Status.Address)
		assert.Equal(c, []string{ipamv1.IPClaimFinalizer}, claim.Finalizers)
	}, patience, interval)
}

func (w *testEnv) untilGone(obj client.Object) {
	w.Helper()
	require.EventuallyWithT(w, func(c *assert.CollectT) {
		assert.True(c, apierrors.IsNotFound(w.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)))
	}, patience, interval)
}
