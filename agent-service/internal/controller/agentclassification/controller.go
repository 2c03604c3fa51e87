// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentclassification serves AgentClassifications: it counts the Agents that match. The controller of Agents puts the labels on.
package agentclassification

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	agentv1ac "github.com/muster-io/muster/apis/applyconfiguration/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

const (
	// together is how long changes of Agents are collected before they are counted.
	together = time.Second
	// owner is the field manager of statuses.
	owner = client.FieldOwner("agent-service/agentclassification")
)

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client  client.Client
	Queries *Queries
}

// Reconciler serves AgentClassifications.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{d} }

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("agentclassification").
		For(&agentv1.AgentClassification{}).
		Watches(&agentv1.Agent{}, r.counted()).
		WithOptions(controller.Options{RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(tracing.Reconciler("agentclassification", outcome.Reconciler[ctrl.Request](r)))
}

// counted enqueues the classes of an Agent's namespace when its labels change, many Agents together.
func (r *Reconciler) counted() handler.EventHandler {
	later := func(ctx context.Context, namespace string, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		var classes agentv1.AgentClassificationList
		if err := r.Client.List(ctx, &classes, client.InNamespace(namespace)); err != nil {
			return
		}
		for i := range classes.Items {
			queue.AddAfter(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&classes.Items[i])}, together)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, e.Object.GetNamespace(), queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if !equality.Semantic.DeepEqual(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				later(ctx, e.ObjectNew.GetNamespace(), queue)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			later(ctx, e.Object.GetNamespace(), queue)
		},
	}
}

// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agentclassifications,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agentclassifications/status,verbs=patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch

// Reconcile counts the Agents that have the label of a class, and those for which its query failed.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	class := &agentv1.AgentClassification{}
	if err := r.Client.Get(ctx, request.NamespacedName, class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !class.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.release(ctx, class)
	}
	var matched, failed agentv1.AgentList
	key := agentv1.ClassificationPrefix + class.Spec.LabelKey
	for value, found := range map[string]*agentv1.AgentList{class.Spec.LabelValue: &matched, failure(class): &failed} {
		if err := r.Client.List(ctx, found, client.InNamespace(class.Namespace), client.MatchingLabels{key: value}); err != nil {
			return ctrl.Result{}, fmt.Errorf("counting Agents of AgentClassification %s: %w", request, err)
		}
	}
	return ctrl.Result{}, r.report(ctx, class, len(matched.Items), len(failed.Items), condition(len(failed.Items), r.Queries.read(class).unreadable))
}

// report writes the status where it changed.
func (r *Reconciler) report(ctx context.Context, class *agentv1.AgentClassification, matched, failed int, queries agentv1.Condition) error {
	before := class.Status.DeepCopy()
	class.Status.MatchedCount, class.Status.ErrorCount = matched, failed
	agentv1.SetCondition(&class.Status.Conditions, queries, metav1.Now())
	if equality.Semantic.DeepEqual(*before, class.Status) {
		return nil
	}
	c := agentv1.FindCondition(class.Status.Conditions, queries.Type)
	status := agentv1ac.AgentClassificationStatus().WithMatchedCount(matched).WithErrorCount(failed).WithConditions(agentv1ac.Condition().
		WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).WithLastHeartbeatTime(c.LastHeartbeatTime).WithLastTransitionTime(c.LastTransitionTime))
	apply := agentv1ac.AgentClassification(class.Name, class.Namespace).WithUID(class.UID).WithStatus(status)
	if err := r.Client.Status().Apply(ctx, apply, owner, client.ForceOwnership); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("reporting on AgentClassification %s: %w", client.ObjectKeyFromObject(class), err))
	}
	return nil
}

// release lets a class go: the controller of Agents takes its label off, where no other class puts it on. Classes of assisted-service have the finalizer; ours need none.
func (r *Reconciler) release(ctx context.Context, class *agentv1.AgentClassification) error {
	r.Queries.forget(class.UID)
	before := class.DeepCopy()
	if !controllerutil.RemoveFinalizer(class, agentv1.ClassificationFinalizer) {
		return nil
	}
	return outcome.IgnoreGone(r.Client.Patch(ctx, class, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

func condition(failed int, unreadable error) agentv1.Condition {
	c := agentv1.Condition{
		Type: agentv1.ConditionQueryErrors, Status: corev1.ConditionFalse, Reason: agentv1.ReasonNoQueryErrors, Message: "All Agents were classified",
	}
	switch {
	case unreadable != nil:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, agentv1.ReasonHasQueryErrors, unreadable.Error()+"; correct spec.query"
	case failed > 0:
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, agentv1.ReasonHasQueryErrors, fmt.Sprintf(
			"%d Agents failed to apply the classification: the query ends with an error for them, or with neither true nor false, or takes more than two seconds or 64 MiB; correct spec.query", failed)
	}
	return c
}
