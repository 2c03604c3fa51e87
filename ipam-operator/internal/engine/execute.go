// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/metrics"
	"github.com/muster-io/muster/ipam-operator/internal/space"
)

// FieldOwner is the name that writes of this controller carry.
const FieldOwner = "ipam-operator/ipclaim"

// errCreate is the known wording for an IPAddress that the API server does not take.
const errCreate = "Failed to create associated IPAddress object"

// executor carries decisions out.
type executor struct {
	*Deps
	Releaser
	waits   *waitlist
	records *records
}

// execute does what was decided. It reports whether to decide again at once.
func (e *executor) execute(ctx context.Context, subject *Subject, decision allocate.Decision) (again bool, err error) {
	switch action := decision.Action.(type) {
	case allocate.Nothing:
		ctrl.LoggerFrom(ctx).V(1).Info("Nothing to do", "why", decision.Why)
		if decision.Why == allocate.WhyPaused && subject.Claim.Bound == "" && !subject.Claim.Deleting {
			e.records.wait(subject.Key(), subject.UID(), decision.Why, allocate.Refuse{})
			e.waits.leaveLine(subject.UID())
		} else {
			e.waits.forget(subject.Key())
		}
		if decision.Why == allocate.WhyHeld {
			return false, e.awaitPool(ctx, subject)
		}
		return false, nil
	case allocate.Create:
		return e.create(ctx, subject, action, decision.Why)
	case allocate.Adopt:
		return false, e.adopt(ctx, subject, action, decision.Why)
	case allocate.Release:
		return false, e.release(ctx, subject, action, decision.Why)
	case allocate.Refuse:
		return false, e.refuse(ctx, subject, action, decision.Why)
	}
	return false, nil
}

// awaitPool has a claim looked at again that has an address without a lock, once its pool is there. The index may not know a pool yet that the cache has.
func (e *executor) awaitPool(ctx context.Context, subject *Subject) error {
	e.waits.HoldUp(subject.Key())
	err := e.Client.Get(ctx, subject.Pool, &ipamv1.IPPool{})
	if err == nil {
		return outcome.Again(fmt.Errorf("IPPool %s is not indexed yet", subject.Pool))
	}
	return client.IgnoreNotFound(err)
}

// create takes an address. Where the name is taken, the object is read: this claim's own is kept, another claim's makes
// the address taken, and the next one is tried.
func (e *executor) create(ctx context.Context, subject *Subject, action allocate.Create, why allocate.Why) (again bool, err error) {
	pool := &ipamv1.IPPool{}
	if err := e.Client.Get(ctx, subject.Pool, pool); err != nil {
		e.waits.giveUp(subject)
		return false, fmt.Errorf("reading IPPool %s: %w", subject.Pool, err)
	}
	e.records.mark(subject.Key(), e.Clock.Now())
	address := newAddress(subject, pool, action)
	if err := errors.Join(e.markAbsentCluster(ctx, subject, address), e.prepare(ctx, subject, action)); err != nil {
		e.waits.giveUp(subject)
		return false, err
	}
	err = e.Client.Create(ctx, address, client.FieldOwner(FieldOwner))
	switch {
	case err == nil:
		e.records.edit(subject.Key(), func(known *record) { known.made = address.UID })
	case apierrors.IsAlreadyExists(err) || isUnanswered(err):
		holder, readErr := e.holder(ctx, address)
		switch {
		case readErr != nil:
			e.records.edit(subject.Key(), func(known *record) { known.unsure = subject })
			return false, errors.Join(fmt.Errorf("creating IPAddress %s: %w", address.Name, err), readErr)
		case holder == nil && apierrors.IsAlreadyExists(err):
			e.waits.giveUp(subject)
			return true, nil
		case holder == nil:
			e.waits.giveUp(subject)
			return false, fmt.Errorf("creating IPAddress %s: %w", address.Name, err)
		case !isOwner(holder, subject) || claimOwner(holder) == "" && !IsByHand(holder):
			e.Metrics.Conflict(metrics.NameTaken)
			ctrl.LoggerFrom(ctx).V(1).Info("Address was taken by another claim", "IPAddress", address.Name)
			e.learn(subject, holder, action)
			e.waits.giveUp(subject)
			if why == allocate.WhyHeld {
				refusal := allocate.Refuse{Error: allocate.ErrNotFree, Message: allocate.ErrNotFree + ": " + action.IP.String() + " is held by another claim too"}
				return false, e.refuse(ctx, subject, refusal, allocate.WhyRefused)
			}
			return true, nil
		}
		address = holder
		if err := e.own(ctx, subject, address); err != nil {
			e.waits.giveUp(subject)
			return false, err
		}
	default:
		e.waits.giveUp(subject)
		refusal := allocate.Refuse{Error: errCreate, Message: errCreate + ": " + string(apierrors.ReasonForError(err))}
		return false, errors.Join(fmt.Errorf("creating IPAddress %s: %w", address.Name, err), e.refuse(ctx, subject, refusal, allocate.WhyRefused))
	}
	e.Index.Made(recordOf(address), space.Claim{Name: subject.name(), UID: subject.UID()}, e.Clock.Now())
	defer e.waits.giveUp(subject)
	if returned, err := e.returnOverQuota(ctx, subject, address); returned || err != nil {
		return false, err
	}
	err = e.publish(ctx, subject, address, why)
	if taken := (*NameTakenError)(nil); errors.As(err, &taken) && why != allocate.WhyHeld {
		return true, e.avoid(ctx, subject, address, taken)
	}
	return false, err
}

// learn notes what has the name of an address that a claim was about to take. It usually is that address. An object that was made by hand may be another one, and keeps the
// name from being taken all the same.
func (e *executor) learn(subject *Subject, holder *ipamv1.IPAddress, action allocate.Create) {
	record := recordOf(holder)
	e.Index.Learn(record, e.Clock.Now())
	if record.IP == action.IP {
		return
	}
	e.Index.Learn(space.Record{
		Key: space.Key{Group: space.Named, NamespacedName: record.Key.NamespacedName}, Pool: subject.Pool, IP: action.IP, PrefixLength: action.PrefixLength, UID: holder.UID,
	}, e.Clock.Now())
}

// avoid gives an address back whose name another object has, and notes the address as taken for as long as that object is there.
func (e *executor) avoid(ctx context.Context, subject *Subject, address *ipamv1.IPAddress, taken *NameTakenError) error {
	e.Metrics.Conflict(metrics.NameTaken)
	ctrl.LoggerFrom(ctx).Info("Name of an address was taken by another claim", "IPAddress", address.Name, "group", taken.Group)
	record := recordOf(address)
	e.Index.Observe(space.Record{
		Key: space.Key{Group: taken.Group, NamespacedName: record.Key.NamespacedName}, Pool: subject.Pool, IP: record.IP, PrefixLength: record.PrefixLength, UID: taken.Object.GetUID(),
	})
	return e.Release(ctx, address.Namespace, addressOf(address), true, "NameTaken")
}

// prepare does what comes before an address is taken.
func (e *executor) prepare(ctx context.Context, subject *Subject, action allocate.Create) error {
	if subject.FinalizerFirst {
		if err := e.setFinalizer(ctx, subject, true); err != nil {
			return err
		}
	}
	if action.Replaces.Name == "" {
		return nil
	}
	return e.takeOver(ctx, subject, action.Replaces)
}

// isUnanswered reports whether an error leaves open if the write took effect.
func isUnanswered(err error) bool {
	reason := apierrors.ReasonForError(err)
	switch reason {
	case metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError, metav1.StatusReasonServiceUnavailable:
		return true
	default:
		return false
	}
}

// holder reads the object that has the name of an address; nil means that there is none.
func (e *executor) holder(ctx context.Context, address *ipamv1.IPAddress) (*ipamv1.IPAddress, error) {
	holder := &ipamv1.IPAddress{}
	if err := e.Live.Get(ctx, client.ObjectKeyFromObject(address), holder); outcome.IsGone(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading IPAddress %s: %w", address.Name, err)
	}
	return holder, nil
}

// newAddress is the IPAddress that a claim takes.
func newAddress(subject *Subject, pool *ipamv1.IPPool, action allocate.Create) *ipamv1.IPAddress {
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Name: action.Name, Namespace: subject.Pool.Namespace,
			Labels: labelsFor(subject), Finalizers: []string{ipamv1.IPAddressFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: pool.Name, UID: pool.UID},
			},
		},
		Spec: ipamv1.IPAddressSpec{
			Address:      ipamv1.IPAddressStr(action.IP.String()),
			Pool:         ipamv1.ObjectReference{Name: pool.Name, Namespace: pool.Namespace},
			Claim:        ipamv1.ObjectReference{Name: subject.Object.GetName(), Namespace: subject.Object.GetNamespace()},
			Prefix:       action.Network.Prefix,
			PrefixLength: action.PrefixLength,
			Gateway:      action.Network.Gateway,
			DNSServers:   action.Network.DNSServers,
		},
	}
	if subject.Kind != ipamv1.IPClaimKind {
		address.Spec.Claim.Kind, address.Spec.Claim.APIVersion = subject.Kind, subject.APIVersion
	}
	setClaimOwner(address, subject)
	return address
}

// adopt makes the claim name an address that it has already, and only then gives back what it has beside.
func (e *executor) adopt(ctx context.Context, subject *Subject, action allocate.Adopt, why allocate.Why) error {
	address := &ipamv1.IPAddress{}
	key := types.NamespacedName{Namespace: subject.Pool.Namespace, Name: action.Address.Name}
	err := e.Client.Get(ctx, key, address)
	if apierrors.IsNotFound(err) {
		err = e.Live.Get(ctx, key, address)
	}
	if outcome.IsGone(err) {
		// It is gone and the watch has not shown it: the next pass finds the claim without address.
		e.Index.Forget(indexKey(key))
		return fmt.Errorf("adopting IPAddress %s: %w", key, err)
	}
	if err != nil {
		return fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	if subject.Claim.Bound != address.Name && !action.Address.Unowned {
		if returned, err := e.returnOverQuota(ctx, subject, address); returned || err != nil {
			return err
		}
	}
	if err := e.own(ctx, subject, address); err != nil {
		return err
	}
	if len(action.Surplus) > 0 {
		// The status is written even if it is right by the cache: under the claim's resourceVersion, the API server says whether it names another address by now.
		subject.Claim.Reported = false
	}
	if err := e.publish(ctx, subject, address, why); err != nil {
		if taken := (*NameTakenError)(nil); errors.As(err, &taken) {
			return errors.Join(err, e.avoid(ctx, subject, address, taken))
		}
		return err
	}
	var errs []error
	for _, surplus := range action.Surplus {
		ctrl.LoggerFrom(ctx).Info("Gave back a second address of a claim", "IPAddress", surplus.Name)
		errs = append(errs, e.Kind.Retract(ctx, subject, surplus.Name),
			e.Release(ctx, subject.Pool.Namespace, surplus, true, "Surplus"))
	}
	return errors.Join(errs...)
}

// own gives an address that was restored or made by hand its owners, in place of those of an earlier life, and its finalizer, under its resourceVersion.
func (e *executor) own(ctx context.Context, subject *Subject, address *ipamv1.IPAddress) error {
	restored := subject.isRestored(address)
	if !restored && (claimOwner(address) != "" || !address.DeletionTimestamp.IsZero()) {
		return nil
	}
	before := address.DeepCopy()
	if restored {
		dropFormerOwners(address)
	}
	if address.DeletionTimestamp.IsZero() { // later, the API server takes no finalizers
		controllerutil.AddFinalizer(address, ipamv1.IPAddressFinalizer)
	}
	pool := &ipamv1.IPPool{}
	if err := e.Client.Get(ctx, subject.Pool, pool); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading IPPool %s: %w", subject.Pool, err)
	} else if err == nil && !hasPoolOwner(address) {
		address.OwnerReferences = append(address.OwnerReferences,
			metav1.OwnerReference{APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPPoolKind, Name: pool.Name, UID: pool.UID})
	}
	setClaimOwner(address, subject)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := e.Client.Patch(ctx, address, patch, client.FieldOwner(FieldOwner))
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("Adopted an address by the name of its claim", "IPAddress", address.Name)
		return nil
	}
	if apierrors.IsConflict(err) {
		return err
	}
	return fmt.Errorf("adopting IPAddress %s: %w", client.ObjectKeyFromObject(address), err)
}

// publish makes the claim name its address. The finalizer comes last, where admission has not put it on the claim: an
// address whose claim is gone is found and given back without it.
func (e *executor) publish(ctx context.Context, subject *Subject, address *ipamv1.IPAddress, why allocate.Why) error {
	served := subject.Claim.Reported && subject.Claim.Bound == address.Name
	err := e.Kind.Publish(ctx, subject, address)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return e.releaseUnlessHad(ctx, address, err)
		}
		return err
	}
	if !served {
		e.records.wrote(subject.Object)
		if since, ok := e.records.since(subject.Key()); ok {
			e.Metrics.Allocated(why, e.Clock.Since(since))
		}
		ctrl.LoggerFrom(ctx).Info("Claim has its address", "IPAddress", address.Name, "why", why)
	}
	e.waits.forget(subject.Key())
	return e.setFinalizer(ctx, subject, true)
}

// releaseUnlessHad gives an address back whose claim is gone. A write that found nothing says less: the kind may not be served for the moment, or an object
// beside the claim was on its way out. Such an address may be in use.
func (e *executor) releaseUnlessHad(ctx context.Context, address *ipamv1.IPAddress, cause error) error {
	had, err := e.Kind.Has(ctx, address, true)
	if err != nil {
		return errors.Join(cause, err)
	}
	if had {
		return fmt.Errorf("telling %s %s of its address: %w", ClaimKind(address), address.Spec.Claim.Name, cause)
	}
	return e.Release(ctx, address.Namespace, addressOf(address), true, "ClaimGone")
}

// setFinalizer puts the finalizer on the claim, or takes it off, unless that is so already.
func (e *executor) setFinalizer(ctx context.Context, subject *Subject, on bool) error {
	before := subject.Object.DeepCopyObject().(client.Object)
	var changed bool
	if on {
		changed = controllerutil.AddFinalizer(subject.Object, subject.Finalizer)
	} else {
		changed = controllerutil.RemoveFinalizer(subject.Object, subject.Finalizer)
	}
	if !changed {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	err := e.Client.Patch(ctx, subject.Object, patch, client.FieldOwner(FieldOwner))
	if err == nil {
		e.records.wrote(subject.Object)
	}
	if err == nil || apierrors.IsConflict(err) || outcome.IsGone(err) {
		return outcome.IgnoreGone(err)
	}
	return fmt.Errorf("writing the finalizers of %s %s: %w", subject.Kind, subject.Key(), err)
}

// release gives back the addresses of a deleted claim and removes its finalizer.
func (e *executor) release(ctx context.Context, subject *Subject, action allocate.Release, why allocate.Why) error {
	pool := &ipamv1.IPPool{}
	if err := e.Client.Get(ctx, subject.Pool, pool); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading IPPool %s: %w", subject.Pool, err)
	}
	atOnce := allocate.CoolDown(pool) == 0
	for _, address := range action.Addresses {
		if err := e.Kind.Retract(ctx, subject, address.Name); err != nil {
			return err
		}
		if !atOnce {
			if err := e.noteRelease(ctx, subject, address); err != nil {
				return err
			}
		}
		if err := e.Release(ctx, subject.Pool.Namespace, address, atOnce, string(allocate.WhyDeleted)); err != nil {
			return err
		}
		ctrl.LoggerFrom(ctx).Info("Claim gave its address back", "IPAddress", address.Name)
	}
	if !capi.IsLeftBehind(subject.Object) { // its address lives on elsewhere
		e.waits.giveUp(subject)
	}
	e.waits.forget(subject.Key())
	if err := e.setFinalizer(ctx, subject, false); err != nil {
		return err
	}
	if subject.Claim.Deleting {
		e.records.edit(subject.Key(), func(known *record) { known.finalized = subject.UID() })
	}
	if why == allocate.WhyNotServed {
		ctrl.LoggerFrom(ctx).Info("Removed the finalizer of a claim that is not served")
		e.Recorder.Eventf(subject.Object, nil, eventTypeWarning, string(why), "Release", "%s; its finalizer was removed", subject.Foreign)
	}
	return nil
}

// noteRelease writes when its claim released an address that was deleted before: by a user, or by the garbage collector after it was restored. The API server keeps the time of
// that deletion, by which its pool would not keep the address any more.
func (e *executor) noteRelease(ctx context.Context, subject *Subject, address allocate.Address) error {
	deleted := subject.Object.GetDeletionTimestamp()
	if address.Released.IsZero() || deleted.IsZero() || !address.Released.Before(deleted.Time) {
		return nil
	}
	return NoteRelease(ctx, e.Client, types.NamespacedName{Namespace: subject.Pool.Namespace, Name: address.Name}, types.UID(address.UID), e.Clock.Now())
}

// NoteRelease writes when an address was released.
func NoteRelease(ctx context.Context, c client.Client, key types.NamespacedName, uid types.UID, at time.Time) error {
	obj := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": uid, "annotations": map[string]string{ipamv1.ReleasedAtAnnotation: at.UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return fmt.Errorf("writing the patch of IPAddress %s: %w", key, err)
	}
	err = c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner))
	if outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("writing the release of IPAddress %s: %w", key, err)
	}
	return nil
}

// finalizerRemoved reports whether the finalizer of a claim that the cache still shows was removed: nothing is left to do for it, and a write would not find it.
func (r *Reconciler) finalizerRemoved(name types.NamespacedName, now *Subject) bool {
	uid := r.records.of(name).finalized
	if uid == "" {
		return false
	}
	if now != nil && now.UID() == uid {
		return true
	}
	r.records.edit(name, func(known *record) { known.finalized = "" })
	return false
}

// refuse writes to the claim why it has no address, and an event when that changes.
func (e *executor) refuse(ctx context.Context, subject *Subject, refusal allocate.Refuse, why allocate.Why) error {
	if subject.Foreign != "" {
		refusal.Message = subject.Foreign
	}
	e.records.mark(subject.Key(), e.Clock.Now())
	subject.AlreadyRefused = func(refusal allocate.Refuse) bool { return e.records.refused(subject.Key(), subject.UID(), refusal) }
	wrote, err := e.Kind.Refuse(ctx, subject, why, refusal)
	if err != nil {
		return outcome.IgnoreGone(err)
	}
	if why == allocate.WhyExhausted {
		e.Line.Enter(subject.queue(), subject.waiter())
	} else {
		e.waits.leaveLine(subject.UID())
	}
	e.records.wait(subject.Key(), subject.UID(), why, refusal)
	if wrote {
		e.records.wrote(subject.Object)
		ctrl.LoggerFrom(ctx).Info("Claim waits", "why", why, "message", refusal.Message)
		e.Recorder.Eventf(subject.Object, nil, eventTypeWarning, string(why), "Allocate", "%s", refusal.Message)
	}
	return nil
}
