// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/ipam-operator/internal/check"
)

// patience is how long anything may take on a busy machine before it counts as stuck.
const patience = 2 * time.Minute

// site is a namespace that the operator serves, and what users and operators do in it.
type site struct {
	t         *testing.T
	config    *rest.Config
	user      client.Client
	namespace string
	// replicaLogs are the files that processes of the operator write to.
	replicaLogs []string
}

// dataSite is a site with machines and their network data.
type dataSite struct{ *site }

// contractSite is a site with claims and addresses of Cluster API's contract.
type contractSite struct{ *site }

// testEnv is a namespace of the control plane and a user of it.
type testEnv struct {
	*site
	dataSite
	contractSite
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	config := controlplanetest.Start(t)
	scheme, err := NewScheme()
	require.NoError(t, err)
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	s := &site{t: t, config: config, user: user}
	w := &testEnv{s, dataSite{s}, contractSite{s}}
	w.install("role.yaml")
	w.install("role_binding.yaml")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ipam-"}}
	require.NoError(t, user.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	return w
}

func testOptions(namespace string) Options {
	return Options{
		Settings:  operator.Settings{MetricsBindAddress: "0", HealthProbeBindAddress: "0", LogLevel: "error"},
		Namespace: namespace, ClaimWorkers: 20, PoolWorkers: 2,
		PoolStatusInterval: 100 * time.Millisecond, DefaultStrategy: "random", DataWorkers: 10, registerer: prometheus.NewRegistry(),
	}
}

// operator runs a replica until the test ends or stop is called; stop waits for its end.
func (w *site) operator(wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	w.t.Helper()
	return w.operatorWith(testOptions(w.namespace), wrap)
}

func (w *site) operatorWith(options Options, wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	w.t.Helper()
	config := rest.CopyConfig(w.config)
	config.Impersonate = asOperator
	if wrap != nil {
		config.Wrap(wrap)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- RunWith(ctx, options, config) }()
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			if err != nil { // as that of a replica whose connection was cut
				w.t.Log("the operator ended: ", err)
			}
		case <-time.After(patience):
			w.t.Error("the operator did not end")
		}
	}
	w.t.Cleanup(stop)
	return stop
}

func (w *site) pool(name string, change func(*ipamv1.IPPoolSpec)) *ipamv1.IPPool {
	w.t.Helper()
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       ipamv1.IPPoolSpec{NamePrefix: name, Prefix: 24},
	}
	change(&pool.Spec)
	if pool.Spec.Gateway == nil && !slices.ContainsFunc(pool.Spec.Pools, inheritsIPv6) {
		pool.Spec.Gateway = new(ipamv1.IPAddressStr("10.0.255.254"))
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), pool))
	return pool
}

// inheritsIPv6 reports whether an IPv6 entry would get the gateway of its pool.
func inheritsIPv6(p ipamv1.Pool) bool {
	return p.Gateway == nil && (p.Start != nil && strings.Contains(string(*p.Start), ":") || p.Subnet != nil && strings.Contains(string(*p.Subnet), ":"))
}

func span(first, last string) ipamv1.Pool {
	return ipamv1.Pool{Start: new(ipamv1.IPAddressStr(first)), End: new(ipamv1.IPAddressStr(last))}
}

func (w *site) newClaim(name, pool string) *ipamv1.IPClaim {
	return &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"for": name}},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: pool}},
	}
}

func (w *site) claim(name, pool string) *ipamv1.IPClaim {
	w.t.Helper()
	claim := w.newClaim(name, pool)
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

// eventually waits until something is as it should be. It asks on the test's own goroutine, which may end the test.
func (w *site) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); wait(w.t.Context(), 100*time.Millisecond) {
		require.True(w.t, time.Now().Before(deadline), what)
	}
}

// whileMoving waits until something is as it should be, for as long as its state changes: on a busy machine it only takes longer, and what is stuck does not move.
func (w *site) whileMoving(what string, state *atomic.Value, ok func() bool) {
	w.t.Helper()
	last, since := state.Load(), time.Now()
	for ; !ok(); wait(w.t.Context(), 20*time.Millisecond) {
		if now := state.Load(); now != last {
			last, since = now, time.Now()
		}
		require.Less(w.t, time.Since(since), patience, what)
	}
}

// address is what a claim gets.
func (w *site) address(claim string) *ipamv1.IPAddress {
	w.t.Helper()
	address := &ipamv1.IPAddress{}
	w.eventually(claim+" has no address", func() bool {
		got := w.getClaim(claim)
		if got == nil || got.Status.Address == nil {
			return false
		}
		return w.user.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: got.Status.Address.Name}, address) == nil
	})
	return address
}

func (w *site) getClaim(name string) *ipamv1.IPClaim {
	claim := &ipamv1.IPClaim{}
	err := w.user.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, claim)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return claim
}

func (w *site) getPool(name string) *ipamv1.IPPool {
	pool := &ipamv1.IPPool{}
	err := w.user.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, pool)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(w.t, err)
	return pool
}

// untilUsed waits until a pool tells how many of its addresses are taken: so many the operator knows to be.
func (w *site) untilUsed(pool string, addresses int) {
	w.t.Helper()
	w.eventually("the status of the pool does not follow", func() bool {
		used := w.getPool(pool).Status.Used
		return used != nil && int(*used) == addresses
	})
}

// refused waits for the text that a claim is refused with.
func (w *site) refused(claim, text string) {
	w.t.Helper()
	w.eventually(claim+" is not refused with "+text, func() bool {
		got := w.getClaim(claim)
		return got != nil && got.Status.ErrorMessage != nil && *got.Status.ErrorMessage == text
	})
}

func (w *site) delete(obj client.Object) {
	w.t.Helper()
	require.NoError(w.t, client.IgnoreNotFound(w.user.Delete(w.t.Context(), obj)))
}

// gone waits until an object is not there any more; another one may have its name.
func (w *site) gone(obj client.Object) {
	w.t.Helper()
	w.eventually(obj.GetName()+" is still there", func() bool {
		now := obj.DeepCopyObject().(client.Object)
		err := w.user.Get(w.t.Context(), client.ObjectKeyFromObject(obj), now)
		return apierrors.IsNotFound(err) || err == nil && obj.GetUID() != "" && now.GetUID() != obj.GetUID()
	})
}

// settled waits until a checker finds nothing.
func (w *site) settled() {
	w.t.Helper()
	var findings []check.Finding
	ok := func() bool {
		var err error
		findings, err = check.Run(w.t.Context(), w.user, w.namespace)
		return err == nil && len(findings) == 0
	}
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			require.Empty(w.t, findings)
		}
		wait(w.t.Context(), 50*time.Millisecond)
	}
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// install creates the objects of a file of deploy/base/ipam-operator.
func (w *site) install(name string) {
	w.t.Helper()
	w.installFrom("base/ipam-operator", name)
}

// installFrom creates the objects of a file of a directory of deploy.
func (w *site) installFrom(directory, name string) {
	w.t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", filepath.FromSlash(directory), name))
	require.NoError(w.t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(&obj.Object); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(w.t, err)
		}
		if obj.Object == nil {
			continue // nothing but comments
		}
		if strings.HasSuffix(obj.GetKind(), "PolicyBinding") {
			w.bindHere(obj)
		}
		if err := w.user.Create(w.t.Context(), obj); !apierrors.IsAlreadyExists(err) {
			require.NoError(w.t, err)
		}
	}
}

// bindHere puts a policy in force in this environment only: others store what it refuses.
func (w *site) bindHere(binding *unstructured.Unstructured) {
	w.t.Helper()
	binding.SetName(binding.GetName() + "." + w.namespace)
	here := map[string]any{"matchLabels": map[string]any{corev1.LabelMetadataName: w.namespace}}
	require.NoError(w.t, unstructured.SetNestedField(binding.Object, here, "spec", "matchResources", "namespaceSelector"))
}

// account is the name of the operator's service account, with the rights that deploy/base/ipam-operator gives it.
const account = "system:serviceaccount:muster-ipam-operator:ipam-operator"

// installAdmission puts the policies in force that deploy/base/ipam-operator brings, and waits until they are.
func (w *site) installAdmission() {
	w.t.Helper()
	w.install("admission.yaml")
	w.eventually("the policy of pools is not in force", func() bool {
		pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}}
		pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "probe", Pools: []ipamv1.Pool{span("fd00::2", "fd00::1")}}
		return w.user.Create(w.t.Context(), pool, client.DryRunAll) != nil
	})
}

// installMutation puts the policy of deploy/components/mutating-admission in force, and waits until it is.
func (w *site) installMutation() {
	w.t.Helper()
	w.installFrom("components/mutating-admission", "policy.yaml")
	probe := w.newClaim("probe", "none")
	probe.Finalizers = []string{"example.com/kept"}
	w.eventually("the policy is not in force", func() bool {
		dry := probe.DeepCopy()
		return w.user.Create(w.t.Context(), dry, client.DryRunAll) == nil &&
			slices.Equal(dry.Finalizers, []string{"example.com/kept", ipamv1.IPClaimFinalizer})
	})
}
