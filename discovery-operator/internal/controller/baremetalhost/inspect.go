// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// inspect has the machine inspected: Ironic switches it on through its management controller, it boots the ramdisk, and that reports to
// Ironic. The state Inspecting is written before, with the time; from that and from the node a process that knows nothing else sees what is
// next. The annotation that asks for an inspection goes last, so that an interruption does not lose the request.
func (r *Reconciler) inspect(ctx context.Context, w *work) (outcome, error) {
	n, err := w.p.Examined(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	e := hoststate.Examination{
		Again: !w.host.NeedsHardwareInspection(), Asked: w.m.asked, Before: w.m.reported,
		Told: w.host.Status.ErrorType == metal3v1.InspectionError,
	}
	if start := w.host.Status.OperationHistory.Inspect.Start; start != nil {
		e.Since = start.Time
	}
	switch hoststate.Inspection(n, e) { //nolint:exhaustive // the others belong to a registration
	case hoststate.Await:
		if n.State == hoststate.Inspects || n.State == hoststate.InspectWait {
			w.m.asked = hoststate.AskedInspect
		}
		return r.inspecting(w, n), nil
	case hoststate.Refuse:
		return r.inspectionFailed(w, n.LastError), nil
	case hoststate.Accept:
		out, found, err := r.take(ctx, w)
		switch {
		case err != nil:
			return out, err
		case found:
			return out, r.inspected(ctx, w)
		case w.m.asked == hoststate.AskedInspect:
			return r.inspectionFailed(w, "Ironic has no inspection data after the inspection"), nil
		}
	}
	if n.State == inventory.NodeAvailable { // it has to be manageable first
		return waiting(metal3v1.ReasonInspecting, "Ironic prepares the inspection.", answerRetry), w.p.SetProvision(ctx, w.node, "manage")
	}
	w.m.reported = n.Reported
	if err := w.p.Inspect(ctx, n, w.host.Spec.InspectionMode); err != nil {
		return outcome{}, err
	}
	w.m.asked = hoststate.AskedInspect
	r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, metal3v1.EventInspectionStarted, "Inspect", "Asked Ironic to inspect the machine of node %s", w.node)
	return r.inspecting(w, n), nil
}

// inspectedIn reports whether an inspection ended in this second. A status has whole seconds: the end of that inspection could be taken for
// the end of one that begins in the same second.
func inspectedIn(h *metal3v1.BareMetalHost, now time.Time) bool {
	end := h.Status.OperationHistory.Inspect.End
	return end != nil && end.Unix() == now.Unix()
}

// inspecting waits for an inspection: it is looked at seldom when it takes long.
func (r *Reconciler) inspecting(w *work, n hoststate.Node) outcome {
	after := min(answerRetry<<min(w.m.looks, 5), longRetry)
	w.m.looks++
	message := "Ironic prepares the inspection."
	if n.State == hoststate.InspectWait {
		message = "The machine boots the ramdisk, which reports its hardware."
	}
	return waiting(metal3v1.ReasonInspecting, message, after)
}

func (r *Reconciler) inspectionFailed(w *work, why string) outcome {
	if why == "" {
		why = "Ironic does not say why"
	}
	reason := metal3v1.ReasonInspectionFailed
	if hoststate.Refusal(why) {
		reason = metal3v1.ReasonBMCCredentialsRefused
	}
	w.m.looks = 0
	return r.failed(w, metal3v1.InspectionError, reason, "The inspection failed: "+strings.TrimRight(why, ".")+". It is tried again.")
}

// inspected says that the machine was inspected, and removes the annotation that asked for it.
func (r *Reconciler) inspected(ctx context.Context, w *work) error {
	r.Events.Eventf(w.host, nil, corev1.EventTypeNormal, metal3v1.EventInspectionComplete, "Inspect", "The hardware of the machine is known")
	if !w.host.InspectionRequested() {
		return nil
	}
	next := w.host.DeepCopy()
	delete(next.Annotations, metal3v1.InspectAnnotation)
	err := r.Client.Patch(ctx, next, client.MergeFrom(w.host), client.FieldOwner(FieldOwner))
	return client.IgnoreNotFound(wrap(err, "removing the annotation %s of host %s", metal3v1.InspectAnnotation, client.ObjectKeyFromObject(w.host)))
}

// endInspection leads a node out of an inspection that is not wanted any more.
func (r *Reconciler) endInspection(ctx context.Context, w *work) (outcome, error) {
	done := outcome{event: hoststate.Done, settled: true, after: time.Millisecond}
	n, err := w.p.Managed(ctx, w.node)
	if err != nil {
		return outcome{}, err
	}
	if wait, err := r.leave(ctx, w, n); wait || err != nil {
		return waiting(metal3v1.ReasonInspecting, "The inspection is being ended.", answerRetry), err
	}
	return done, nil
}

// leave asks Ironic to end an inspection of a node, and reports whether that has to be waited for.
func (r *Reconciler) leave(ctx context.Context, w *work, n hoststate.Node) (wait bool, err error) {
	ask, wait := hoststate.Leave(n)
	if ask != "" && !n.Locked {
		err = w.p.SetProvision(ctx, n.UUID, ask)
	}
	return wait, err
}
