// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddressclaim

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// createAddress makes the contract's own address of a claim that has the lock, unless it is there.
func (k *claims) createAddress(ctx context.Context, claim *unstructured.Unstructured, lock *ipamv1.IPAddress) error {
	known := object(k.kinds.Address)
	if err := k.cache.Get(ctx, client.ObjectKeyFromObject(lock), known); err == nil && owns(claim, known) {
		if capi.IsLeftBehind(known) {
			// A move was cut off, and its Cluster goes on here: once this object is gone, the claim is looked at again and gets another.
			return k.unprotect(ctx, known.DeepCopy())
		}
		return k.own(ctx, claim, lock, known.DeepCopy())
	}
	if prefixOf(lock) == 0 {
		return fmt.Errorf("creating address %s: IPAddress %s has no prefix: write one into its spec", lock.Name, lock.Name)
	}
	address := k.newAddress(claim, lock)
	err := k.client.Create(ctx, address, client.FieldOwner(FieldOwner))
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating address %s: %w", lock.Name, err)
	}
	if err := k.live.Get(ctx, client.ObjectKeyFromObject(lock), known); err != nil {
		return fmt.Errorf("reading address %s: %w", lock.Name, err)
	}
	if !owns(claim, known) && text(known, "spec", "claimRef", "name") == claim.GetName() {
		return fmt.Errorf("creating address %s: that of an earlier claim is there still", lock.Name)
	}
	if !owns(claim, known) {
		return &engine.NameTakenError{Object: known, Group: Group}
	}
	return k.own(ctx, claim, lock, known)
}

// isUnowned reports whether an address was restored without its owners.
func isUnowned(address *unstructured.Unstructured) bool {
	return len(address.GetOwnerReferences()) == 0 && address.GetDeletionTimestamp().IsZero()
}

// own gives an address that was restored its owners and its finalizer, under its resourceVersion.
func (k *claims) own(ctx context.Context, claim *unstructured.Unstructured, lock *ipamv1.IPAddress, address *unstructured.Unstructured) error {
	if !isUnowned(address) {
		return nil
	}
	before, made := address.DeepCopy(), k.newAddress(claim, lock)
	address.SetOwnerReferences(made.GetOwnerReferences())
	controllerutil.AddFinalizer(address, ipamv1.ContractAddressFinalizer)
	err := k.client.Patch(ctx, address, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(FieldOwner))
	if err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("adopting address %s: %w", address.GetName(), err)
	}
	return err
}

// newAddress is the contract's own address: the claim is its controller, and both owners wait for it to be gone.
func (k *claims) newAddress(claim *unstructured.Unstructured, lock *ipamv1.IPAddress) *unstructured.Unstructured {
	address := object(k.kinds.Address)
	address.SetNamespace(lock.Namespace)
	address.SetName(lock.Name)
	address.SetLabels(claim.GetLabels())
	address.SetFinalizers([]string{ipamv1.ContractAddressFinalizer})
	owners := []metav1.OwnerReference{{
		APIVersion: claim.GetAPIVersion(), Kind: ClaimKind, Name: claim.GetName(), UID: claim.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
	}}
	for _, owner := range lock.OwnerReferences {
		if owner.Kind == ipamv1.IPPoolKind {
			owner.Controller, owner.BlockOwnerDeletion = new(false), new(true)
			owners = append(owners, owner)
		}
	}
	address.SetOwnerReferences(owners)
	spec := map[string]any{
		"claimRef": map[string]any{"name": claim.GetName()},
		"poolRef":  map[string]any{"apiGroup": ipamv1.GroupVersion.Group, "kind": ipamv1.IPPoolKind, "name": lock.Spec.Pool.Name},
		"address":  string(lock.Spec.Address),
		"prefix":   int64(prefixOf(lock)),
	}
	if lock.Spec.Gateway != nil && lock.Spec.PrefixLength == 0 {
		spec["gateway"] = string(*lock.Spec.Gateway)
	}
	address.Object["spec"] = spec
	return address
}

// prefixOf is the prefix that Cluster API reads: that of the network of an address, or the length of a prefix that was handed out whole.
func prefixOf(lock *ipamv1.IPAddress) int {
	return cmp.Or(lock.Spec.PrefixLength, lock.Spec.Prefix)
}
