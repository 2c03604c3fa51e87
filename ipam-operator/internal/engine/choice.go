// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// choose reads how a claim chooses its pool.
func choose(s *Subject, claim *ipamv1.IPClaim) {
	selector, err := metav1.LabelSelectorAsSelector(claim.Spec.PoolSelector)
	if err != nil {
		s.Foreign, selector = fmt.Sprintf("poolSelector cannot be read: %v", err), labels.Nothing()
	}
	s.Choice = selector
}

// choosePool decides from which pool a claim is served that chooses one by labels: the one that it has an address of, the one that has an address for it, the one that keeps
// the address of a former claim of its name, or the first by name that is not paused and has something free; where none has, the first of those that will serve it when something is
// given back: a claim that waits for another one is not woken then.
func (o *observer) choosePool(ctx context.Context, subject *Subject) error {
	if subject.Choice == nil {
		return nil
	}
	if pool, err := o.poolOfOwned(ctx, subject); err != nil || pool != "" {
		subject.Pool.Name = pool
		return err
	}
	pools := &ipamv1.IPPoolList{}
	err := o.Client.List(ctx, pools, client.InNamespace(subject.Pool.Namespace), client.MatchingLabelsSelector{Selector: subject.Choice}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the pools of %s %s: %w", subject.Kind, subject.Key(), err)
	}
	slices.SortFunc(pools.Items, func(a, b ipamv1.IPPool) int { return cmp.Compare(a.Name, b.Name) })
	keeping, err := o.keeping(ctx, subject, pools.Items)
	if err != nil {
		return err
	}
	best := -1
	for i := range pools.Items {
		if rank := o.rank(subject, &pools.Items[i], keeping); rank > best {
			best, subject.Pool.Name = rank, pools.Items[i].Name
		}
	}
	if best < 0 && subject.Foreign == "" {
		subject.Foreign = "no IPPool of the namespace has the labels that poolSelector asks for"
	}
	return nil
}

// keeping are the names of the pools that keep the address of a former claim of this kind and name, and can give it to the claim.
func (o *observer) keeping(ctx context.Context, subject *Subject, pools []ipamv1.IPPool) (map[string]bool, error) {
	if subject.Claim.Deleting || !slices.ContainsFunc(pools, func(pool ipamv1.IPPool) bool { return allocate.KeptFor(&pool.Spec) > 0 }) {
		return nil, nil
	}
	made := o.Index.MadeForName(subject.name()) // before the cache: the watch may show one meanwhile
	list := &ipamv1.IPAddressList{}
	err := o.Client.List(ctx, list, client.InNamespace(subject.Pool.Namespace),
		client.MatchingFields{AddressByClaim: ClaimIndex(subject.Kind, subject.Key())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s %s: %w", subject.Kind, subject.Key(), err)
	}
	out := map[string]bool{}
	defer func() { subject.Pool.Name, subject.PoolUID = "", "" }()
	for i := range pools {
		pool := &pools[i]
		subject.Pool.Name, subject.PoolUID = pool.Name, pool.UID
		kept := made
		for j := range list.Items {
			if o.isKept(&list.Items[j], subject, pool) {
				kept = append(kept, recordOf(&list.Items[j]))
			}
		}
		layout := o.Layouts.Of(pool)
		out[pool.Name] = allocate.KeptFor(&pool.Spec) > 0 && slices.ContainsFunc(kept, func(r space.Record) bool {
			return r.Pool.Name == pool.Name && layout.Gives(r.IP, r.PrefixLength, subject.Claim.Name)
		})
	}
	return out, nil
}

// rank is how well a pool serves a claim that any pool would do for.
func (o *observer) rank(subject *Subject, pool *ipamv1.IPPool, keeping map[string]bool) int {
	name, bits := client.ObjectKeyFromObject(pool), subject.Claim.PrefixLength
	free, layout := o.Index.Free(name, bits)
	if layout == nil || !pool.DeletionTimestamp.IsZero() {
		return 0
	}
	queue := subject.queue()
	queue.Pool = name
	if asked, ok := allocate.Asked(layout, subject.Claim); ok {
		if reserved, isReserved := layout.Reserved(subject.Claim.Name); isReserved && reserved == asked {
			return 4
		}
		if _, has := layout.NetworkOf(asked, bits); has {
			return 3
		}
		return 0
	}
	isFree := int64(o.Line.Ahead(queue, subject.waiter())) < free
	switch {
	case keeping[pool.Name], isFree && layout.Gives(subject.Claim.Intended, bits, subject.Claim.Name):
		return 3
	case capi.IsPaused(pool), !layout.HasPrefixes(bits):
		return 0
	case isFree:
		return 2
	default:
		return 1
	}
}

// poolOfOwned is the pool of an address that a claim has already; empty where it has none.
func (o *observer) poolOfOwned(ctx context.Context, subject *Subject) (string, error) {
	owned := []client.ListOption{client.InNamespace(subject.Pool.Namespace), client.MatchingFields{AddressByClaim: ClaimIndex(subject.Kind, subject.Key())}}
	list := &ipamv1.IPAddressList{}
	if err := o.Client.List(ctx, list, append(owned, client.UnsafeDisableDeepCopy)...); err != nil {
		return "", fmt.Errorf("listing the addresses of %s %s: %w", subject.Kind, subject.Key(), err)
	}
	pool := ""
	defer func() { subject.Pool.Name, subject.PoolUID = "", "" }()
	for i := range list.Items {
		of := &ipamv1.IPPool{}
		key := types.NamespacedName{Namespace: list.Items[i].Namespace, Name: list.Items[i].Spec.Pool.Name}
		if err := o.Client.Get(ctx, key, of); client.IgnoreNotFound(err) != nil {
			return "", fmt.Errorf("reading IPPool %s: %w", key, err)
		}
		subject.Pool.Name, subject.PoolUID = key.Name, of.UID
		if isOwner(&list.Items[i], subject) && (pool == "" || list.Items[i].Name == subject.Claim.Bound) {
			pool = list.Items[i].Spec.Pool.Name
		}
	}
	if pool != "" {
		return pool, nil
	}
	if made, ok := o.Index.MadeFor(subject.UID()); ok {
		return made.Pool.Name, nil
	}
	if subject.Claim.Bound == "" {
		return "", nil
	}
	live, err := o.live(ctx, subject, subject.Claim.Bound)
	if live == nil || err != nil {
		return "", err
	}
	return live.Spec.Pool.Name, nil
}

// pendingChoices are the claims that have no address, or are being deleted, and choose their pool by labels that a pool has. A pool that is gone has none.
func (w *waitlist) pendingChoices(ctx context.Context, pool types.NamespacedName) []ipamv1.IPClaim {
	none := types.NamespacedName{Namespace: pool.Namespace}
	claims := w.pending(ctx, pool.Namespace, client.MatchingFields{claimPendingInPool: none.String()})
	if len(claims) == 0 {
		return nil
	}
	obj := &ipamv1.IPPool{}
	if err := w.Client.Get(ctx, pool, obj); client.IgnoreNotFound(err) != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Pool could not be read from the cache")
	}
	return slices.DeleteFunc(claims, func(claim ipamv1.IPClaim) bool {
		selector, err := metav1.LabelSelectorAsSelector(claim.Spec.PoolSelector)
		return err != nil || !selector.Matches(labels.Set(obj.Labels))
	})
}
