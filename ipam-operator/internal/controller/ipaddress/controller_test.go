// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddress

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

type nothing struct{}

// Pools implements metrics.Pools.
func (nothing) Pools() []types.NamespacedName { return nil }

// Counts implements metrics.Pools.
func (nothing) Counts(types.NamespacedName) (allocate.Counts, bool) { return allocate.Counts{}, false }

// Waiting implements metrics.Waiting.
func (nothing) Waiting() map[allocate.Why]int { return nil }

func TestReleaseOfAnAddress(t *testing.T) {
	claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid-c", CreationTimestamp: metav1.NewTime(epoch)}}
	owned := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p-1", UID: "uid-p-1", Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{{Kind: "IPClaim", Name: "c", UID: "uid-c"}},
		},
		Spec: ipamv1.IPAddressSpec{Address: "10.0.0.1", Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: "c"}},
	}
	change := func(f func(a *ipamv1.IPAddress)) *ipamv1.IPAddress {
		a := owned.DeepCopy()
		f(a)
		return a
	}
	deleted := metav1.NewTime(epoch.Add(-10 * time.Second))
	restored := change(func(a *ipamv1.IPAddress) {
		a.OwnerReferences = append(a.OwnerReferences, metav1.OwnerReference{Kind: "IPPool", Name: "p", UID: "uid-p-of-another-life"})
	})
	again := func(p *ipamv1.IPPool) { p.UID = "uid-p" }
	deletedSince := func(a *ipamv1.IPAddress, d time.Duration) *ipamv1.IPAddress {
		a = a.DeepCopy()
		a.DeletionTimestamp = new(metav1.NewTime(epoch.Add(-d)))
		return a
	}
	for name, test := range map[string]struct {
		address *ipamv1.IPAddress
		claim   *ipamv1.IPClaim
		pool    func(*ipamv1.IPPool)
		noPool  bool
		stays   bool
		again   time.Duration
		// released is when the address says that it was released, where that is written.
		released time.Time
	}{
		"its claim is there":                 {address: owned, claim: claim, stays: true},
		"its claim is gone":                  {address: owned},
		"its claim was deleted and made new": {address: change(func(a *ipamv1.IPAddress) { a.OwnerReferences[0].UID = "uid-of-another-life" }), claim: claim},
		"it was made by hand":                {address: change(func(a *ipamv1.IPAddress) { a.Finalizers, a.OwnerReferences = nil, nil }), stays: true},
		"it is of another kind of claim":     {address: change(func(a *ipamv1.IPAddress) { a.Spec.Claim.Kind = "IPAddressClaim" }), stays: true},
		"its pool is paused":                 {address: owned, pool: func(p *ipamv1.IPPool) { p.Annotations = map[string]string{ipamv1.PausedAnnotation: ""} }, stays: true},
		"it cools down": {
			address: change(func(a *ipamv1.IPAddress) { a.DeletionTimestamp = &deleted }),
			pool:    func(p *ipamv1.IPPool) { p.Spec.AddressReuseGracePeriodSeconds = 60 }, stays: true, again: 50 * time.Second,
		},
		"its pool is being deleted and waits for no cool-down": {
			address: change(func(a *ipamv1.IPAddress) { a.DeletionTimestamp = &deleted }),
			pool: func(p *ipamv1.IPPool) {
				p.Spec.AddressReuseGracePeriodSeconds, p.DeletionTimestamp, p.Finalizers = 60, &deleted, []string{ipamv1.IPPoolFinalizer}
			},
		},
		"it was restored without owners":   {address: change(func(a *ipamv1.IPAddress) { a.OwnerReferences = nil }), stays: true},
		"it was restored before its claim": {address: restored, pool: again, stays: true},
		"it was restored before its claim, and the garbage collector deleted it": {
			address: deletedSince(restored, 10*time.Second), pool: again, stays: true, again: engine.RestoredFor - 10*time.Second,
		},
		"its claim was not restored for a long time": {address: deletedSince(restored, engine.RestoredFor), pool: again},
		"it was restored, and its pool is not there": {address: restored},
		"it was restored, and its pool is deleted meanwhile": {
			address: deletedSince(restored, 10*time.Second), pool: func(p *ipamv1.IPPool) {
				again(p)
				p.DeletionTimestamp, p.Finalizers = &deleted, []string{ipamv1.IPPoolFinalizer}
			},
		},
		"the garbage collector removed its claim": {
			address: change(func(a *ipamv1.IPAddress) {
				a.OwnerReferences[0] = metav1.OwnerReference{Kind: "IPPool", Name: "p", UID: "uid-p"}
			}),
		},
		"it was deleted while its claim had it": {
			address: change(func(a *ipamv1.IPAddress) {
				a.DeletionTimestamp = new(metav1.NewTime(epoch.Add(-time.Hour)))
				a.Annotations = map[string]string{ipamv1.ReleasedAtAnnotation: epoch.Add(-10 * time.Second).Format(time.RFC3339)}
			}),
			pool: func(p *ipamv1.IPPool) { p.Spec.AddressReuseGracePeriodSeconds = 60 }, stays: true, again: 50 * time.Second,
		},
		"it was released while the clock was ahead by a year": {
			address: change(func(a *ipamv1.IPAddress) {
				a.DeletionTimestamp = new(metav1.NewTime(epoch.Add(-time.Hour)))
				a.Annotations = map[string]string{ipamv1.ReleasedAtAnnotation: epoch.AddDate(1, 0, 0).Format(time.RFC3339)}
			}),
			pool: func(p *ipamv1.IPPool) { p.Spec.AddressReuseGracePeriodSeconds = 60 }, stays: true, again: time.Minute, released: epoch,
		},
		"it has cooled down": {
			address: change(func(a *ipamv1.IPAddress) { a.DeletionTimestamp = &deleted }),
			pool:    func(p *ipamv1.IPPool) { p.Spec.AddressReuseGracePeriodSeconds = 10 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: ipamv1.IPPoolSpec{NamePrefix: "p"}}
			if test.pool != nil {
				test.pool(pool)
			}
			objects := []client.Object{test.address.DeepCopy()}
			if !test.noPool {
				objects = append(objects, pool)
			}
			if test.claim != nil {
				objects = append(objects, test.claim.DeepCopy())
			}
			scheme := runtime.NewScheme()
			require.NoError(t, ipamv1.AddToScheme(scheme))
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			r := New(Deps{
				Client: c, Kind: engine.IPClaims(c, c, ""), Clusters: capi.NewClusters(c), Clock: clocktesting.NewFakePassiveClock(epoch),
				Releaser: engine.Releaser{Writer: c, Reader: c, Count: metrics.New(prometheus.NewRegistry(), nothing{}, nothing{})},
			})
			key := client.ObjectKeyFromObject(test.address)
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			require.NoError(t, err)
			assert.Equal(t, test.again, result.RequeueAfter)
			after := &ipamv1.IPAddress{}
			assert.Equal(t, test.stays, !apierrors.IsNotFound(c.Get(t.Context(), key, after)))
			if !test.released.IsZero() {
				assert.WithinDuration(t, test.released, engine.ReleasedAt(after), 0)
			}
		})
	}
}

// TestAnAddressThatWasJustUnprotectedIsNotReadAgain shows an address for a moment longer than it is there.
func TestAnAddressThatWasJustUnprotectedIsNotReadAgain(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	stale := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "p-1", UID: "uid-p-1", Finalizers: []string{ipamv1.IPAddressFinalizer}, DeletionTimestamp: new(metav1.NewTime(epoch)),
			OwnerReferences: []metav1.OwnerReference{{Kind: "IPClaim", Name: "c", UID: "uid-c"}},
		},
		Spec: ipamv1.IPAddressSpec{Address: "10.0.0.1", Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: "c"}},
	}
	cached := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stale.DeepCopy()).Build()
	server := fake.NewClientBuilder().WithScheme(scheme).WithObjects(stale.DeepCopy()).Build()
	reads := 0
	live := interceptor.NewClient(server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			reads++
			return c.Get(ctx, key, obj, opts...)
		},
	})
	releaser := engine.Releaser{
		Writer: server, Reader: live, Count: metrics.New(prometheus.NewRegistry(), nothing{}, nothing{}), Unprotected: engine.NewUnprotected(),
	}
	r := New(Deps{
		Client: cached, Kind: engine.IPClaims(cached, live, ""), Clusters: capi.NewClusters(cached), Clock: clocktesting.NewFakePassiveClock(epoch), Releaser: releaser,
	})
	key := client.ObjectKeyFromObject(stale)
	require.NoError(t, releaser.Unprotect(t.Context(), stale.DeepCopy()))
	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	assert.Zero(t, reads)

	require.True(t, releaser.Unprotected.Has(key, stale.UID))
	require.NoError(t, cached.Get(t.Context(), key, stale))
	stale.Finalizers = nil
	require.NoError(t, cached.Update(t.Context(), stale))
	_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	require.NoError(t, err)
	assert.False(t, releaser.Unprotected.Has(key, stale.UID), "what the cache does not show any more is forgotten")
}
