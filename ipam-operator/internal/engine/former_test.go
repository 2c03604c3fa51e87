// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// TestAFormerClaimHoldsNoPlaceInTheQueue replaces a waiting claim by another one of its name between two passes.
func TestAFormerClaimHoldsNoPlaceInTheQueue(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.1")})
	s.index.Observe(recordOf(s.address("p-10-0-0-1", "10.0.0.1", "other")))
	former := s.claim("c", func(c *ipamv1.IPClaim) { c.Finalizers = nil })
	_, err := s.reconcile("c")
	require.NoError(t, err)
	require.NoError(t, s.client.Delete(t.Context(), former))
	now := s.claim("c", func(c *ipamv1.IPClaim) { c.UID = "uid-of-another-life" })
	s.reconciler.records.unwrite(key("c")) // the fake client begins to count again

	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, 1, s.reconciler.records.position(key("c")))
	assert.Zero(t, s.reconciler.Line.Ahead(space.Queue{Pool: key("p")}, waiterOf(now)))

	s.reconciler.forgetAddress(recordOf(s.address("p-10-0-0-1", "10.0.0.1", "other")))
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses())
}

// TestAnAddressIsKeptUntilItsClaimIsKnownToBeGone has an API server that finds nothing where the claim is.
func TestAnAddressIsKeptUntilItsClaimIsKnownToBeGone(t *testing.T) {
	lost := apierrors.NewNotFound(schema.GroupResource{Group: "ipam.metal3.io", Resource: "ipclaims"}, "c")
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: onStatus(lost)})
	s.claim("c")
	_, err := s.reconcile("c")
	require.ErrorContains(t, err, "telling IPClaim c of its address")
	assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses())
}

// TestAnAddressWhoseDeletionConflictsIsNotForgotten refuses the deletion of a second address once, though the object is the one that is meant.
func TestAnAddressWhoseDeletionConflictsIsNotForgotten(t *testing.T) {
	refused := false
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			if !refused {
				refused = true
				return apierrors.NewConflict(schema.GroupResource{Resource: "ipaddresses"}, obj.GetName(), errLost)
			}
			return c.Delete(ctx, obj, opts...)
		},
	}})
	s.claim("c", func(c *ipamv1.IPClaim) {
		c.Status.Address = &ipamv1.ObjectReference{Name: "p-10-0-0-2", Namespace: "ns"}
	})
	for name, ip := range map[string]string{"p-10-0-0-1": "10.0.0.1", "p-10-0-0-2": "10.0.0.2"} {
		s.create(s.address(name, ip, "c"))
	}
	result, err := s.reconcile("c")
	require.NoError(t, err)
	require.NotZero(t, result.RequeueAfter, "no event would start another pass")
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-2": "c"}, s.addresses())
}

// TestAnAddressThatWasReplacedUnseenWakesItsFormerClaim has a watch that shows another object of the same name, and not the deletion of the former one.
func TestAnAddressThatWasReplacedUnseenWakesItsFormerClaim(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	for _, name := range []string{"a", "b"} {
		s.claim(name, func(c *ipamv1.IPClaim) {
			c.Status.Address = &ipamv1.ObjectReference{Name: "p-10-0-0-1", Namespace: "ns"}
		})
	}
	before, after := s.address("p-10-0-0-1", "10.0.0.1", "a"), s.address("p-10-0-0-1", "10.0.0.1", "b")
	before.UID = types.UID("uid-before")
	q := newQueue(t)
	s.index.Observe(recordOf(before))
	s.reconciler.addressHandler().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	assert.Equal(t, []string{"a"}, woken(q))
	counts, _ := s.index.Counts(key("p"))
	assert.Equal(t, allocate.Counts{Total: 9, Used: 1, Free: 8}, counts)
}

// TestAReleaseTakesTheWritesThatFinalizersForce shows a claim to a second pass whose finalizer was removed.
func TestAReleaseTakesTheWritesThatFinalizersForce(t *testing.T) {
	var writes []string
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), faults: interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			writes = append(writes, "delete "+obj.GetName())
			return c.Delete(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			writes = append(writes, "patch "+obj.GetName())
			return c.Patch(ctx, obj, patch, opts...)
		},
	}})
	claim := s.claim("c")
	_, err := s.reconcile("c")
	require.NoError(t, err)
	require.NoError(t, s.client.Delete(t.Context(), claim))
	behind := s.get("c")
	writes = nil
	s.reconciler.Kind = cachedKind{s.reconciler.Kind, behind}
	for range 3 {
		s.reconciler.records.unwrite(key("c")) // an API server gives what it removes no new resourceVersion
		_, err = s.reconcile("c")
		require.NoError(t, err)
	}
	assert.Equal(t, []string{"delete p-10-0-0-1", "patch p-10-0-0-1", "patch c"}, writes)

	s.reconciler.Kind = IPClaims(s.client, s.client, "")
	s.claim("c", func(c *ipamv1.IPClaim) { c.UID = "uid-of-another-life" })
	s.reconciler.records.unwrite(key("c")) // the fake client begins to count again
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.NotNil(t, s.get("c").Status.Address, "a claim that is made again is served")
}

// cachedKind shows a claim as a cache does that is behind.
type cachedKind struct {
	Kind
	claim *ipamv1.IPClaim
}

// Get implements Kind.
func (k cachedKind) Get(context.Context, types.NamespacedName) (*Subject, error) {
	claim := k.claim.DeepCopy()
	s := NewSubject(claim, ipamv1.GroupVersion.String(), ipamv1.IPClaimKind, ipamv1.IPClaimFinalizer)
	s.Pool = key(claim.Spec.Pool.Name)
	s.Claim.Bound, s.Claim.Reported = claim.Status.Address.Name, true
	return s, nil
}

// TestNoAddressIsGivenBackByAStatusThatIsBehind has a cache whose claim names another address than the claim does by now.
func TestNoAddressIsGivenBackByAStatusThatIsBehind(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	s.claim("c", func(c *ipamv1.IPClaim) {
		c.Status.Address = &ipamv1.ObjectReference{Name: "p-10-0-0-2", Namespace: "ns"}
	})
	for name, ip := range map[string]string{"p-10-0-0-1": "10.0.0.1", "p-10-0-0-2": "10.0.0.2"} {
		s.create(s.address(name, ip, "c"))
	}
	behind, now := s.get("c"), s.get("c")
	now.Status.Address.Name = "p-10-0-0-1"
	require.NoError(t, s.client.Status().Update(t.Context(), now))
	served := s.reconciler.Kind
	s.reconciler.Kind = cachedKind{served, behind}
	result, err := s.reconcile("c")
	require.NoError(t, err)
	require.NotZero(t, result.RequeueAfter)
	assert.Len(t, s.addresses(), 2)

	s.reconciler.Kind = served
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses())
}

// TestAClaimHasWhatTheAPIServerShowsAsItsOwn deletes a claim that had no finalizer yet and makes it again within the same second: the cache still shows the former claim as
// the owner of the address, the garbage collector has removed that owner, and nothing but the names tells the two claims apart.
func TestAClaimHasWhatTheAPIServerShowsAsItsOwn(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	pool := &ipamv1.IPPool{}
	require.NoError(t, s.client.Get(t.Context(), key("p"), pool))
	pool.Spec.StickyFor = &metav1.Duration{Duration: time.Hour}
	require.NoError(t, s.client.Update(t.Context(), pool))
	claim := s.claim("c")
	address := s.address("p-10-0-0-1", "10.0.0.1", "c")
	address.CreationTimestamp = claim.CreationTimestamp
	address.OwnerReferences = []metav1.OwnerReference{{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: "p", UID: "uid-p"}}
	address.Finalizers = []string{ipamv1.IPAddressFinalizer}
	s.create(address)
	s.index.Observe(recordOf(address))
	now := s.reconciler.Client
	s.reconciler.Client = interceptor.NewClient(s.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			err := c.List(ctx, list, opts...)
			if addresses, ok := list.(*ipamv1.IPAddressList); ok {
				for i := range addresses.Items {
					addresses.Items[i].OwnerReferences = append(addresses.Items[i].OwnerReferences, metav1.OwnerReference{Kind: ipamv1.IPClaimKind, Name: "c", UID: "uid-before"})
				}
			}
			return err
		},
	})
	_, err := s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses())

	s.reconciler.Client = now
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, "p-10-0-0-1", s.get("c").Status.Address.Name)
	assert.Equal(t, map[string]string{"p-10-0-0-1": "c"}, s.addresses())
}

// TestAnAddressThatWasDeletedInUseIsKeptFromItsRelease has an address that a user, or the garbage collector after a restore, deleted long before its claim gave it back.
func TestAnAddressThatWasDeletedInUseIsKeptFromItsRelease(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(epoch.Add(-d))) }
	claim := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid-c", Finalizers: []string{ipamv1.IPClaimFinalizer}, DeletionTimestamp: ago(time.Second)},
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: "p"}},
	}
	address := (*shell)(nil).address("p-10-0-0-5", "10.0.0.5", "c")
	address.DeletionTimestamp = ago(2 * time.Hour)
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9"), sticky: &metav1.Duration{Duration: time.Hour}, objects: []client.Object{claim, address}})
	s.index.Observe(recordOf(address))
	_, err := s.reconcile("c")
	require.NoError(t, err)
	require.NoError(t, s.client.Get(t.Context(), key("p-10-0-0-5"), address))
	assert.WithinDuration(t, epoch, ReleasedAt(address), 0)

	s.claim("c", func(c *ipamv1.IPClaim) { c.UID = "uid-of-another-life" })
	s.reconciler.records.unwrite(key("c")) // the fake client begins to count again
	_, err = s.reconcile("c")
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"p-10-0-0-5": "c"}, s.addresses())
}

// TestAReleasedAddressIsNotThatOfAClaimMadeAgain has times of whole seconds: the address was made for the former claim, and released, in the second in which the claim was made again.
func TestAReleasedAddressIsNotThatOfAClaimMadeAgain(t *testing.T) {
	s := newShell(t, fixture{ranges: span("10.0.0.1", "10.0.0.9")})
	claim, address, second := s.claim("c"), s.address("p-10-0-0-1", "10.0.0.1", "c"), metav1.NewTime(epoch)
	claim.CreationTimestamp, address.CreationTimestamp = second, second
	address.OwnerReferences = []metav1.OwnerReference{{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: "p", UID: "uid-p"}}
	address.Finalizers = []string{ipamv1.IPAddressFinalizer}
	assert.True(t, belongs(address, claim, ""), "the garbage collector removed its owner")
	address.DeletionTimestamp = &second
	assert.False(t, belongs(address, claim, ""))
	assert.True(t, belongs(address, claim, address.Name), "its status names it")
}
