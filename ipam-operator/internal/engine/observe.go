// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// observer reads what decisions rest on.
type observer struct {
	*Deps
	waits  *waitlist
	census Census[ipamv1.IPAddress]
}

// observe reads what a decision rests on, all of it by name or by index.
func (o *observer) observe(ctx context.Context, subject *Subject) (allocate.Snapshot, error) {
	s := allocate.Snapshot{Claim: subject.Claim, Pool: allocate.Pool{Name: subject.Pool.Name}}
	if subject.Claim.Tenant != "" {
		s.Pool.Name = subject.Pool.String()
	}
	pool := &ipamv1.IPPool{}
	err := o.Client.Get(ctx, subject.Pool, pool)
	switch {
	case apierrors.IsNotFound(err):
		pool = nil
	case err != nil:
		return s, fmt.Errorf("reading IPPool %s: %w", subject.Pool, err)
	default:
		subject.PoolUID = pool.UID
		s.Pool.Found = subject.Foreign == ""
		s.Pool.Deleting = !pool.DeletionTimestamp.IsZero()
		s.Pool.Finalized = slices.Contains(pool.Finalizers, ipamv1.IPPoolFinalizer)
		if s.Pool.Allows, err = o.isAllowed(ctx, pool, subject); err != nil {
			return s, err
		}
	}
	o.waits.held.Expect(subject.Key(), subject.Pool.Namespace)
	hold, err := o.Clusters.Hold(ctx, subject.Object, pool, subject.Cluster)
	if err != nil {
		return s, err
	}
	s.Hold = hold
	o.waits.held.Note(subject.Key(), hold != allocate.NotHeld)
	if hold == allocate.HeldPaused {
		return s, nil
	}
	s.Owned, err = o.owned(ctx, subject)
	if err == nil && hold == allocate.NotHeld && len(s.Owned) == 0 && o.waits.held.IsSuspect(subject.Key()) {
		s.Owned, err = o.unseen(ctx, subject)
		s.Claim.Held = subject.Claim.Held
	}
	if err != nil || hold != allocate.NotHeld || len(s.Owned) > 0 || subject.Claim.Deleting {
		return s, err
	}
	s.NextFree = o.Index.NextFree(subject.Pool, o.Clock.Now())
	if s.Holder, err = o.holderOfAsked(ctx, subject); err != nil {
		return s, err
	}
	err = o.former(ctx, &s, subject, pool)
	return s, err
}

// holderOfAsked describes what has the one address that will do for a claim.
func (o *observer) holderOfAsked(ctx context.Context, subject *Subject) (string, error) {
	layout := o.Index.Layout(subject.Pool)
	if layout == nil || subject.Claim.Tenant != "" { // do not disclose what other claims of the pool have
		return "", nil
	}
	asked, ok := allocate.Asked(layout, subject.Claim)
	if !ok {
		return "", nil
	}
	address := &ipamv1.IPAddress{}
	key := types.NamespacedName{Namespace: subject.Pool.Namespace, Name: allocate.AddressName(layout.NamePrefix, asked)}
	if err := o.Client.Get(ctx, key, address); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	return holderOf(address, layout.CoolDown, o.Clock.Now()), nil
}

// holderOf says what has an address.
func holderOf(address *ipamv1.IPAddress, coolDown time.Duration, now time.Time) string {
	claim := ClaimKind(address) + " " + address.ClaimInPool()
	switch released := ReleasedAt(address); {
	case !released.IsZero() && released.Add(coolDown).After(now):
		return fmt.Sprintf("%s, which released it: it is free at %s", claim, released.Add(coolDown).UTC().Format(time.RFC3339))
	case IsByHand(address):
		return fmt.Sprintf("IPAddress %s, which reserves it", address.Name)
	default:
		return claim
	}
}

// owned are the addresses of a claim, oldest first: those that the cache shows, the one that this process has just made,
// and the one that the status names, if it is there.
func (o *observer) owned(ctx context.Context, subject *Subject) ([]allocate.Address, error) {
	list := &ipamv1.IPAddressList{}
	err := o.Client.List(ctx, list, client.InNamespace(subject.Pool.Namespace),
		client.MatchingFields{AddressByClaim: ClaimIndex(subject.Kind, subject.Key())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s %s: %w", subject.Kind, subject.Key(), err)
	}
	slices.SortFunc(list.Items, func(a, b ipamv1.IPAddress) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var out []allocate.Address
	for i := range list.Items {
		if isOwner(&list.Items[i], subject) {
			out = append(out, subject.addressOf(&list.Items[i]))
		}
	}
	known := func(name string) bool {
		return slices.ContainsFunc(out, func(a allocate.Address) bool { return a.Name == name })
	}
	if made, ok := o.Index.MadeFor(subject.UID()); ok && !known(made.Key.Name) {
		out = append(out, allocate.Address{Name: made.Key.Name, UID: string(made.UID), IP: made.IP})
	}
	if bound := subject.Claim.Bound; bound != "" && !known(bound) {
		live, err := o.live(ctx, subject, bound)
		if err != nil {
			return nil, err
		}
		if live != nil {
			out = append(out, subject.addressOf(live))
		}
	}
	return out, nil
}

// unseen are the addresses that a claim has by the API server. A claim that was held up may have come from another management cluster: its status is
// empty then, and another operator made its address, perhaps while a watch was behind. It must not get another.
func (o *observer) unseen(ctx context.Context, subject *Subject) ([]allocate.Address, error) {
	all, err := o.census.Of(ctx, subject.Pool.Namespace, func(ctx context.Context, from ...client.ListOption) ([]ipamv1.IPAddress, string, error) {
		list := &ipamv1.IPAddressList{}
		err := o.Live.List(ctx, list, from...)
		return list.Items, list.Continue, err
	})
	if err != nil {
		return nil, err
	}
	var out []allocate.Address
	for i := range all {
		if isOwner(&all[i], subject) {
			o.Index.Learn(recordOf(&all[i]), o.Clock.Now())
			out = append(out, subject.addressOf(&all[i]))
		}
	}
	if len(out) == 0 && !subject.Claim.Held.IsValid() {
		if subject.Claim.Held, err = o.Kind.Unseen(ctx, subject); err != nil {
			return nil, err
		}
	}
	if len(out) == 0 && !subject.Claim.Held.IsValid() { // otherwise a later pass needs it again, should this one not tell the claim of it
		o.waits.held.Trust(subject.Key())
	}
	return out, nil
}

// live reads an IPAddress from the API server; nil means that it is not there or belongs to another claim.
func (o *observer) live(ctx context.Context, subject *Subject, name string) (*ipamv1.IPAddress, error) {
	address := &ipamv1.IPAddress{}
	key := types.NamespacedName{Namespace: subject.Pool.Namespace, Name: name}
	if err := o.Live.Get(ctx, key, address); outcome.IsGone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	o.Index.Learn(recordOf(address), o.Clock.Now())
	if !isOwner(address, subject) {
		return nil, nil
	}
	return address, nil
}

// isOwner reports whether an address belongs to a claim.
func isOwner(address *ipamv1.IPAddress, subject *Subject) bool {
	return ClaimKind(address) == subject.Kind && address.ClaimKey() == subject.Key() &&
		(belongs(address, subject.Object, subject.Claim.Bound) || subject.isRestored(address))
}

// belongs reports whether an address that names a claim belongs to it. A claim that was created again under the same name
// is another one: the owner reference decides by UID. Where there is none, the garbage collector may have removed it
// because that claim is gone; the address then belongs to the claim if its status says so, if the address was restored or
// made by hand, or if it is not younger than the address and the address was not released: times have seconds, and within
// one a claim can be made, deleted and made again.
func belongs(address *ipamv1.IPAddress, claim client.Object, bound string) bool {
	if owner := claimOwner(address); owner != "" {
		return owner == claim.GetUID()
	}
	created := claim.GetCreationTimestamp()
	isOlder := !created.After(address.CreationTimestamp.Time)
	return IsByHand(address) || bound == address.Name || isOlder && address.DeletionTimestamp.IsZero()
}

// IsByHand reports whether an address was restored or made by hand: no claim owns it, and it lacks the finalizer of the operator or a pool that owns it.
// Of an address whose claim went away the garbage collector leaves both. It belongs to the claim of its name, there or not yet.
func IsByHand(address *ipamv1.IPAddress) bool {
	return claimOwner(address) == "" && (!controllerutil.ContainsFinalizer(address, ipamv1.IPAddressFinalizer) || !hasPoolOwner(address))
}

func hasPoolOwner(address *ipamv1.IPAddress) bool {
	return slices.ContainsFunc(address.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == ipamv1.IPPoolKind })
}

// ClaimKind is the kind of the claim that has an address.
func ClaimKind(address *ipamv1.IPAddress) string {
	return cmp.Or(address.Spec.Claim.Kind, ipamv1.IPClaimKind)
}

// claimOwner is the UID of the claim that an address belongs to; empty where no owner reference says so. A claim of another namespace cannot be an owner: the
// reference to it says so, unless the address was restored.
func claimOwner(address *ipamv1.IPAddress) types.UID {
	if address.Tenant() != "" {
		if hasPoolOwner(address) {
			return types.UID(address.Spec.Claim.UID)
		}
		return ""
	}
	for _, owner := range address.OwnerReferences {
		if owner.Kind == ClaimKind(address) && owner.Name == address.Spec.Claim.Name {
			return owner.UID
		}
	}
	return ""
}

func addressOf(address *ipamv1.IPAddress) allocate.Address {
	ip, _ := allocate.ParseAddr(string(address.Spec.Address))
	unowned := IsByHand(address)
	return allocate.Address{
		Name: address.Name, UID: string(address.UID), IP: ip,
		Unowned: unowned, Restored: unowned && controllerutil.ContainsFinalizer(address, ipamv1.IPAddressFinalizer),
		Released: ReleasedAt(address),
	}
}

const eventTypeWarning = corev1.EventTypeWarning
