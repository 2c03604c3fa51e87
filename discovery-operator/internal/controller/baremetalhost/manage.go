// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// work is one pass over one host that this operator manages.
type work struct {
	host *metal3v1.BareMetalHost
	// p is the host's Ironic, once an effect needs it.
	p      *visit
	facts  hoststate.Facts
	secret *corev1.Secret
	m      *attempt
	state  hoststate.State
	// node is status.provisioning.ID; a pass may find another one.
	node string
	good metal3v1.CredentialsStatus
	// powered is what the management controller says, nil until this pass asks it.
	powered *bool
	// keepAway says that the machine shall not become a host again.
	keepAway bool
}

// attempt is what this process remembers of a host between passes. Losing it costs nothing but repetition.
type attempt struct {
	// about is what the attempt rests on; when it changes, everything is tried anew.
	about     string
	state     hoststate.State
	asked     hoststate.Asked
	reported  time.Time
	power     string
	looks     int
	failures  int
	notBefore time.Time
}

type attempts struct {
	mu   sync.Mutex
	list map[types.NamespacedName]*attempt
}

// of returns the attempt at a host; the host's key is never worked on twice at the same time.
func (a *attempts) of(key types.NamespacedName, about string, s hoststate.State) *attempt {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.list[key]
	if m == nil || m.about != about || m.state != s {
		m = &attempt{about: about, state: s}
		a.list[key] = m
	}
	return m
}

func (a *attempts) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.list, key)
}

// manage does what is next in the life of a host.
func (r *Reconciler) manage(ctx context.Context, host *metal3v1.BareMetalHost) (ctrl.Result, error) {
	if !manageable(host) {
		return ctrl.Result{}, r.give(ctx, host)
	}
	for _, first := range []func(context.Context, *metal3v1.BareMetalHost) (bool, error){r.restore, r.adopt, r.given} {
		if changed, err := first(ctx, host); changed || err != nil {
			return ctrl.Result{}, err
		}
	}
	w, err := r.observe(ctx, host)
	if err != nil {
		return ctrl.Result{}, err
	}
	event := hoststate.Perceive(w.state, w.facts)
	if now := r.now(); event == hoststate.InspectionRequested && inspectedIn(host, now) {
		return ctrl.Result{RequeueAfter: now.Truncate(time.Second).Add(time.Second).Sub(now)}, nil
	}
	step, _ := hoststate.Next(w.state, event)
	out := outcome{event: event}
	if step.Do != hoststate.Rest {
		if out, err = r.do(ctx, w, step.Do); err != nil {
			return ctrl.Result{}, err
		}
		if out.written || out.parked {
			return ctrl.Result{RequeueAfter: out.after}, nil
		}
		if out.event != hoststate.Nothing {
			step, _ = hoststate.Next(w.state, out.event)
		}
	}
	if step.To == hoststate.Gone {
		r.attempts.forget(client.ObjectKeyFromObject(host))
		return r.finish(ctx, host, w.keepAway)
	}
	if event == hoststate.NotYet {
		after := w.m.notBefore.Sub(r.now())
		if w.facts.PowerControl { // Secrets are not watched: a new one is seen then, and tried at once
			after = min(after, secretRetry)
		}
		return ctrl.Result{RequeueAfter: after}, nil
	}
	err = r.report(ctx, w, step, out)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: busyRetry}, nil
	}
	return ctrl.Result{RequeueAfter: out.after}, client.IgnoreNotFound(err)
}

// manageable reports whether a host may be touched: not while a user pauses it, takes it out of management, or while discovery has
// not written its status yet.
func manageable(h *metal3v1.BareMetalHost) bool {
	value, paused := h.Annotations[metal3v1.PausedAnnotation]
	if paused && value != metal3v1.DiscoveryPausedValue {
		return false
	}
	if _, detached := h.Annotations[metal3v1.DetachedAnnotation]; detached && h.DeletionTimestamp == nil {
		return false
	}
	if h.DeletionTimestamp != nil {
		return controllerutil.ContainsFinalizer(h, metal3v1.BareMetalHostFinalizer) || controllerutil.ContainsFinalizer(h, metal3v1.DiscoveryFinalizer)
	}
	return !paused || h.HasStatus()
}

// adopt makes a host this operator's: its finalizer instead of discovery's, no pause, and the approval that a user gave. All of it is one
// write that fails if the host changed since it was read.
func (r *Reconciler) adopt(ctx context.Context, host *metal3v1.BareMetalHost) (changed bool, err error) {
	approved := host.Labels[metal3v1.ApprovalLabel] == "pending" && host.Annotations[metal3v1.ApprovedAnnotation] == "true"
	_, paused := host.Annotations[metal3v1.PausedAnnotation]
	if host.DeletionTimestamp != nil || controllerutil.ContainsFinalizer(host, metal3v1.BareMetalHostFinalizer) && !paused && !approved &&
		!controllerutil.ContainsFinalizer(host, metal3v1.DiscoveryFinalizer) {
		return false, nil
	}
	next := host.DeepCopy()
	controllerutil.AddFinalizer(next, metal3v1.BareMetalHostFinalizer)
	controllerutil.RemoveFinalizer(next, metal3v1.DiscoveryFinalizer)
	delete(next.Annotations, metal3v1.PausedAnnotation)
	if approved {
		next.Labels[metal3v1.ApprovalLabel] = "approved"
	}
	patch := client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})
	if err = r.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner)); err == nil && approved {
		r.approved(host, approver(next)) // the answer has the managers, which the cache leaves out
	}
	return true, client.IgnoreNotFound(wrap(err, "taking host %s over", client.ObjectKeyFromObject(host)))
}

// observe reads what the next step rests on.
func (r *Reconciler) observe(ctx context.Context, host *metal3v1.BareMetalHost) (*work, error) {
	w := &work{
		host: host, facts: hoststate.FactsOf(host), state: hoststate.Of(host.Status.Provisioning.State), node: host.Status.Provisioning.ID,
		good: host.Status.GoodCredentials,
	}
	version := ""
	if w.facts.PowerControl {
		var secret corev1.Secret
		key := types.NamespacedName{Namespace: host.Namespace, Name: host.Spec.BMC.CredentialsName}
		switch err := r.Live.Get(ctx, key, &secret); {
		case err == nil:
			w.secret, version = &secret, secret.ResourceVersion
		case !apierrors.IsNotFound(err):
			return nil, wrap(err, "looking for the credentials of host %s", client.ObjectKeyFromObject(host))
		}
		w.facts.Unverified = w.good.Reference == nil || w.good.Reference.Name != key.Name || w.secret != nil && w.good.Version != version
	}
	about := fmt.Sprint(host.UID, host.Generation, version, w.facts.Deleting, host.Annotations[metal3v1.KeepNodeAnnotation],
		host.InspectionRequested(), host.InspectionDisabled())
	w.m = r.attempts.of(client.ObjectKeyFromObject(host), about, w.state)
	w.facts.Resting = r.now().Before(w.m.notBefore)
	return w, nil
}

// nodeName is the name that the node of a host has.
func (w *work) nodeName() string { return w.host.Namespace + "~" + w.host.Name }
