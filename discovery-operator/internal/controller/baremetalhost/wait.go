// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// awayTime is how long an Ironic has to be away before hosts that need nothing of it say so: each of them costs a write, and another one when it is back.
const awayTime = 10 * time.Second

// wait says what a host waits for. One that waits for credentials asks its Ironic nothing; the resource that made it says whether Ironic answers.
func (r *Reconciler) wait(ctx context.Context, host *metal3v1.BareMetalHost, w handover.Wait) (ctrl.Result, error) {
	if w.Reason != metal3v1.ReasonWaitingForCredentials {
		return ctrl.Result{}, r.say(ctx, host, w)
	}
	away, err := r.away(ctx, host)
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case away == nil:
		return ctrl.Result{}, r.say(ctx, host, w)
	}
	if left := awayTime - r.Now().Sub(away.LastTransitionTime.Time); left > 0 {
		return ctrl.Result{RequeueAfter: left}, r.say(ctx, host, w)
	}
	_, err = r.condition(ctx, host, handover.Wait{Reason: away.Reason, Message: "Ironic does not serve this host: " + full(away.Message) +
		" It is asked again every few seconds. The host has no power control yet, either."})
	return ctrl.Result{}, err
}

// away is why the Ironic of a host does not answer, as the resource that made the host says; nil when it answers, or when that is not known.
func (r *Reconciler) away(ctx context.Context, host *metal3v1.BareMetalHost) (*metav1.Condition, error) {
	var d metal3v1.BareMetalHostDiscovery
	key := types.NamespacedName{Namespace: host.Namespace, Name: host.Labels[metal3v1.DiscoveredByLabel]}
	if err := r.Client.Get(ctx, key, &d); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, wrap(err, "reading BareMetalHostDiscovery %s", key)
	}
	var ref *metal3v1.IronicReference
	if data := host.Annotations[metal3v1.IronicAnnotation]; data != "" {
		ref = &metal3v1.IronicReference{}
		if json.Unmarshal([]byte(data), ref) != nil {
			return nil, nil //nolint:nilerr // the hand-over says what is wrong with it
		}
	}
	c := meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionEndpointReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != d.Generation || !equality.Semantic.DeepEqual(ref, d.Spec.Ironic) {
		return nil, nil
	}
	switch inventory.Problem(c.Reason) {
	case inventory.ProblemUnreachable, inventory.ProblemTimedOut, inventory.ProblemCredentials, inventory.ProblemNoSecret, inventory.ProblemTooOld,
		inventory.ProblemInvalid:
		return c, nil
	default: // it says nothing about Ironic
		return nil, nil
	}
}

// held are the hosts that discovery holds for a resource.
func (r *Reconciler) held(ctx context.Context, o client.Object) []reconcile.Request {
	var list metal3v1.BareMetalHostList
	err := r.Client.List(ctx, &list, client.InNamespace(o.GetNamespace()), client.MatchingLabels{metal3v1.DiscoveredByLabel: o.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "hosts not listed")
		return nil
	}
	var out []reconcile.Request
	for i := range list.Items {
		if h := &list.Items[i]; h.Annotations[metal3v1.PausedAnnotation] == metal3v1.DiscoveryPausedValue {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(h)})
		}
	}
	return out
}

// onResources makes held hosts look again when their Ironic goes or comes back. Hosts that this operator manages ask it themselves.
func (r *Reconciler) onResources() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		if r.ManageHosts {
			return nil
		}
		return r.held(ctx, o)
	})
}

// endpointMatters passes resources whose Ironic went or came back.
func endpointMatters() predicate.Predicate {
	reason := func(o client.Object) string {
		d, ok := o.(*metal3v1.BareMetalHostDiscovery)
		if !ok {
			return ""
		}
		c := meta.FindStatusCondition(d.Status.Conditions, metal3v1.ConditionEndpointReady)
		if c == nil || c.Status != metav1.ConditionFalse {
			return ""
		}
		return c.Reason
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return reason(e.Object) != "" },
		UpdateFunc:  func(e event.UpdateEvent) bool { return reason(e.ObjectOld) != reason(e.ObjectNew) },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
