// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// observation is what a pass over a pool rests on.
type observation struct {
	// began is when the pass began to read.
	began  time.Time
	layout *allocate.Layout
	// holders maps the name of a claim to its address.
	holders map[string]ipamv1.IPAddressStr
	used    map[netip.Addr]struct{}
	// prefixes are those in use.
	prefixes map[netip.Prefix]struct{}
	// external is what an inventory says that others have.
	external []netip.Prefix
	// addresses says that an address of the pool exists. For a pool that is being deleted the API server was asked.
	addresses bool
	// foreign says that the pool is being deleted, and its addresses are of another group.
	foreign bool
	cluster *unstructured.Unstructured
	// overlap is a pool that hands out the same addresses.
	overlap overlap
	// cooling counts the addresses that were released and stay taken for a time, and nextFree is when the first of them is free.
	cooling  int
	nextFree time.Time
}

func (r *Reconciler) observe(ctx context.Context, pool *ipamv1.IPPool) (observation, error) {
	o := observation{
		began:   r.Clock.Now(),
		layout:  r.Layouts.Of(pool),
		holders: map[string]ipamv1.IPAddressStr{}, used: map[netip.Addr]struct{}{}, prefixes: map[netip.Prefix]struct{}{},
		overlap:  r.near.of(client.ObjectKeyFromObject(pool)),
		external: r.External(client.ObjectKeyFromObject(pool)),
	}
	list := &ipamv1.IPAddressList{}
	err := r.Client.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingFields{engine.AddressByPool: pool.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return o, fmt.Errorf("listing the addresses of IPPool %s: %w", client.ObjectKeyFromObject(pool), err)
	}
	for i := range list.Items {
		o.add(&list.Items[i])
	}
	if o.addresses = len(list.Items) > 0; !o.addresses && !pool.DeletionTimestamp.IsZero() {
		if o.addresses, err = r.hasAddresses(ctx, pool); err != nil {
			return o, err
		}
	}
	if !o.addresses && !pool.DeletionTimestamp.IsZero() {
		if o.foreign, err = r.HasForeign(ctx, client.ObjectKeyFromObject(pool)); err != nil {
			return o, err
		}
		o.addresses = o.foreign
	}
	if name := pool.Spec.ClusterName; name != nil && *name != "" {
		o.cluster, err = r.Clusters.Get(ctx, types.NamespacedName{Namespace: pool.Namespace, Name: *name})
	}
	return o, err
}

// add takes an address over. Where claims of two kinds have one name, the IPClaim stands under it.
func (o *observation) add(address *ipamv1.IPAddress) {
	if ip, err := allocate.ParseAddr(string(address.Spec.Address)); err == nil && address.Spec.PrefixLength == 0 {
		o.used[ip] = struct{}{}
	} else if prefix, perr := ip.Prefix(address.Spec.PrefixLength); err == nil && perr == nil {
		o.prefixes[prefix] = struct{}{}
	}
	released := engine.ReleasedAt(address)
	if free := released.Add(o.layout.CoolDown); !released.IsZero() && free.After(o.began) { // otherwise its claim has it still, or it is on its way out
		o.cooling++
		if o.nextFree.IsZero() || free.Before(o.nextFree) {
			o.nextFree = free
		}
	}
	claim := address.ClaimInPool()
	if _, ok := o.holders[claim]; ok && engine.ClaimKind(address) != ipamv1.IPClaimKind {
		return
	}
	if address.Spec.Claim.Name != "" {
		o.holders[claim] = address.Spec.Address
	}
}

// hasAddresses asks the API server: a pool must not go away because the cache is behind.
func (r *Reconciler) hasAddresses(ctx context.Context, pool *ipamv1.IPPool) (bool, error) {
	for token := ""; ; {
		list := &ipamv1.IPAddressList{}
		if err := r.Live.List(ctx, list, client.InNamespace(pool.Namespace), client.Limit(500), client.Continue(token)); err != nil {
			return false, fmt.Errorf("listing the addresses of namespace %s: %w", pool.Namespace, err)
		}
		for i := range list.Items {
			if list.Items[i].Spec.Pool.Name == pool.Name {
				return true, nil
			}
		}
		if token = list.Continue; token == "" {
			return false, nil
		}
	}
}
