// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// readOtherNamespaces reads what the objects of the namespace refer to in others: claims that addresses belong to, and addresses that claims have.
func (o *objects) readOtherNamespaces(ctx context.Context, reader client.Reader) error {
	for _, a := range o.addresses {
		if _, known := o.claims[a.ClaimKey()]; known || a.Tenant() == "" {
			continue
		}
		claim := &ipamv1.IPClaim{}
		if err := reader.Get(ctx, a.ClaimKey(), claim); err == nil {
			o.claims[a.ClaimKey()] = claim
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading IPClaim %s: %w", a.ClaimKey(), err)
		}
	}
	for _, c := range o.claims {
		if c.Status.Address == nil || c.PoolKey().Namespace == c.Namespace {
			continue
		}
		at := types.NamespacedName{Namespace: c.PoolKey().Namespace, Name: c.Status.Address.Name}
		address := &ipamv1.IPAddress{}
		if err := reader.Get(ctx, at, address); err == nil {
			o.elsewhere[at] = address
		} else if !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading IPAddress %s: %w", at, err)
		}
	}
	return nil
}

// tenantOwner is the UID of the claim of another namespace that an address of its pool belongs to; empty for an address of the pool's own namespace, and for one that
// was restored.
func tenantOwner(a *ipamv1.IPAddress) types.UID {
	ofPool := func(owner metav1.OwnerReference) bool { return owner.Kind == ipamv1.IPPoolKind }
	if a.Tenant() == "" || !slices.ContainsFunc(a.OwnerReferences, ofPool) {
		return ""
	}
	return types.UID(a.Spec.Claim.UID)
}

// tenantFindings looks at what claims of other namespaces have of a pool: that they name it, and that no namespace has more than it may have.
func (o *objects) tenantFindings() []Finding {
	var out []Finding
	has := map[types.NamespacedName]map[string]int64{}
	for _, key := range sorted(o.addresses) {
		a := o.addresses[key]
		if a.Tenant() == "" {
			continue
		}
		pool := types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}
		if has[pool] == nil {
			has[pool] = map[string]int64{}
		}
		has[pool][a.Tenant()]++
		if claim, ok := o.claims[a.ClaimKey()]; ok && claim.PoolKey() != pool {
			out = append(out, Finding{Mismatch, "IPAddress " + key.String(), fmt.Sprintf("its IPClaim %s names IPPool %s", a.ClaimKey(), claim.PoolKey())})
		}
	}
	for _, key := range sorted(o.pools) {
		limit := o.pools[key].Spec.MaxAddressesPerNamespace
		for _, tenant := range slices.Sorted(maps.Keys(has[key])) {
			if n := has[key][tenant]; limit > 0 && n > limit {
				out = append(out, Finding{Mismatch, "IPPool " + key.String(), fmt.Sprintf("claims of namespace %s have %d of its addresses, and one namespace may have %d", tenant, n, limit)})
			}
		}
	}
	return out
}
