// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddressclaim

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/apis/faultinject"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

var testKinds = Kinds{
	Claim:   schema.GroupVersionKind{Group: Group, Version: "v1beta2", Kind: ClaimKind},
	Address: schema.GroupVersionKind{Group: Group, Version: "v1beta2", Kind: AddressKind},
}

// readerCache is a cache that reads from a client and counts lists.
type readerCache struct {
	cache.Cache
	reader client.Reader
	lists  int
}

// Get implements client.Reader.
func (c *readerCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, obj, opts...)
}

// List implements client.Reader.
func (c *readerCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.lists++
	return c.reader.List(ctx, list, opts...)
}

// indexer registers the indexes with a fake client.
type indexer struct{ *fake.ClientBuilder }

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, obj client.Object, field string, of client.IndexerFunc) error {
	i.WithIndex(obj, field, of)
	return nil
}

// newController returns a Controller of a pool p with waiting claims c0, c1 and so on, the oldest first.
func newController(t *testing.T, claims int) (*Controller, *readerCache, engine.Queue) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	for _, kind := range []schema.GroupVersionKind{testKinds.Claim, testKinds.Address} {
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	c := &Controller{kinds: testKinds}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	require.NoError(t, c.Index(t.Context(), indexer{builder}))
	for i := range claims {
		claim := object(testKinds.Claim)
		claim.SetNamespace("ns")
		claim.SetName(fmt.Sprintf("c%d", i))
		claim.SetUID(types.UID(fmt.Sprintf("uid-%d", i)))
		claim.SetCreationTimestamp(metav1.NewTime(time.Unix(int64(i), 0)))
		claim.Object["spec"] = map[string]any{"poolRef": map[string]any{"apiGroup": ipamv1.GroupVersion.Group, "kind": ipamv1.IPPoolKind, "name": "p"}}
		builder.WithObjects(claim)
	}
	reader := &readerCache{reader: builder.Build()}
	c.cache = reader
	c.claims = engine.New(engine.Deps{
		Index: space.New(), Clusters: capi.NewClusters(reader), Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0)),
	})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(q.ShutDown)
	return c, reader, q
}

func testPool(change func(*ipamv1.IPPool)) *ipamv1.IPPool {
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-p", Generation: 1}}
	if change != nil {
		change(pool)
	}
	return pool
}

// TestTheStatusOfAPoolWakesNoClaims changes one thing of a pool at a time.
func TestTheStatusOfAPoolWakesNoClaims(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ipamv1.IPPool)
		woken  int
	}{
		"its status": {change: func(p *ipamv1.IPPool) {
			p.Status.Used, p.Status.Allocations = new(int64(1)), map[string]ipamv1.IPAddressStr{"a": "10.0.0.1"}
		}},
		"an unrelated annotation": {change: func(p *ipamv1.IPPool) { p.Annotations = map[string]string{"a": "b"} }},
		"its spec":                {change: func(p *ipamv1.IPPool) { p.Generation++ }, woken: 3},
		"its finalizer":           {change: func(p *ipamv1.IPPool) { p.Finalizers = []string{ipamv1.IPPoolFinalizer} }, woken: 3},
		"its pause":               {change: func(p *ipamv1.IPPool) { p.Annotations = map[string]string{ipamv1.PausedAnnotation: ""} }, woken: 3},
		"another of its name":     {change: func(p *ipamv1.IPPool) { p.UID = "uid-2" }, woken: 3},
	} {
		t.Run(name, func(t *testing.T) {
			c, reader, q := newController(t, 3)
			c.poolHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: testPool(nil), ObjectNew: testPool(test.change)}, q)
			assert.Equal(t, test.woken, q.Len())
			assert.Equal(t, test.woken > 0, reader.lists > 0)
		})
	}
	c, _, q := newController(t, 3)
	c.poolHandler().Create(t.Context(), event.CreateEvent{Object: testPool(nil)}, q)
	assert.Equal(t, 3, q.Len())
}

// TestNoFreedPoolIsForgotten frees more pools than any channel would hold before the controller runs.
func TestNoFreedPoolIsForgotten(t *testing.T) {
	c, _, q := newController(t, 2)
	for i := range 5000 {
		c.PoolFreed(types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("other-%d", i)}, nil)
	}
	c.PoolFreed(types.NamespacedName{Namespace: "ns", Name: "p"}, map[netip.Addr]bool{netip.MustParseAddr("10.0.0.1"): true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	require.NoError(t, c.claims.WakeSource(c.waiting).Start(ctx, q))
	var woken []string
	for range 2 {
		item, _ := q.Get() // waits
		woken = append(woken, item.Name)
		q.Done(item)
	}
	assert.Equal(t, []string{"c0", "c1"}, woken)
}

// withoutLocks is an API server that has claims, and answers 404 about locks of addresses.
type withoutLocks struct {
	client.Reader
	err error
}

func (w withoutLocks) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, is := obj.(*ipamv1.IPAddress); is {
		return w.err
	}
	return w.Reader.Get(ctx, key, obj, opts...)
}

// TestALockIsGoneOnlyWhereItsKindIsServed: the answer to a request for a kind that is not served is 404, too. An address without a lock beside the one that its claim names is removed.
func TestALockIsGoneOnlyWhereItsKindIsServed(t *testing.T) {
	_, cache, _ := newController(t, 1)
	claim := object(testKinds.Claim)
	require.NoError(t, cache.Get(t.Context(), types.NamespacedName{Namespace: "ns", Name: "c0"}, claim))
	claim.Object["status"] = map[string]any{"addressRef": map[string]any{"name": "p-10-0-0-1"}}
	require.NoError(t, cache.reader.(client.Client).Update(t.Context(), claim))
	address := object(testKinds.Address)
	address.SetNamespace("ns")
	address.SetName("p-10-0-0-2")
	address.Object["spec"] = map[string]any{"claimRef": map[string]any{"name": "c0"}}
	kind, k := schema.GroupResource{Group: ipamv1.GroupVersion.Group, Resource: "ipaddresses"}, &claims{kinds: testKinds}
	had, err := k.isHad(t.Context(), withoutLocks{cache, apierrors.NewNotFound(kind, address.GetName())}, address)
	require.NoError(t, err)
	assert.False(t, had)
	_, err = k.isHad(t.Context(), withoutLocks{cache, faultinject.NotServed(kind)}, address)
	require.Error(t, err)
}
