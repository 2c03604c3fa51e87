// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// attempt is what this process remembers of a host between passes.
type attempt struct {
	// about is what the attempt rests on; when it changes, everything is tried anew.
	about  string
	state  hoststate.State
	memory hoststate.Memory
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
	s, attempt, err := r.observe(ctx, host)
	if err != nil {
		return ctrl.Result{}, err
	}
	d := r.carryOut(ctx, s)
	attempt.memory = d.Known.Memory
	switch {
	case d.Err != nil:
		return ctrl.Result{}, d.Err
	case d.Then.Written, d.Then.Parked:
		return ctrl.Result{RequeueAfter: d.Then.After}, nil
	case d.Step.To == hoststate.Gone:
		r.attempts.forget(client.ObjectKeyFromObject(host))
		return r.finish(ctx, host, d.Known.KeepAway)
	}
	err = outcome.Pace(r.report(ctx, d), hoststate.BusyRetry)
	after := d.Then.After
	if d.Then.Spread {
		after += rand.N(after / 5) //nolint:gosec // jitter is no secret
	}
	return ctrl.Result{RequeueAfter: after}, outcome.IgnoreGone(err)
}

// maxActions bounds the actions of one pass: more than any plan has.
const maxActions = 40

// carryOut plans and does one action after the other until the pass ends. It returns the decision that ended it.
func (r *Reconciler) carryOut(ctx context.Context, s hoststate.Snapshot) hoststate.Decision {
	e := &executor{Reconciler: r, host: s.Host}
	var failed error
	defer func() { e.leave(failed) }()
	for range maxActions {
		d := hoststate.Plan(r.Now(), s)
		next := d.Known
		if d.Do.Call != "" {
			if err := e.execute(ctx, d.Do, &next); err != nil {
				s.Seen.Err, s.Seen.At, failed = err, d.Do.Call, err
				continue
			}
		}
		for _, n := range d.Tell {
			r.Recorder.Eventf(s.Host, nil, n.Type, n.Reason, n.Action, "%s", n.Text)
		}
		if d.Then != nil || d.Err != nil {
			return d
		}
		s = next
	}
	return hoststate.Decision{Known: s, Err: fmt.Errorf("the pass over host %s does not end", client.ObjectKeyFromObject(s.Host))}
}

// manageable reports whether a host may be touched: not while a user pauses it, takes it out of management, or while discovery has
// not written its status yet.
func manageable(h *metal3v1.BareMetalHost) bool {
	value, paused := h.Annotations[metal3v1.PausedAnnotation]
	if paused && value != metal3v1.DiscoveryPausedValue {
		return false
	}
	if h.Detached() && h.DeletionTimestamp == nil && !hoststate.Of(h.Status.Provisioning.State).Detachable() {
		return false
	}
	if h.DeletionTimestamp != nil {
		return controllerutil.ContainsFinalizer(h, metal3v1.BareMetalHostFinalizer) || controllerutil.ContainsFinalizer(h, metal3v1.DiscoveryFinalizer)
	}
	return !paused || h.HasStatus()
}

// adopt makes a host this operator's: its finalizer instead of discovery's, no pause. All of it is one
// write that fails if the host changed since it was read.
func (r *Reconciler) adopt(ctx context.Context, host *metal3v1.BareMetalHost) (changed bool, err error) {
	_, paused := host.Annotations[metal3v1.PausedAnnotation]
	if host.DeletionTimestamp != nil || controllerutil.ContainsFinalizer(host, metal3v1.BareMetalHostFinalizer) && !paused &&
		!controllerutil.ContainsFinalizer(host, metal3v1.DiscoveryFinalizer) {
		return false, nil
	}
	next := host.DeepCopy()
	controllerutil.AddFinalizer(next, metal3v1.BareMetalHostFinalizer)
	controllerutil.RemoveFinalizer(next, metal3v1.DiscoveryFinalizer)
	delete(next.Annotations, metal3v1.PausedAnnotation)
	patch := client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})
	err = r.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner))
	return true, outcome.IgnoreGone(wrap(err, "taking host %s over", client.ObjectKeyFromObject(host)))
}
