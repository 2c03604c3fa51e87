// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/e2e/bench"
)

// Kinds of writes that serving claims comes to.
var (
	createClaim   = bench.Kind{Verb: "create", Resource: "ipclaims"}
	createAddress = bench.Kind{Verb: "create", Resource: "ipaddresses"}
	patchClaim    = bench.Kind{Verb: "patch", Resource: "ipclaims/status"}
	patchPool     = bench.Kind{Verb: "patch", Resource: "ippools/status"}
)

// barePool writes claims, addresses and statuses without an operator, as large as those of a pool that an operator served.
type barePool struct {
	w      *world
	pool   *ipamv1.IPPool
	claims []*ipamv1.IPClaim
	// indexes is what the status of the served pool shows.
	indexes map[string]ipamv1.IPAddressStr
}

// newBarePool creates a pool for n bare claims. The operator does not run any more.
func (w *world) newBarePool(ctx context.Context, like *ipamv1.IPPool, n int) (*barePool, error) {
	if err := w.user.Get(ctx, client.ObjectKeyFromObject(like), like); err != nil {
		return nil, fmt.Errorf("reading the pool: %w", err)
	}
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"}, Spec: *like.Spec.DeepCopy()}
	pool.Spec.NamePrefix = "bare"
	if err := w.user.Create(ctx, pool); err != nil {
		return nil, fmt.Errorf("creating a pool: %w", err)
	}
	return &barePool{w: w, pool: pool, claims: make([]*ipamv1.IPClaim, n), indexes: like.Status.Allocations}, nil
}

// write does one write of a kind to the n-th claim.
func (b *barePool) write(ctx context.Context, kind bench.Kind, item int) error {
	switch kind {
	case createClaim:
		b.claims[item] = newClaim(fmt.Sprintf("bare-%d", item), b.pool.Name)
		return b.w.plain.Create(ctx, b.claims[item])
	case createAddress:
		return b.w.plain.Create(ctx, b.address(item))
	case patchClaim:
		return b.publish(ctx, item)
	default:
		return b.report(ctx, item)
	}
}

func (b *barePool) address(item int) *ipamv1.IPAddress {
	claim := b.claims[item]
	ref := func(name string) ipamv1.ObjectReference {
		return ipamv1.ObjectReference{Name: name, Namespace: namespace}
	}
	ip := fmt.Sprintf("10.0.%d.%d", item/256, item%256)
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("bare-10-0-%d-%d", item/256, item%256), Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: b.pool.Name, UID: b.pool.UID},
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPClaimKind, Name: claim.Name, UID: claim.UID},
			},
		},
		Spec: ipamv1.IPAddressSpec{
			Address: ipamv1.IPAddressStr(ip), Pool: ref(b.pool.Name), Claim: ref(claim.Name),
			Prefix: b.pool.Spec.Prefix, Gateway: b.pool.Spec.Gateway, DNSServers: b.pool.Spec.DNSServers,
		},
	}
}

// publish writes the status that a served claim has, under the claim's resourceVersion.
func (b *barePool) publish(ctx context.Context, item int) error {
	claim := b.claims[item]
	before := claim.DeepCopy()
	claim.Status.Address = &ipamv1.ObjectReference{Name: b.address(item).Name, Namespace: namespace}
	claim.Status.ObservedGeneration = claim.Generation
	claim.Status.Conditions = []metav1.Condition{{
		Type: ipamv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonAllocated, ObservedGeneration: claim.Generation,
		Message: "The claim has 10.0.255.255", LastTransitionTime: metav1.Now(),
	}}
	return b.w.plain.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// report writes a status of the pool that differs from the one before.
func (b *barePool) report(ctx context.Context, item int) error {
	share := make(map[string]ipamv1.IPAddressStr, len(b.indexes))
	for claim, ip := range b.indexes {
		share[claim] = ip
		if len(share) > len(b.indexes)*(item+1)/len(b.claims) {
			break
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"indexes": share, "used": item, "lastUpdated": metav1.Now()}})
	if err != nil {
		return fmt.Errorf("writing a status: %w", err)
	}
	return b.w.plain.Status().Patch(ctx, b.pool.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}
