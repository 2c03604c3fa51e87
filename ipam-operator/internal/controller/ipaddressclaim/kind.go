// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ipaddressclaim serves the IPAddressClaims of Cluster API from the same pools as IPClaims.
//
// An address of either kind is locked by one object, an IPAddress of ipam.metal3.io, so that it is never given to two
// claims of different kinds. The IPAddress of ipam.cluster.x-k8s.io is made behind that lock and has its name.
package ipaddressclaim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// Names of the contract.
const (
	// Group of the kinds of the contract.
	Group = "ipam.cluster.x-k8s.io"
	// ClaimKind asks for an address.
	ClaimKind = "IPAddressClaim"
	// AddressKind is an address that a claim has.
	AddressKind = "IPAddress"
	// FieldOwner is the name that writes of this controller carry.
	FieldOwner = "ipam-operator/ipaddressclaim"
)

// addressByClaim is the cache index that finds addresses by the name of their claim.
const addressByClaim = "spec.claimRef"

// Kinds are the versions of the contract's kinds that the API server prefers.
type Kinds struct{ Claim, Address schema.GroupVersionKind }

// claims is the kind IPAddressClaim.
type claims struct {
	kinds  Kinds
	cache  client.Reader
	live   client.Reader
	client client.Client
	census engine.Census[unstructured.Unstructured]
}

// Claims serves IPAddressClaim: cached reads, live reads, writes.
func Claims(kinds Kinds, cache, live client.Reader, c client.Client) engine.Kind {
	return &claims{kinds: kinds, cache: cache, live: live, client: c}
}

// Name implements engine.Kind.
func (*claims) Name() string { return ClaimKind }

// Get implements engine.Kind. Only claims whose pool is an IPPool of ipam.metal3.io are served.
func (k *claims) Get(ctx context.Context, name types.NamespacedName) (*engine.Subject, error) {
	claim := object(k.kinds.Claim)
	if err := k.cache.Get(ctx, name, claim); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	pool, ok := servedPool(claim)
	if !ok && !slices.Contains(claim.GetFinalizers(), ipamv1.ContractClaimFinalizer) {
		return nil, nil
	}
	claim = claim.DeepCopy()
	s := engine.NewSubject(claim, claim.GetAPIVersion(), ClaimKind, ipamv1.ContractClaimFinalizer)
	if !ok {
		s.Claim.Unserved = true
		s.Foreign = fmt.Sprintf("The claim names a pool of kind %s of %s, which ipam-operator does not serve",
			text(claim, "spec", "poolRef", "kind"), text(claim, "spec", "poolRef", "apiGroup"))
	}
	s.Pool = types.NamespacedName{Namespace: claim.GetNamespace(), Name: pool}
	s.FinalizerFirst = true
	s.Cluster = text(claim, "spec", "clusterName")
	if s.Cluster == "" {
		s.Cluster = claim.GetLabels()[ipamv1.ClusterNameLabel]
	}
	s.Claim.PrefixLength = engine.AskedPrefixLength(claim)
	s.Claim.NeedsCluster, s.Claim.NeedsPrefix = true, s.Claim.PrefixLength == 0
	s.Claim.Bound = text(claim, "status", "addressRef", "name")
	address, err := k.addressOf(ctx, claim)
	if err != nil || address == nil {
		return s, err
	}
	s.Claim.Held, _ = allocate.ParseAddr(text(address, "spec", "address"))
	s.Claim.Reported = s.Claim.Bound == address.GetName() && !isUnowned(address)
	return s, nil
}

// Has implements engine.Kind.
func (k *claims) Has(ctx context.Context, lock *ipamv1.IPAddress, live bool) (bool, error) {
	reader := k.cache
	if live {
		reader = k.live
	}
	claim, err := k.read(ctx, reader, lock.ClaimKey())
	if claim == nil || err != nil {
		return false, err
	}
	return engine.Has(ctx, reader, lock, claim, text(claim, "status", "addressRef", "name"))
}

// read is a claim by what a reader knows; nil if it is gone.
func (k *claims) read(ctx context.Context, reader client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	claim := object(k.kinds.Claim)
	if err := reader.Get(ctx, key, claim); outcome.IsGone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", ClaimKind, key, err)
	}
	return claim, nil
}

// addressOf is the address that the contract's own objects say a claim has; nil means none. One that was deleted is the claim's for as long as its finalizer keeps it, unless a
// mover took it away.
func (k *claims) addressOf(ctx context.Context, claim client.Object) (*unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(k.kinds.Address)
	err := k.cache.List(ctx, list, client.InNamespace(claim.GetNamespace()), client.MatchingFields{addressByClaim: claim.GetName()})
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s %s: %w", ClaimKind, claim.GetName(), err)
	}
	return addressAmong(list.Items, claim), nil
}

// Unseen implements engine.Kind: a claim that came from another management cluster may have an address that was made before there were locks, and that the watch does not show yet.
func (k *claims) Unseen(ctx context.Context, s *engine.Subject) (netip.Addr, error) {
	all, err := k.census.Of(ctx, s.Object.GetNamespace(), func(ctx context.Context, from ...client.ListOption) ([]unstructured.Unstructured, string, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(k.kinds.Address)
		err := k.live.List(ctx, list, from...)
		return list.Items, list.GetContinue(), err
	})
	if err != nil {
		return netip.Addr{}, err
	}
	address := addressAmong(all, s.Object)
	if address == nil {
		return netip.Addr{}, nil
	}
	held, _ := allocate.ParseAddr(text(address, "spec", "address"))
	return held, nil
}

// addressAmong is the address of a claim among addresses of any claim; nil for none.
func addressAmong(all []unstructured.Unstructured, claim client.Object) *unstructured.Unstructured {
	var deleted *unstructured.Unstructured
	for i := range all {
		address := &all[i]
		_, ours := servedPool(address)
		switch {
		case !ours || !owns(claim, address):
		case address.GetDeletionTimestamp().IsZero():
			return address
		case !capi.IsLeftBehind(address):
			deleted = address
		}
	}
	return deleted
}

// owns reports whether an address belongs to this claim and not to an earlier one of its name.
func owns(claim client.Object, address *unstructured.Unstructured) bool {
	for _, owner := range address.GetOwnerReferences() {
		if owner.Kind == ClaimKind && owner.UID != claim.GetUID() {
			return false
		}
	}
	return text(address, "spec", "claimRef", "name") == claim.GetName()
}

// Publish implements engine.Kind: the contract's own address, then the status.
func (k *claims) Publish(ctx context.Context, s *engine.Subject, lock *ipamv1.IPAddress) error {
	claim := s.Object.(*unstructured.Unstructured)
	if err := k.createAddress(ctx, claim, lock); err != nil {
		return err
	}
	if s.Claim.Reported && s.Claim.Bound == lock.Name {
		return nil
	}
	before := claim.DeepCopy()
	_ = unstructured.SetNestedField(claim.Object, lock.Name, "status", "addressRef", "name")
	if _, err := k.setReady(claim, metav1.ConditionTrue, ipamv1.ReasonAllocated, "The claim has "+string(lock.Spec.Address)); err != nil {
		return err
	}
	return k.patchStatus(ctx, claim, before)
}

// Refuse implements engine.Kind. A claim whose Cluster is missing is left alone altogether, as the contract demands.
func (k *claims) Refuse(ctx context.Context, s *engine.Subject, why allocate.Why, refusal allocate.Refuse) (bool, error) {
	if why == allocate.WhyClusterNotFound {
		return false, nil
	}
	claim := s.Object.(*unstructured.Unstructured)
	before := claim.DeepCopy()
	unstructured.RemoveNestedField(claim.Object, "status", "addressRef")
	changed, err := k.setReady(claim, metav1.ConditionFalse, string(why), refusal.Message)
	if err != nil || !changed && s.Claim.Bound == "" {
		return false, err
	}
	return true, k.patchStatus(ctx, claim, before)
}

// Retract implements engine.Kind: the contract's own address goes before its lock.
func (k *claims) Retract(ctx context.Context, s *engine.Subject, name string) error {
	key := types.NamespacedName{Namespace: s.Object.GetNamespace(), Name: name}
	address := object(k.kinds.Address)
	if err := k.live.Get(ctx, key, address); outcome.IsGone(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading address %s: %w", key, err)
	}
	if !owns(s.Object, address) {
		return nil
	}
	return k.remove(ctx, address)
}

// remove deletes an address and removes its finalizer.
func (k *claims) remove(ctx context.Context, address *unstructured.Unstructured) error {
	key, uid := client.ObjectKeyFromObject(address), address.GetUID()
	if address.GetDeletionTimestamp().IsZero() {
		err := k.client.Delete(ctx, address, client.Preconditions{UID: &uid})
		if outcome.IsGone(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("deleting address %s: %w", key, err)
		}
	}
	return k.unprotect(ctx, address)
}

// unprotect takes the finalizer off an address, whatever else has changed of it.
func (k *claims) unprotect(ctx context.Context, address *unstructured.Unstructured) error {
	key, uid := client.ObjectKeyFromObject(address), address.GetUID()
	before, after := address.GetFinalizers(), []string{}
	for _, finalizer := range before {
		if finalizer != ipamv1.ContractAddressFinalizer {
			after = append(after, finalizer)
		}
	}
	if len(after) == len(before) {
		return nil
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": uid},
		{"op": "test", "path": "/metadata/finalizers", "value": before},
		{"op": "replace", "path": "/metadata/finalizers", "value": after},
	})
	if err != nil {
		return fmt.Errorf("writing the patch of address %s: %w", key, err)
	}
	err = k.client.Patch(ctx, address, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(FieldOwner))
	if outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("removing the finalizer of address %s: %w", key, err)
	}
	return nil
}

func (k *claims) patchStatus(ctx context.Context, claim, before *unstructured.Unstructured) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := k.client.Status().Patch(ctx, claim, patch, client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("writing the status of %s %s: %w", ClaimKind, claim.GetName(), err)
	}
	return err
}

// generations is the first version of the contract whose conditions have an observedGeneration.
const generations = "v1beta2"

// setReady sets the condition Ready and reports whether it changed.
func (k *claims) setReady(claim *unstructured.Unstructured, status metav1.ConditionStatus, reason, message string) (bool, error) {
	var held struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if content, ok, _ := unstructured.NestedMap(claim.Object, "status"); ok {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &held); err != nil {
			return false, fmt.Errorf("reading the conditions of %s %s: %w", ClaimKind, claim.GetName(), err)
		}
	}
	ready := metav1.Condition{Type: ipamv1.ReadyCondition, Status: status, Reason: reason, Message: message}
	if version.CompareKubeAwareVersionStrings(k.kinds.Claim.Version, generations) >= 0 {
		ready.ObservedGeneration = claim.GetGeneration()
	}
	changed := meta.SetStatusCondition(&held.Conditions, ready)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&held)
	if err != nil {
		return false, fmt.Errorf("writing the conditions of %s %s: %w", ClaimKind, claim.GetName(), err)
	}
	return changed, unstructured.SetNestedField(claim.Object, content["conditions"], "status", "conditions")
}

// servedPool is the name of the IPPool that a claim or an address refers to; false means that it refers to another kind of pool.
func servedPool(obj *unstructured.Unstructured) (string, bool) {
	kind, group := text(obj, "spec", "poolRef", "kind"), text(obj, "spec", "poolRef", "apiGroup")
	return text(obj, "spec", "poolRef", "name"), kind == ipamv1.IPPoolKind && group == ipamv1.GroupVersion.Group
}

func object(kind schema.GroupVersionKind) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind)
	return obj
}

func text(obj *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(obj.Object, path...)
	return value
}
