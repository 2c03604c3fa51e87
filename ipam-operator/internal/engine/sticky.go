// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// former finds the address that a former claim of this kind and name had, and that its pool keeps for this claim. The cache finds it, or the index while the watch has
// not shown it, and the API server says how long ago it was released. Where the API server shows that it is this claim's own by now, the claim has it.
func (o *observer) former(ctx context.Context, s *allocate.Snapshot, subject *Subject, pool *ipamv1.IPPool) error {
	if pool == nil || subject.Claim.Deleting {
		return nil
	}
	if err := o.checkIntended(ctx, subject, pool); err != nil || allocate.KeptFor(&pool.Spec) == 0 {
		return err
	}
	candidates, err := o.formerAddresses(ctx, subject, pool)
	if err != nil {
		return err
	}
	for _, key := range candidates {
		live := &ipamv1.IPAddress{}
		if err := o.Live.Get(ctx, key, live); outcome.IsGone(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("reading IPAddress %s: %w", key, err)
		}
		switch {
		case isOwner(live, subject):
			s.Owned = append(s.Owned, subject.addressOf(live))
			return nil
		case o.isKept(live, subject, pool):
			s.Kept = addressOf(live)
			return nil
		}
	}
	return nil
}

// formerAddresses are the addresses that former claims of this kind and name may have left, latest first. An address that this process made and the watch has not shown is later
// than what the cache has.
func (o *observer) formerAddresses(ctx context.Context, subject *Subject, pool *ipamv1.IPPool) ([]types.NamespacedName, error) {
	made := o.Index.MadeForName(subject.name()) // before the cache: the watch may show one meanwhile
	list := &ipamv1.IPAddressList{}
	err := o.Client.List(ctx, list, client.InNamespace(subject.Pool.Namespace),
		client.MatchingFields{AddressByClaim: ClaimIndex(subject.Kind, subject.Key())}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("listing the addresses of %s %s: %w", subject.Kind, subject.Key(), err)
	}
	var out []types.NamespacedName
	for _, record := range made {
		out = append(out, record.Key.NamespacedName)
	}
	slices.SortFunc(list.Items, func(a, b ipamv1.IPAddress) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for i := range list.Items {
		if key := client.ObjectKeyFromObject(&list.Items[i]); o.isKept(&list.Items[i], subject, pool) && !slices.Contains(out, key) {
			out = append(out, key)
		}
	}
	return out, nil
}

// checkIntended asks the API server whether the address that a claim was about to take over is free. The index may be behind: the process that released it, and
// then ended, may have been another one.
func (o *observer) checkIntended(ctx context.Context, subject *Subject, pool *ipamv1.IPPool) error {
	ip := subject.Claim.Intended
	if !ip.IsValid() {
		return nil
	}
	key := types.NamespacedName{Namespace: pool.Namespace, Name: allocate.AddressName(pool.Spec.NamePrefix, ip)}
	err := o.Live.Get(ctx, key, &ipamv1.IPAddress{})
	if outcome.IsGone(err) {
		o.waits.forgetAddress(space.Record{Key: indexKey(key), IP: ip})
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	return nil
}

// isKept reports whether an address that names a claim is one that a former claim of its name had, within the time that the pool keeps it. The garbage collector
// may have removed the reference to that claim: the pool still owns the address.
func (o *observer) isKept(address *ipamv1.IPAddress, subject *Subject, pool *ipamv1.IPPool) bool {
	switch {
	case isOwner(address, subject) || address.Spec.Pool.Name != pool.Name:
		return false
	case !controllerutil.ContainsFinalizer(address, ipamv1.IPAddressFinalizer) || capi.IsLeftBehind(address):
		return false
	case address.DeletionTimestamp.IsZero():
		return true // its release is on the way
	}
	return o.Clock.Since(ReleasedAt(address)) < allocate.KeptFor(&pool.Spec)
}

// takeOver lets a kept address go, so that the claim can take it under the same name. The claim remembers it before: should this process end in between, the
// next one asks for the same address.
func (e *executor) takeOver(ctx context.Context, subject *Subject, kept allocate.Address) error {
	before := subject.Object.DeepCopyObject().(client.Object)
	annotations := subject.Object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[ipamv1.FormerAddressAnnotation] != kept.IP.String() {
		annotations[ipamv1.FormerAddressAnnotation] = kept.IP.String()
		subject.Object.SetAnnotations(annotations)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		if err := e.Client.Patch(ctx, subject.Object, patch, client.FieldOwner(FieldOwner)); err != nil {
			return fmt.Errorf("writing the former address of %s %s: %w", subject.Kind, subject.Key(), err)
		}
		e.records.wrote(subject.Object)
	}
	ctrl.LoggerFrom(ctx).Info("Returned the address of a former claim of the same name", "IPAddress", kept.Name)
	return e.Release(ctx, subject.Pool.Namespace, kept, true, string(allocate.WhyRestored))
}

// intended is the address that a claim was about to take over.
func intended(claim client.Object) netip.Addr {
	addr, err := allocate.ParseAddr(claim.GetAnnotations()[ipamv1.FormerAddressAnnotation])
	if err != nil {
		return netip.Addr{}
	}
	return addr
}
