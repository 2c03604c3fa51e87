// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }

func span(first, last string) ipamv1.Pool {
	return ipamv1.Pool{Start: new(ipamv1.IPAddressStr(first)), End: new(ipamv1.IPAddressStr(last))}
}

// fixture is what a shell begins with: the pool p in the namespace ns.
type fixture struct {
	ranges   ipamv1.Pool
	reserved map[string]ipamv1.IPAddressStr
	grace    int64
	sticky   *metav1.Duration
	objects  []client.Object
	faults   interceptor.Funcs
}

// shell is a reconciler on a client that can be made to fail.
type shell struct {
	t          *testing.T
	client     client.WithWatch
	index      *space.Index
	reconciler *Reconciler
	events     *events
}

type events struct{ reasons []string }

// Eventf implements Recorder.
func (e *events) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.reasons = append(e.reasons, reason)
}

// indexes registers indexes with a client under construction.
type indexes struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexes) IndexField(_ context.Context, obj client.Object, field string, of client.IndexerFunc) error {
	i.WithIndex(obj, field, of)
	return nil
}

func newShell(t *testing.T, f fixture) *shell {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&ipamv1.IPClaim{}, &ipamv1.IPPool{}).
		WithObjects(f.objects...).WithInterceptorFuncs(withUIDs(f.faults))
	require.NoError(t, Indexes(t.Context(), indexes{builder}))
	s := &shell{t: t, client: builder.Build(), index: space.New(), events: &events{}}
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-p", Finalizers: []string{ipamv1.IPPoolFinalizer}},
		Spec: ipamv1.IPPoolSpec{
			NamePrefix: "p", Pools: []ipamv1.Pool{f.ranges}, Prefix: 24, PreAllocations: f.reserved, AllocationStrategy: ipamv1.SequentialAllocation,
			AddressReuseGracePeriodSeconds: f.grace, StickyFor: f.sticky,
		},
	}
	require.NoError(t, s.client.Create(t.Context(), pool))
	s.index.SetPool(key("p"), allocate.Parse(&pool.Spec, ipamv1.RandomAllocation))
	s.reconciler = New(Deps{
		Client: s.client, Live: s.client, Kind: IPClaims(s.client, s.client, ""), Index: s.index, Clusters: capi.NewClusters(s.client), Recorder: s.events,
		Metrics: metrics.New(prometheus.NewRegistry(), s.index, noneWaiting{}), Clock: clocktesting.NewFakePassiveClock(epoch),
		Layouts: space.NewLayouts(ipamv1.RandomAllocation), Workers: 1,
	})
	return s
}

// withUIDs gives created objects a UID, as an API server does.
func withUIDs(faults interceptor.Funcs) interceptor.Funcs {
	create := faults.Create
	if create == nil {
		create = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return c.Create(ctx, obj, opts...)
		}
	}
	faults.Create = func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
		if obj.GetUID() == "" {
			obj.SetUID(types.UID("uid-" + obj.GetName()))
		}
		return create(ctx, c, obj, opts...)
	}
	return faults
}

type noneWaiting struct{}

// Waiting implements metrics.Waiting.
func (noneWaiting) Waiting() map[allocate.Why]int { return nil }

// claim creates a claim of the pool.
func (s *shell) claim(name string, change ...func(*ipamv1.IPClaim)) *ipamv1.IPClaim {
	s.t.Helper()
	claim := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{ipamv1.IPClaimFinalizer}},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: "p"}},
	}
	for _, c := range change {
		c(claim)
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), claim))
	return claim
}

// address is the IPAddress that a claim would have got; it is not created.
func (*shell) address(name, ip, claim string) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "ipam.metal3.io/v1alpha1", Kind: "IPClaim", Name: claim, UID: types.UID("uid-" + claim)}},
		},
		Spec: ipamv1.IPAddressSpec{Address: ipamv1.IPAddressStr(ip), Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: claim}},
	}
}

func (s *shell) reconcile(claim string) (ctrl.Result, error) {
	s.t.Helper()
	return outcome.Reconciler[ctrl.Request](s.reconciler).Reconcile(s.t.Context(), ctrl.Request{NamespacedName: key(claim)})
}

func (s *shell) get(claim string) *ipamv1.IPClaim {
	s.t.Helper()
	got := &ipamv1.IPClaim{}
	require.NoError(s.t, s.client.Get(s.t.Context(), key(claim), got))
	return got
}

// addresses maps the names of all IPAddresses to their claims.
func (s *shell) addresses() map[string]string {
	s.t.Helper()
	list := &ipamv1.IPAddressList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list))
	out := map[string]string{}
	for i := range list.Items {
		out[list.Items[i].Name] = list.Items[i].Spec.Claim.Name
	}
	return out
}
