// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipclaimset

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/setplan"
)

// observe reads what a decision rests on.
func (r *Reconciler) observe(ctx context.Context, claim *ipamv1.IPClaim) (setplan.Snapshot, error) {
	s := setplan.Snapshot{Claim: claim}
	var err error
	if s.Held, err = r.isHeld(ctx, claim, claim.PoolKey()); err != nil {
		return s, err
	}
	for _, address := range claim.Spec.AdditionalAddresses {
		entry := setplan.Entry{Address: address}
		if entry.Child, err = r.child(ctx, claim, address.Name); err != nil {
			return s, err
		}
		if entry.Pool, err = r.poolOf(ctx, claim, entry); err != nil {
			return s, err
		}
		pool := types.NamespacedName{}
		if address.Pool != nil {
			pool = types.NamespacedName{Namespace: cmp.Or(address.Pool.Namespace, claim.Namespace), Name: address.Pool.Name}
		}
		if entry.Held, err = r.isHeld(ctx, claim, pool); err != nil {
			return s, err
		}
		s.Entries = append(s.Entries, entry)
	}
	return s, nil
}

// isHeld reports whether nothing may be done for a claim in a pool. The name of the pool is empty where the claim chooses one.
func (r *Reconciler) isHeld(ctx context.Context, claim *ipamv1.IPClaim, name types.NamespacedName) (bool, error) {
	var pool *ipamv1.IPPool
	if name.Name != "" && (r.Namespace == "" || r.Namespace == name.Namespace) {
		pool = &ipamv1.IPPool{}
		if err := r.Client.Get(ctx, name, pool); apierrors.IsNotFound(err) {
			pool = nil
		} else if err != nil {
			return false, fmt.Errorf("reading IPPool %s: %w", name, err)
		}
	}
	hold, err := r.Clusters.Hold(ctx, claim, pool, "")
	return hold != allocate.NotHeld, err
}

// child is the IPClaim that has the name of the one for an address; nil where there is none.
func (r *Reconciler) child(ctx context.Context, claim *ipamv1.IPClaim, address string) (*ipamv1.IPClaim, error) {
	child := &ipamv1.IPClaim{}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: claim.AddressClaimName(address)}
	if err := r.Client.Get(ctx, key, child); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading IPClaim %s: %w", key, err)
	}
	return child, nil
}

// poolOf is where the address of an IPClaim comes from; nil where there is none. A claim that chooses its pool has it in its IPAddress, which is read once.
func (r *Reconciler) poolOf(ctx context.Context, claim *ipamv1.IPClaim, entry setplan.Entry) (*ipamv1.PoolReference, error) {
	if entry.Child == nil || entry.Child.Status.Address == nil {
		return nil, nil
	}
	has := *entry.Child.Status.Address
	for _, known := range claim.Status.Addresses {
		if known.Name == entry.Address.Name && known.Address == has && known.Pool != nil {
			return known.Pool, nil
		}
	}
	pool := &ipamv1.PoolReference{Name: entry.Child.Spec.Pool.Name}
	if in := entry.Child.PoolKey().Namespace; in != claim.Namespace {
		pool.Namespace = in
	}
	if pool.Name != "" {
		return pool, nil
	}
	address := &ipamv1.IPAddress{}
	key := types.NamespacedName{Namespace: claim.Namespace, Name: has.Name}
	err := r.Client.Get(ctx, key, address)
	if apierrors.IsNotFound(err) { // the watch of addresses may be behind that of claims
		err = r.Live.Get(ctx, key, address)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	pool.Name = address.Spec.Pool.Name
	return pool, nil
}
