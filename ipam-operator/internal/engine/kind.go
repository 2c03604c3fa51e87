// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/setplan"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// NameTakenError says that an object that stands beside the IPAddress of a claim, under its name, belongs to another claim: the claim needs another address.
type NameTakenError struct {
	// Object that has the name.
	Object client.Object
	// Group of the object.
	Group string
}

// Error implements error.
func (e *NameTakenError) Error() string {
	return fmt.Sprintf("IPAddress %s of %s belongs to another claim", e.Object.GetName(), e.Group)
}

// Kind is a kind of claim: how one is read and its status written. Two kinds are served from the same pools.
type Kind interface {
	// Name is the name of the kind.
	Name() string
	// Get reads a claim from the cache; nil means that it is gone or is not ours to serve. One that is not ours and carries our finalizer is returned as
	// unserved.
	Get(ctx context.Context, name types.NamespacedName) (*Subject, error)
	// Has reports whether the claim that an address names is there and has it: by the cache, or live by the API server.
	Has(ctx context.Context, address *ipamv1.IPAddress, live bool) (bool, error)
	// Unseen is the address that a claim has by an object of the kind's own group that the API server has and Get may not have seen; invalid for none.
	Unseen(ctx context.Context, subject *Subject) (netip.Addr, error)
	// Publish makes the claim name its address. It writes only what differs, under the resourceVersion of the claim. A NameTakenError says that
	// the claim needs another address.
	Publish(ctx context.Context, subject *Subject, address *ipamv1.IPAddress) error
	// Refuse tells the claim why it has no address. It writes only what differs, under the resourceVersion of the claim, and
	// reports whether it wrote.
	Refuse(ctx context.Context, subject *Subject, why allocate.Why, refusal allocate.Refuse) (bool, error)
	// Retract takes back what Publish made beside the claim's status.
	Retract(ctx context.Context, subject *Subject, addressName string) error
}

// Subject is a claim of either kind.
type Subject struct {
	// Object is the claim. It is a copy that may be changed.
	Object client.Object
	// APIVersion and Kind of the claim.
	APIVersion, Kind string
	// Pool that the claim names. Its namespace is that of the addresses of the claim.
	Pool types.NamespacedName
	// PoolUID is the UID of that pool; empty while it is not known.
	PoolUID types.UID
	// Choice selects the pools that the claim can be served from; nil where it names one.
	Choice labels.Selector
	// Claim is what the plan sees.
	Claim allocate.Claim
	// Cluster that the claim belongs to, where its kind says so: nothing is allocated while it is missing.
	Cluster string
	// Finalizer that keeps the claim until its address is given back.
	Finalizer string
	// FinalizerFirst says that the finalizer must be there before an address is taken.
	FinalizerFirst bool
	// AlreadyRefused says that this process has written the same refusal to the claim before: where the stored kind lacks the conditions,
	// the claim cannot show it.
	AlreadyRefused func(allocate.Refuse) bool
	// Foreign says that the claim names a pool that it cannot be served from.
	Foreign string
}

// UID of the claim.
func (s *Subject) UID() types.UID { return s.Object.GetUID() }

// Key of the claim.
func (s *Subject) Key() types.NamespacedName { return client.ObjectKeyFromObject(s.Object) }

// name is what the claim has in common with earlier ones that it replaces.
func (s *Subject) name() space.ClaimName {
	return space.ClaimName{Kind: s.Kind, NamespacedName: s.Key()}
}

// queue is what the claim waits for where any will do.
func (s *Subject) queue() space.Queue {
	return space.Queue{Pool: s.Pool, PrefixLength: s.Claim.PrefixLength}
}

func (s *Subject) waiter() space.Waiter { return waiterOf(s.Object) }

func waiterOf(claim client.Object) space.Waiter {
	return space.Waiter{Created: claim.GetCreationTimestamp().Time, Name: client.ObjectKeyFromObject(claim), UID: claim.GetUID()}
}

func (s *Subject) owner() metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: s.APIVersion, Kind: s.Kind, Name: s.Object.GetName(), UID: s.UID()}
}

// NewSubject fills in what is the same for every kind. The finalizer of foreground deletion does not say that a controller needs the claim: the garbage collector waits for the addresses that the claim
// owns.
func NewSubject(obj client.Object, gv, kind, finalizer string) *Subject {
	finalizers := obj.GetFinalizers()
	return &Subject{
		Object: obj, APIVersion: gv, Kind: kind, Finalizer: finalizer,
		Claim: allocate.Claim{
			Name:              obj.GetName(),
			Requested:         obj.GetAnnotations()[ipamv1.RequestedAddressAnnotation],
			Intended:          intended(obj),
			Deleting:          !obj.GetDeletionTimestamp().IsZero(),
			Finalized:         controllerutil.ContainsFinalizer(obj, finalizer),
			ForeignFinalizers: slices.ContainsFunc(finalizers, func(f string) bool { return f != finalizer && f != metav1.FinalizerDeleteDependents }),
		},
	}
}

// ipClaims is the kind IPClaim.
type ipClaims struct {
	client    client.Client
	live      client.Reader
	namespace string
}

// IPClaims serves IPClaim: cached reads and writes, live reads. The namespace is the only one that the cache has; empty for all.
func IPClaims(c client.Client, live client.Reader, namespace string) Kind {
	return ipClaims{c, live, namespace}
}

// isServed reports whether the cache has a namespace.
func (k ipClaims) isServed(namespace string) bool {
	return k.namespace == "" || k.namespace == namespace
}

// Name implements Kind.
func (ipClaims) Name() string { return ipamv1.IPClaimKind }

// Get implements Kind.
func (k ipClaims) Get(ctx context.Context, name types.NamespacedName) (*Subject, error) {
	claim := &ipamv1.IPClaim{}
	if !k.isServed(name.Namespace) {
		return nil, nil
	}
	if err := k.client.Get(ctx, name, claim); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	served := servedReference(claim.Spec.Pool)
	if !served && !controllerutil.ContainsFinalizer(claim, ipamv1.IPClaimFinalizer) {
		return nil, nil
	}
	s := NewSubject(claim, ipamv1.GroupVersion.String(), ipamv1.IPClaimKind, ipamv1.IPClaimFinalizer)
	s.Pool = types.NamespacedName{Namespace: claim.Namespace, Name: claim.Spec.Pool.Name}
	s.Claim.PrefixLength = claim.Spec.PrefixLength
	switch pool := claim.PoolKey(); {
	case claim.Spec.PoolSelector != nil:
		choose(s, claim)
	case !served:
		s.Claim.Unserved = true
		s.Foreign = fmt.Sprintf("The claim names a pool of kind %s of %s, which ipam-operator does not serve",
			cmp.Or(claim.Spec.Pool.Kind, ipamv1.IPPoolKind), cmp.Or(claim.Spec.Pool.APIVersion, ipamv1.GroupVersion.String()))
	case pool.Namespace != claim.Namespace && !k.isServed(pool.Namespace):
		s.Foreign = fmt.Sprintf("IPPool %s is in namespace %s; this ipam-operator serves namespace %s only", pool.Name, pool.Namespace, k.namespace)
	case pool.Namespace != claim.Namespace:
		s.Pool, s.Claim.Tenant, s.Claim.Name = pool, claim.Namespace, claim.NameInPool()
	}
	if claim.Status.Address != nil {
		s.Claim.Bound = claim.Status.Address.Name
	}
	s.Claim.Reported = claim.Status.ErrorMessage == nil && s.Claim.Bound != ""
	return s, nil
}

// Has implements Kind.
func (k ipClaims) Has(ctx context.Context, address *ipamv1.IPAddress, live bool) (bool, error) {
	claim, reader := &ipamv1.IPClaim{}, client.Reader(k.client)
	if live {
		reader = k.live
	}
	key := address.ClaimKey()
	if !k.isServed(key.Namespace) {
		reader = k.live
	}
	if err := reader.Get(ctx, key, claim); outcome.IsGone(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading IPClaim %s: %w", key, err)
	}
	bound := ""
	if claim.Status.Address != nil {
		bound = claim.Status.Address.Name
	}
	return Has(ctx, reader, address, claim, bound)
}

// Unseen implements Kind.
func (ipClaims) Unseen(context.Context, *Subject) (netip.Addr, error) { return netip.Addr{}, nil }

// servedReference reports whether a reference can mean an IPPool: group and kind count where they are stated.
func servedReference(ref ipamv1.ObjectReference) bool {
	if ref.Kind != "" && ref.Kind != ipamv1.IPPoolKind {
		return false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return ref.APIVersion == "" || err == nil && gv.Group == ipamv1.GroupVersion.Group
}

// Publish implements Kind.
func (k ipClaims) Publish(ctx context.Context, s *Subject, address *ipamv1.IPAddress) error {
	claim := s.Object.(*ipamv1.IPClaim)
	before := claim.DeepCopy()
	claim.Status.Address = &ipamv1.ObjectReference{Name: address.Name, Namespace: address.Namespace}
	claim.Status.IPAddress = new(address.Spec.Address)
	claim.Status.Prefix, claim.Status.Gateway, claim.Status.DNSServers = address.Spec.Prefix, address.Spec.Gateway, address.Spec.DNSServers
	claim.Status.ErrorMessage = nil
	claim.Status.ObservedGeneration = claim.Generation
	meta.SetStatusCondition(&claim.Status.Conditions, setplan.Ready(claim, setplan.Unreported(claim)))
	if s.Claim.Reported && s.Claim.Bound == address.Name {
		return nil
	}
	return k.patchStatus(ctx, claim, before)
}

// Refuse implements Kind.
func (k ipClaims) Refuse(ctx context.Context, s *Subject, why allocate.Why, refusal allocate.Refuse) (bool, error) {
	claim := s.Object.(*ipamv1.IPClaim)
	before := claim.DeepCopy()
	claim.Status.Address, claim.Status.IPAddress = nil, nil
	claim.Status.Prefix, claim.Status.Gateway, claim.Status.DNSServers = 0, nil, nil
	claim.Status.ErrorMessage = nil
	if refusal.Error != "" {
		claim.Status.ErrorMessage = new(refusal.Error)
	}
	claim.Status.ObservedGeneration = claim.Generation
	changed := meta.SetStatusCondition(&claim.Status.Conditions, metav1.Condition{
		Type: ipamv1.ReadyCondition, Status: metav1.ConditionFalse, Reason: string(why),
		Message: refusal.Message, ObservedGeneration: claim.Generation,
	})
	same := before.Status.Address == nil && (before.Status.ErrorMessage == nil) == (refusal.Error == "") &&
		(before.Status.ErrorMessage == nil || *before.Status.ErrorMessage == refusal.Error)
	if same && (!changed || s.AlreadyRefused(refusal)) {
		return false, nil
	}
	return true, k.patchStatus(ctx, claim, before)
}

// Retract implements Kind.
func (ipClaims) Retract(context.Context, *Subject, string) error { return nil }

// patchStatus writes the difference under the resourceVersion of the claim. It is not an apply: a status that was written
// before this operator ran has another owner, and an apply could not clear its errorMessage.
func (k ipClaims) patchStatus(ctx context.Context, claim, before *ipamv1.IPClaim) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := k.client.Status().Patch(ctx, claim, patch, client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing the status of IPClaim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	return err
}
