// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1ac "github.com/muster-io/muster/apis/applyconfiguration/metal3/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// handOver switches the driver of the node, reads the node back, and releases the host. Until the release no other operator acts on
// the host; a process that dies before it is continued from the start, and finds the driver switched.
func (r *Reconciler) handOver(ctx context.Context, host *metal3v1.BareMetalHost, s handover.Switch) (ctrl.Result, error) {
	wait := func(reason, message string, after time.Duration) (ctrl.Result, error) {
		return ctrl.Result{RequeueAfter: after}, r.say(ctx, host, handover.Wait{Reason: reason, Message: message})
	}
	var secret corev1.Secret
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: host.Namespace, Name: s.Secret}, &secret)
	if apierrors.IsNotFound(err) {
		return wait(metal3v1.ReasonCredentialsNotFound, fmt.Sprintf("There is no Secret %s in this namespace.", s.Secret), hoststate.SecretRetry)
	} else if err != nil {
		return ctrl.Result{}, wrap(err, "looking for the credentials of host %s", client.ObjectKeyFromObject(host))
	}
	if credential(&secret, "username") == "" || credential(&secret, "password") == "" {
		return wait(metal3v1.ReasonCredentialsNotFound, fmt.Sprintf("The Secret %s lacks username or password.", s.Secret), hoststate.SecretRetry)
	}
	p, err := r.visit(ctx, host)
	if err != nil {
		return r.ironicAway(ctx, host, err)
	}
	node, why, err := r.switched(ctx, p, host, s)
	p.leave(err)
	switch {
	case why != "":
		return wait(metal3v1.ReasonNodeNotReserved, hoststate.Sentence(why), time.Minute)
	case errors.Is(err, inventory.ErrNotFound):
		return wait(metal3v1.ReasonNodeNotFound, "The node is not in Ironic any more; discovery waits for the machine to report again.", time.Minute)
	case errors.Is(err, inventory.ErrBusy), errors.Is(err, inventory.ErrFull):
		return wait(metal3v1.ReasonDriverSwitching, "Ironic works on the node at the moment.", hoststate.BusyRetry)
	case errors.Is(err, inventory.ErrRefused):
		return wait(metal3v1.ReasonDriverRefused, err.Error(), time.Minute)
	case err != nil:
		return r.ironicAway(ctx, host, err)
	}
	if w, ok := handover.Ready(node, host, s.Driver); !ok {
		return ctrl.Result{RequeueAfter: time.Minute}, r.say(ctx, host, w)
	}
	return ctrl.Result{}, r.release(ctx, host, s)
}

// switched gives the node its driver, unless another client works with it, and returns the node as it is then; or why the host may not have
// it.
func (r *Reconciler) switched(ctx context.Context, p Provisioner, host *metal3v1.BareMetalHost, s handover.Switch) (
	node inventory.Node, why string, err error,
) {
	if node, err = p.Node(ctx, s.Node); err != nil {
		return node, "", wrap(err, "reading node %s", s.Node)
	}
	if _, fit := handover.Ready(node, host, node.Driver); !fit {
		return node, "", nil
	}
	if why, err = r.claim(ctx, p, host, node); why != "" || err != nil || node.Driver == s.Driver {
		return node, why, err
	}
	if err := p.SetDriver(ctx, s.Node, s.Driver, s.Boot...); err != nil {
		return node, "", wrap(err, "switching node %s to driver %s", s.Node, s.Driver)
	}
	node, err = p.Node(ctx, s.Node)
	return node, "", wrap(err, "reading node %s back", s.Node)
}

// release says that the host is handed over, and then takes the hold off it: our pause and our finalizer, in one write that
// fails if the host changed since it was read.
func (r *Reconciler) release(ctx context.Context, host *metal3v1.BareMetalHost, s handover.Switch) error {
	done := handover.Wait{Reason: metal3v1.ReasonHandedOver, Message: "The node has driver " + s.Driver + "; the host is released."}
	if err := r.say(ctx, host, done); err != nil {
		return err
	}
	released := &metal3v1.BareMetalHost{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(host), released); err != nil {
		return wrap(err, "reading host %s", client.ObjectKeyFromObject(host))
	}
	if _, still := handover.Next(released).(handover.Switch); !still || released.UID != host.UID {
		return nil
	}
	before := released.DeepCopy()
	delete(released.Annotations, metal3v1.PausedAnnotation)
	controllerutil.RemoveFinalizer(released, metal3v1.DiscoveryFinalizer)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, released, patch, client.FieldOwner(FieldOwner)); err != nil {
		return wrap(err, "releasing host %s", client.ObjectKeyFromObject(host))
	}
	r.Counter.HandedOver()
	r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, metal3v1.EventHandedOver, "HandOver",
		"Node %s has driver %s; the host is released", s.Node, s.Driver)
	ctrl.LoggerFrom(ctx).Info("host handed over", "BareMetalHost", client.ObjectKeyFromObject(host).String(), "node", s.Node, "driver", s.Driver)
	return nil
}

// say writes the condition HandedOver, if it changed, with an event when a hand-over cannot go on.
func (r *Reconciler) say(ctx context.Context, host *metal3v1.BareMetalHost, w handover.Wait) error {
	if changed, err := r.condition(ctx, host, w); !changed || err != nil {
		return err
	}
	switch w.Reason {
	case metal3v1.ReasonWaitingForCredentials, metal3v1.ReasonWaitingForApproval, metal3v1.ReasonHandedOver:
	default:
		r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, w.Reason, "HandOver", "%s", w.Message)
	}
	return nil
}

// condition writes the condition HandedOver, if it changed.
func (r *Reconciler) condition(ctx context.Context, host *metal3v1.BareMetalHost, w handover.Wait) (changed bool, err error) {
	status := metav1.ConditionFalse
	if w.Reason == metal3v1.ReasonHandedOver {
		status = metav1.ConditionTrue
	}
	old := meta.FindStatusCondition(host.Status.Conditions, metal3v1.ConditionHandedOver)
	if old != nil && old.Status == status && old.Reason == w.Reason && old.Message == w.Message {
		return false, nil
	}
	since := metav1.NewTime(r.Now())
	if old != nil && old.Status == status {
		since = old.LastTransitionTime
	}
	condition := metav1ac.Condition().WithType(metal3v1.ConditionHandedOver).WithStatus(status).WithReason(w.Reason).
		WithMessage(w.Message).WithLastTransitionTime(since).WithObservedGeneration(host.Generation)
	object := metal3v1ac.BareMetalHost(host.Name, host.Namespace).WithUID(host.UID).
		WithStatus(metal3v1ac.BareMetalHostStatus().WithConditions(condition))
	err = r.Client.SubResource("status").Apply(ctx, object, client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		return false, outcome.IgnoreGone(wrap(err, "writing the condition of host %s", client.ObjectKeyFromObject(host)))
	}
	return true, nil
}

func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
