// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
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

// errNoIndexes says that the status of the served pool cannot be copied.
var errNoIndexes = errors.New("status.indexes of the served pool is empty: the bare writes would be smaller than the operator's")

// barePool writes claims, addresses and statuses without an operator, as large as those of a pool that an operator served. Writes of users have an
// administrator's identity, and those of the operator its ServiceAccount.
type barePool struct {
	w         *testEnv
	pool      *ipamv1.IPPool
	claims    []*ipamv1.IPClaim
	addresses []*ipamv1.IPAddress
	indexes   *indexes
}

// newBarePool creates a pool for n bare claims with the spec of a pool that the operator served. Its status shows as many claims as that pool showed when all of
// its claims were served. The operator does not run any more.
func (w *testEnv) newBarePool(ctx context.Context, like *ipamv1.IPPool, n int) (*barePool, error) {
	if len(like.Status.Allocations) == 0 {
		return nil, errNoIndexes
	}
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bare"}, Spec: *like.Spec.DeepCopy()}
	pool.Spec.NamePrefix = "bare"
	if err := w.user.Create(ctx, pool); err != nil {
		return nil, fmt.Errorf("creating a pool: %w", err)
	}
	addresses := make(map[string]ipamv1.IPAddressStr, n)
	for i := range n {
		addresses[bareName(i)] = bareAddress(i)
	}
	return &barePool{
		w: w, pool: pool, claims: make([]*ipamv1.IPClaim, n), addresses: make([]*ipamv1.IPAddress, n),
		indexes: newIndexes(addresses, len(like.Status.Allocations)),
	}, nil
}

// bareLike stops the operator and returns a bare pool for n claims that is like one of which the operator gave so many addresses.
func (w *testEnv) bareLike(ctx context.Context, pool *ipamv1.IPPool, given, n int) (*barePool, error) {
	served, err := w.servedPool(ctx, pool, given)
	if err != nil {
		return nil, err
	}
	w.StopOperator()
	return w.newBarePool(ctx, served, n)
}

// servedPool waits until the status of a pool shows so many addresses, and reads it. The operator may write that status later than those of claims.
func (w *testEnv) servedPool(ctx context.Context, pool *ipamv1.IPPool, given int) (*ipamv1.IPPool, error) {
	served := &ipamv1.IPPool{}
	return served, w.Await(ctx, patience, func() string {
		if err := w.user.Get(ctx, client.ObjectKeyFromObject(pool), served); err != nil {
			return err.Error()
		}
		if used := served.Status.Used; used == nil || *used != int64(given) {
			return fmt.Sprintf("the status of the pool does not show %d addresses", given)
		}
		return ""
	})
}

func bareName(item int) string { return fmt.Sprintf("bare-%d", item) }

func bareAddress(item int) ipamv1.IPAddressStr {
	return ipamv1.IPAddressStr(fmt.Sprintf("10.0.%d.%d", item/256, item%256))
}

// write does one write of a kind to the n-th claim.
func (b *barePool) write(ctx context.Context, kind bench.Kind, item int) error {
	switch kind {
	case createClaim:
		b.claims[item] = newClaim(bareName(item), b.pool.Name)
		return b.w.plainUser.Create(ctx, b.claims[item])
	case createAddress:
		b.addresses[item] = b.address(item)
		return b.w.plain.Create(ctx, b.addresses[item])
	case patchClaim:
		b.indexes.set(bareName(item), true)
		return b.publish(ctx, b.w.plain, item)
	default:
		return b.report(ctx, b.w.plain)
	}
}

func (b *barePool) address(item int) *ipamv1.IPAddress {
	claim := b.claims[item]
	ref := func(name string) ipamv1.ObjectReference {
		return ipamv1.ObjectReference{Name: name, Namespace: namespace}
	}
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("bare-10-0-%d-%d", item/256, item%256), Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: b.pool.Name, UID: b.pool.UID},
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPClaimKind, Name: claim.Name, UID: claim.UID},
			},
		},
		Spec: ipamv1.IPAddressSpec{
			Address: bareAddress(item), Pool: ref(b.pool.Name), Claim: ref(claim.Name),
			Prefix: b.pool.Spec.Prefix, Gateway: b.pool.Spec.Gateway, DNSServers: b.pool.Spec.DNSServers,
		},
	}
}

// publish writes the status that a served claim has, under the claim's resourceVersion.
func (b *barePool) publish(ctx context.Context, writer client.Client, item int) error {
	claim := b.claims[item]
	before := claim.DeepCopy()
	claim.Status = servedStatus(b.addresses[item], claim.Generation)
	return writer.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// servedStatus is the status that the operator writes to a claim that has an address.
func servedStatus(address *ipamv1.IPAddress, generation int64) ipamv1.IPClaimStatus {
	status := ipamv1.IPClaimStatus{
		Address: &ipamv1.ObjectReference{Name: address.Name, Namespace: address.Namespace}, IPAddress: new(address.Spec.Address),
		Prefix: address.Spec.Prefix, Gateway: address.Spec.Gateway, DNSServers: address.Spec.DNSServers, ObservedGeneration: generation,
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: ipamv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonAllocated, ObservedGeneration: generation,
		Message: "The claim has " + string(address.Spec.Address),
	})
	return status
}

// report writes what changed of the status of the pool, as the operator does.
func (b *barePool) report(ctx context.Context, writer client.Client) error {
	changed, used := b.indexes.change()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"indexes": changed, "used": used, "free": len(b.claims) - used, "lastUpdated": metav1.NewTime(time.Now()),
	}})
	if err != nil {
		return fmt.Errorf("writing a status: %w", err)
	}
	return writer.Status().Patch(ctx, b.pool.DeepCopy(), client.RawPatch(types.MergePatchType, patch))
}
