// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddressclaim

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// sweep removes the contract's own addresses that name a claim and that it does not have: it went away by force, or another replica made the address
// while it was given back.
func (c *Controller) sweep(ctx context.Context, claim types.NamespacedName) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.kinds.Address)
	err := c.cache.List(ctx, list, client.InNamespace(claim.Namespace), client.MatchingFields{addressByClaim: claim.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the addresses of %s %s: %w", ClaimKind, claim, err)
	}
	for i := range list.Items {
		address := &list.Items[i]
		if !c.claims.Filter.Selects(address) {
			continue
		}
		stray, err := c.kind.isStray(ctx, address)
		if err != nil {
			return err
		}
		if !stray {
			continue
		}
		hold, err := c.hold(ctx, address)
		if err != nil {
			return err
		}
		if hold == allocate.HeldPaused {
			c.claims.HoldUp(claim)
			continue
		}
		ctrl.LoggerFrom(ctx).Info("Removed an address that no claim has", "IPAddress", address.GetName())
		if err := c.kind.remove(ctx, address.DeepCopy()); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) hold(ctx context.Context, address *unstructured.Unstructured) (allocate.Hold, error) {
	pool, name := &ipamv1.IPPool{}, text(address, "spec", "poolRef", "name")
	err := c.cache.Get(ctx, types.NamespacedName{Namespace: address.GetNamespace(), Name: name}, pool)
	if apierrors.IsNotFound(err) {
		pool = nil
	} else if err != nil {
		return allocate.NotHeld, fmt.Errorf("reading IPPool %s: %w", name, err)
	}
	return c.claims.Clusters.Hold(ctx, address, pool, "")
}

// isStray reports whether an address is one of this operator and no claim has it. One without any owner whose claim is not there was restored and waits for it. Where the cache says so, the API server is asked.
func (k *claims) isStray(ctx context.Context, address *unstructured.Unstructured) (bool, error) {
	if _, ours := servedPool(address); !ours || !slices.Contains(address.GetFinalizers(), ipamv1.ContractAddressFinalizer) {
		return false, nil
	}
	if isUnowned(address) {
		key := types.NamespacedName{Namespace: address.GetNamespace(), Name: text(address, "spec", "claimRef", "name")}
		if claim, err := k.read(ctx, k.live, key); claim == nil || err != nil {
			return false, err
		}
	}
	for _, reader := range []client.Reader{k.cache, k.live} {
		if had, err := k.isHad(ctx, reader, address); had || err != nil {
			return false, err
		}
	}
	return true, nil
}

// isHad reports whether the claim that an address names is there and has it. Beside the one that its status names, a claim has those that are locked for it.
func (k *claims) isHad(ctx context.Context, reader client.Reader, address *unstructured.Unstructured) (bool, error) {
	key := types.NamespacedName{Namespace: address.GetNamespace(), Name: text(address, "spec", "claimRef", "name")}
	claim, err := k.read(ctx, reader, key)
	if claim == nil || err != nil {
		return false, err
	}
	if bound := text(claim, "status", "addressRef", "name"); !owns(claim, address) || bound == "" || bound == address.GetName() {
		return owns(claim, address), nil
	}
	lock := &ipamv1.IPAddress{}
	if err := reader.Get(ctx, client.ObjectKeyFromObject(address), lock); outcome.IsGone(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading IPAddress %s: %w", address.GetName(), err)
	}
	return engine.ClaimKind(lock) == ClaimKind && lock.Spec.Claim.Name == key.Name, nil
}
