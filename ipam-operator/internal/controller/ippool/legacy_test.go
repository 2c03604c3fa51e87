// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/ipam-operator/internal/app"
)

const patience = 2 * time.Minute

// testEnv is a namespace of a control plane that has the definitions of the legacy manager, and none of ours of their names.
type testEnv struct {
	t         *testing.T
	config    *rest.Config
	user      client.Client
	namespace string
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(needtest.Field(t, "crds", "metal3-ipam"), "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	config, err := clientcmd.BuildConfigFromFlags("", controlplanetest.BareKubeconfig(t))
	require.NoError(t, err)
	scheme, err := app.NewScheme()
	require.NoError(t, err)
	require.NoError(t, apiextensionsv1.AddToScheme(scheme))
	w := &testEnv{t: t, config: config}
	w.user, err = client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		definition := &apiextensionsv1.CustomResourceDefinition{}
		require.NoError(t, yaml.Unmarshal(text, definition))
		require.NoError(t, w.user.Create(t.Context(), definition))
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "legacy-"}}
	require.NoError(t, w.user.Create(t.Context(), namespace))
	w.namespace = namespace.Name
	w.eventually("the kinds are not served", func() bool {
		probe := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "probe"}, Spec: ipamv1.IPPoolSpec{NamePrefix: "probe"}}
		return w.user.Create(t.Context(), probe, client.DryRunAll) == nil
	})
	return w
}

func (w *testEnv) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, patience, 20*time.Millisecond, what)
}

// legacy stores a pool and claims as the legacy manager leaves them, and returns what it has stored of claims and addresses.
func (w *testEnv) legacy(claims int) (pool *ipamv1.IPPool, stored []string) {
	w.t.Helper()
	first, last := ipamv1.IPAddressStr("10.0.0.10"), ipamv1.IPAddressStr(fmt.Sprintf("10.0.0.%d", 10+claims))
	pool = &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p", Finalizers: []string{ipamv1.IPPoolFinalizer}}}
	pool.Spec = ipamv1.IPPoolSpec{NamePrefix: "p", Prefix: 24, Pools: []ipamv1.Pool{{Start: &first, End: &last}}}
	require.NoError(w.t, w.user.Create(w.t.Context(), pool))
	indexes := map[string]ipamv1.IPAddressStr{}
	for i := range claims {
		claim := w.claim(fmt.Sprintf("c%d", i), ipamv1.IPClaimFinalizer)
		ip := fmt.Sprintf("10.0.0.%d", 10+i)
		address := &ipamv1.IPAddress{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: "p-" + strings.ReplaceAll(ip, ".", "-"), Finalizers: []string{ipamv1.IPAddressFinalizer},
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPPool", Name: pool.Name, UID: pool.UID},
					{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPClaim", Name: claim.Name, UID: claim.UID},
				},
			},
			Spec: ipamv1.IPAddressSpec{
				Address: ipamv1.IPAddressStr(ip), Prefix: 24, Pool: ipamv1.ObjectReference{Name: pool.Name, Namespace: w.namespace},
				Claim: ipamv1.ObjectReference{Name: claim.Name, Namespace: w.namespace},
			},
		}
		require.NoError(w.t, w.user.Create(w.t.Context(), address))
		claim.Status.Address = &ipamv1.ObjectReference{Name: address.Name, Namespace: w.namespace}
		require.NoError(w.t, w.user.Status().Update(w.t.Context(), claim))
		indexes[claim.Name] = ipamv1.IPAddressStr(ip)
		stored = append(stored, "ipclaims/"+claim.Name, "ipaddresses/"+address.Name)
	}
	pool.Status.Allocations, pool.Status.LastUpdated = indexes, new(metav1.Now())
	require.NoError(w.t, w.user.Status().Update(w.t.Context(), pool))
	return pool, stored
}

func (w *testEnv) named(claim string) *ipamv1.IPClaim {
	return &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: claim}}
}

func (w *testEnv) claim(name string, finalizers ...string) *ipamv1.IPClaim {
	w.t.Helper()
	claim := w.named(name)
	claim.Finalizers = finalizers
	claim.Spec.Pool.Name = "p"
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

// address waits until a claim has its address.
func (w *testEnv) address(claim *ipamv1.IPClaim) string {
	w.t.Helper()
	w.eventually(claim.Name+" has no address", func() bool {
		return w.user.Get(w.t.Context(), client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Address != nil
	})
	return claim.Status.Address.Name
}

// refused waits until a claim says that the pool is exhausted.
func (w *testEnv) refused(claim *ipamv1.IPClaim) {
	w.t.Helper()
	w.eventually(claim.Name+" is not refused", func() bool {
		return w.user.Get(w.t.Context(), client.ObjectKeyFromObject(claim), claim) == nil &&
			claim.Status.ErrorMessage != nil && *claim.Status.ErrorMessage == "Exhausted IP Pools"
	})
}

// writes are what an operator writes, events aside.
type writes struct {
	mu   sync.Mutex
	seen []string
}

func (w *writes) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

func (w *writes) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		if _, what, ok := strings.Cut(r.URL.Path, "/ipam.metal3.io/v1alpha1/namespaces/"); ok && r.Method != http.MethodGet {
			_, what, _ = strings.Cut(what, "/")
			w.mu.Lock()
			w.seen = append(w.seen, r.Method+" "+what)
			w.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// operate runs the operator until the test ends.
func (w *testEnv) operate() *writes {
	w.t.Helper()
	seen := &writes{}
	config := rest.CopyConfig(w.config)
	config.QPS = -1
	config.Wrap(seen.wrap)
	options, err := app.ParseOptions([]string{"--namespace=" + w.namespace, "--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-level=error"})
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- app.RunWith(ctx, options, config) }()
	w.t.Cleanup(func() {
		cancel()
		assert.NoError(w.t, <-done)
	})
	return seen
}

// TestObjectsOfTheLegacyManagerGoOn starts the operator on what the present manager leaves, with the definitions that users have.
func TestObjectsOfTheLegacyManagerGoOn(t *testing.T) {
	w := newTestEnv(t)
	pool, old := w.legacy(5)
	writes := w.operate()

	assert.Equal(t, "p-10-0-0-15", w.address(w.claim("new")))
	late := w.claim("late")
	w.refused(late)
	for _, write := range writes.all() {
		assert.NotContains(t, old, strings.TrimSuffix(strings.Fields(write)[1], "/status"), "existing objects are not written")
	}
	w.eventually("the pool does not follow", func() bool {
		return w.user.Get(t.Context(), client.ObjectKeyFromObject(pool), pool) == nil && len(pool.Status.Allocations) == 6
	})
	assert.Equal(t, ipamv1.IPAddressStr("10.0.0.12"), pool.Status.Allocations["c2"])

	// These kinds do not keep conditions and counts: the status is not written again because of that.
	for i := range 3 {
		before := len(writes.all())
		require.NoError(t, w.user.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, i))))
		w.refused(w.claim(fmt.Sprint("witness-", i), ipamv1.IPClaimFinalizer))
		assert.LessOrEqual(t, len(writes.all())-before, 1, "only the new claim's status is written: %v", writes.all()[before:])
	}

	require.NoError(t, w.user.Delete(t.Context(), w.named("c3")))
	assert.Equal(t, "p-10-0-0-13", w.address(late))
}
