// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

type indexes struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexes) IndexField(_ context.Context, obj client.Object, field string, of client.IndexerFunc) error {
	i.WithIndex(obj, field, of)
	return nil
}

type events struct{ reasons []string }

// Eventf implements Recorder.
func (e *events) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.reasons = append(e.reasons, reason)
}

type verifier struct {
	again time.Duration
	err   error
}

// Verify implements Verifier.
func (v verifier) Verify(context.Context, types.NamespacedName) (time.Duration, error) {
	return v.again, v.err
}

// shell is a reconciler on a client that can be made to fail.
type shell struct {
	t          *testing.T
	client     client.Client
	reconciler *Reconciler
	events     *events
	writes     []string
	fail       error
	onStatus   func()
}

func newShell(t *testing.T, v verifier, objects ...client.Object) *shell {
	t.Helper()
	s := &shell{t: t, events: &events{}}
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&ipamv1.IPPool{}).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			s.writes = append(s.writes, "metadata")
			return errors.Join(s.fail, c.Patch(ctx, obj, patch, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			s.writes = append(s.writes, sub)
			if s.fail != nil {
				return s.fail
			}
			if s.onStatus != nil {
				s.onStatus()
			}
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
	require.NoError(t, engine.Indexes(t.Context(), indexes{builder}))
	s.client = builder.Build()
	s.reconciler = New(Deps{
		Client: s.client, Live: s.client, Clusters: capi.NewClusters(s.client), Verifier: v, Recorder: s.events,
		Clock: clocktesting.NewFakePassiveClock(epoch.Time), Layouts: space.NewLayouts(ipamv1.RandomAllocation), StatusInterval: time.Second, Workers: 1,
	})
	return s
}

func (s *shell) reconcile() (ctrl.Result, error) {
	s.t.Helper()
	return outcome.Reconciler[ctrl.Request](s.reconciler).Reconcile(s.t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "p"}})
}

func address(ip, claim string) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p-" + claim, UID: types.UID("uid-" + claim), Finalizers: []string{ipamv1.IPAddressFinalizer}},
		Spec:       ipamv1.IPAddressSpec{Address: ipamv1.IPAddressStr(ip), Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: claim}},
	}
}

func TestAPoolIsWrittenOnceAndThenLeftAlone(t *testing.T) {
	s := newShell(t, verifier{again: time.Minute}, newPool(span("10.0.0.1", "10.0.0.1")), address("10.0.0.1", "a"))
	for range 3 {
		result, err := s.reconcile()
		require.NoError(t, err)
		assert.Equal(t, time.Minute, result.RequeueAfter, "addresses that the watch has not shown are asked for again")
	}
	assert.Equal(t, []string{"metadata", "status"}, s.writes)
	assert.Equal(t, []string{ipamv1.ReasonNoAddressFree}, s.events.reasons)
	pool := &ipamv1.IPPool{}
	require.NoError(t, s.client.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "p"}, pool))
	assert.Equal(t, []string{ipamv1.IPPoolFinalizer}, pool.Finalizers)
	assert.Equal(t, map[string]ipamv1.IPAddressStr{"a": "10.0.0.1"}, pool.Status.Allocations)
}

func TestADeletedPoolStaysWhileItHasAddresses(t *testing.T) {
	pool, taken := newPool(span("10.0.0.1", "10.0.0.9")), address("10.0.0.1", "a")
	pool.Finalizers = []string{ipamv1.IPPoolFinalizer}
	s := newShell(t, verifier{}, pool, taken)
	require.NoError(t, s.client.Delete(t.Context(), pool))
	_, err := s.reconcile()
	require.NoError(t, err)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.Equal(t, ipamv1.ReasonPoolDeleting, pool.Status.Conditions[0].Reason)
	taken.Finalizers = nil
	require.NoError(t, s.client.Update(t.Context(), taken))
	require.NoError(t, s.client.Delete(t.Context(), taken))
	_, err = s.reconcile()
	require.NoError(t, err)
	assert.True(t, apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)))
}

func TestErrorsOfAPool(t *testing.T) {
	resource := schema.GroupResource{Group: "ipam.metal3.io", Resource: "ippools"}
	broken := errors.New("the connection broke")
	for name, test := range map[string]struct {
		fail  error
		says  string
		again time.Duration
	}{
		"another client wrote first": {fail: apierrors.NewConflict(resource, "p", broken), again: time.Second},
		"it is gone":                 {fail: apierrors.NewNotFound(resource, "p")},
		"the API server is away":     {fail: broken, says: "writing the pool: the connection broke"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := newPool(span("10.0.0.1", "10.0.0.9"))
			pool.Finalizers = []string{ipamv1.IPPoolFinalizer}
			s := newShell(t, verifier{}, pool)
			s.fail = test.fail
			result, err := s.reconcile()
			if test.says != "" {
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.again, result.RequeueAfter)
		})
	}
	_, err := newShell(t, verifier{err: broken}, newPool()).reconcile()
	require.ErrorIs(t, err, broken)
	_, err = newShell(t, verifier{}).reconcile()
	require.NoError(t, err, "a pool that is gone")
}

// cacheOf hands out one object, as the cache of pools does.
type cacheOf struct {
	client.Client
	shared *ipamv1.IPPool
}

// Get implements client.Reader.
func (c cacheOf) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if pool, ok := obj.(*ipamv1.IPPool); ok {
		*pool = *c.shared
		return nil
	}
	return c.Client.Get(ctx, key, obj, opts...)
}

// TestAPassChangesNoPoolOfTheCache writes metadata and status of a pool whose maps the cache shares.
func TestAPassChangesNoPoolOfTheCache(t *testing.T) {
	pool := newPool(span("10.0.0.1", "10.0.0.9"))
	pool.Labels = map[string]string{"a": "b"}
	pool.Spec.ClusterName = new("c")
	s := newShell(t, verifier{}, pool, address("10.0.0.1", "a"))
	pool.Status.Allocations = map[string]ipamv1.IPAddressStr{"gone": "10.0.0.2"}
	require.NoError(t, s.client.Status().Update(t.Context(), pool))
	shared := &ipamv1.IPPool{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), shared))
	before := shared.DeepCopy()
	s.reconciler.Client = cacheOf{s.client, shared}
	_, err := s.reconcile()
	require.NoError(t, err)
	assert.Equal(t, before, shared)
	assert.Equal(t, []string{"metadata", "status"}, s.writes)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
	assert.Equal(t, map[string]ipamv1.IPAddressStr{"a": "10.0.0.1"}, pool.Status.Allocations)
	assert.Equal(t, "c", pool.Labels[ipamv1.ClusterNameLabel])
}

// delays records how long requests are put off.
type delays struct {
	engine.Queue
	after []time.Duration
}

// AddAfter implements engine.Queue.
func (d *delays) AddAfter(_ ctrl.Request, after time.Duration) { d.after = append(d.after, after) }

// TestPassesOverAPoolWhoseStatusIsDearAreFurtherApart lets the write of a status take longer and longer.
func TestPassesOverAPoolWhoseStatusIsDearAreFurtherApart(t *testing.T) {
	for name, test := range map[string]struct{ takes, want time.Duration }{
		"a cheap one":      {10 * time.Millisecond, time.Second},
		"a dear one":       {150 * time.Millisecond, 3 * time.Second},
		"never for longer": {time.Hour, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, verifier{}, newPool(span("10.0.0.1", "10.0.0.9")), address("10.0.0.1", "a"))
			now := clocktesting.NewFakePassiveClock(epoch.Time)
			s.reconciler.Clock = now
			s.onStatus = func() { now.SetTime(now.Now().Add(test.takes)) }
			_, err := s.reconcile()
			require.NoError(t, err)
			q := &delays{}
			r := s.reconciler
			r.addressHandler().Delete(t.Context(), event.DeleteEvent{Object: address("10.0.0.1", "a")}, q)
			pool := newPool()
			r.poolHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: pool, ObjectNew: pool}, q)
			assert.Equal(t, []time.Duration{test.want, test.want}, q.after)
		})
	}
}
