// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// poolOwner is the UID of the pool that owns an address; empty where none does.
func poolOwner(address *ipamv1.IPAddress) types.UID {
	for _, owner := range address.OwnerReferences {
		if owner.Kind == ipamv1.IPPoolKind && owner.Name == address.Spec.Pool.Name {
			return owner.UID
		}
	}
	return ""
}

// RestoredFor is how long an address that was restored with its owner references waits for its claim after it was deleted.
const RestoredFor = time.Hour

// IsOfEarlierPool reports whether an earlier pool of the name that an address states owns it: it was restored with its owner references, or its pool was. The garbage collector
// deletes it where its claim is not restored yet.
func IsOfEarlierPool(address *ipamv1.IPAddress, pool *ipamv1.IPPool) bool {
	owner := poolOwner(address)
	return owner != "" && pool.UID != "" && owner != pool.UID
}

// namesAnotherClaim reports whether the claim of the name that an address states has another UID than its owner.
func namesAnotherClaim(address *ipamv1.IPAddress, claim types.UID) bool {
	owner := claimOwner(address)
	return owner != "" && owner != claim
}

// isRestored reports whether an address was restored with its owner references: both the pool and the claim of the names that it states have other UIDs than its
// owners. Where only the claim has another one, it was deleted and created again. The garbage collector deletes what has no owner: an address that is being deleted goes to a
// claim that names no other.
func isRestored(address *ipamv1.IPAddress, claim, pool types.UID, bound string) bool {
	owner := poolOwner(address)
	if pool == "" || owner == "" || owner == pool || !namesAnotherClaim(address, claim) {
		return false
	}
	return address.DeletionTimestamp.IsZero() || bound == "" || bound == address.Name
}

// isRestored reports whether an address of the claim's name was restored with its owner references. One of another pool is that of a former claim of the name.
func (s *Subject) isRestored(address *ipamv1.IPAddress) bool {
	return address.Spec.Pool.Name == s.Pool.Name && isRestored(address, s.UID(), s.PoolUID, s.Claim.Bound)
}

// addressOf is an address as the plan sees it. One that was restored, with its owner references or without, is what the claim had before.
func (s *Subject) addressOf(address *ipamv1.IPAddress) allocate.Address {
	out := addressOf(address)
	if s.isRestored(address) {
		out.Unowned, out.Restored = true, address.DeletionTimestamp.IsZero()
	}
	return out
}

// Has reports whether an address that names a claim is its own: it belongs to it, or was restored with its owner references. While its pool is not there, that is not known,
// and it counts as restored.
func Has(ctx context.Context, reader client.Reader, address *ipamv1.IPAddress, claim client.Object, bound string) (bool, error) {
	if belongs(address, claim, bound) {
		return true, nil
	}
	if poolOwner(address) == "" || !namesAnotherClaim(address, claim.GetUID()) {
		return false, nil
	}
	pool, key := &ipamv1.IPPool{}, types.NamespacedName{Namespace: address.Namespace, Name: address.Spec.Pool.Name}
	if err := reader.Get(ctx, key, pool); outcome.IsGone(err) {
		return address.DeletionTimestamp.IsZero(), nil
	} else if err != nil {
		return false, fmt.Errorf("reading IPPool %s: %w", key, err)
	}
	return isRestored(address, claim.GetUID(), pool.UID, bound), nil
}

// dropFormerOwners removes the owner references to an earlier pool and an earlier claim of the names that an address states.
func dropFormerOwners(address *ipamv1.IPAddress) {
	address.OwnerReferences = slices.DeleteFunc(slices.Clone(address.OwnerReferences), func(owner metav1.OwnerReference) bool {
		return owner.Kind == ipamv1.IPPoolKind && owner.Name == address.Spec.Pool.Name || owner.Kind == ClaimKind(address) && owner.Name == address.Spec.Claim.Name
	})
}
