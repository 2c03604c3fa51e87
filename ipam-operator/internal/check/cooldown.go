// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// coolDownSlack is for how long beyond its time a released address may be there: the operator may just be starting.
const coolDownSlack = time.Minute

// coolDownFindings looks for released addresses that are there for longer than their pool keeps them. Pools that a pause may hold up are left out, as the
// Cluster is not read.
func (o *objects) coolDownFindings(now time.Time) []Finding {
	var out []Finding
	for _, key := range sorted(o.addresses) {
		a := o.addresses[key]
		pool, ok := o.pools[types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}]
		if !ok || pool.Spec.ClusterName != nil || !pool.DeletionTimestamp.IsZero() || capi.IsPaused(pool) || a.DeletionTimestamp.IsZero() || capi.IsLeftBehind(a) || o.isHeld(a) ||
			!slices.Contains(a.Finalizers, ipamv1.IPAddressFinalizer) {
			continue
		}
		coolDown := allocate.CoolDown(pool)
		if engine.IsOfEarlierPool(a, pool) {
			coolDown = max(coolDown, engine.RestoredFor)
		}
		if now.Sub(engine.ReleasedAt(a)) > coolDown+coolDownSlack {
			out = append(out, Finding{Orphan, "IPAddress " + key.String(), fmt.Sprintf("was released and is kept for longer than the %s of IPPool %s", coolDown, pool.Name)})
		}
	}
	return out
}

// isHeld reports whether the claim that owns an address is there.
func (o *objects) isHeld(a *ipamv1.IPAddress) bool {
	key := a.ClaimKey()
	var claim client.Object
	if c, ok := o.claims[key]; ok && kindOf(a) == ipamv1.IPClaimKind {
		claim = c
	} else if c, ok := o.contract.claims[key]; ok && kindOf(a) == contractClaimKind {
		claim = c
	}
	if claim != nil && a.Tenant() != "" {
		return tenantOwner(a) == claim.GetUID()
	}
	return claim != nil && slices.ContainsFunc(a.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID == claim.GetUID() })
}
