// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hibernation hibernates clusters that ran for their hibernateAfter: the effects of package powerplan. The installer or runtime that stops and starts a cluster follows spec.powerState.
package hibernation

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/olderkinds"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/powerplan"
)

// FieldOwner owns what this controller writes: spec.powerState of clusters that it puts to sleep, and status.claimedTimestamp.
const FieldOwner = client.FieldOwner("pool-operator/hibernation")

// concurrency is how many clusters are looked after at a time.
const concurrency = 4

// Deps is what a Reconciler works with; all are required.
type Deps struct {
	// Client reads from caches and writes.
	Client client.Client
	// Recorder publishes events about ClusterDeployments.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
}

// Reconciler looks after the hibernateAfter of ClusterDeployments.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler {
	d.Client = olderkinds.Client(d.Client, "ClusterDeployment") // that of Hive does not have status.claimedTimestamp
	return &Reconciler{Deps: d}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("hibernation").
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(relevant(r.Clock))).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(tracing.ReconcilerOf("hibernation", outcome.Reconciler[ctrl.Request](r), tracing.OfClusterDeployment(r.Client)))
}

// relevant lets clusters through for which there is something to decide, now or later.
func relevant(clock clock.PassiveClock) predicate.Predicate {
	concerns := func(obj client.Object) bool {
		d := powerplan.Plan(clock.Now(), obj.(*hivev1.ClusterDeployment))
		return d.Hibernate || d.MirrorClaim != nil || d.RequeueAfter > 0
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return concerns(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return concerns(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks after one cluster: get, plan, execute.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cd := &hivev1.ClusterDeployment{}
	if err := r.Client.Get(ctx, request.NamespacedName, cd); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	d := powerplan.Plan(r.Clock.Now(), cd)
	return ctrl.Result{RequeueAfter: d.RequeueAfter}, outcome.Pace(r.execute(ctx, cd, d), time.Second)
}

func (r *Reconciler) execute(ctx context.Context, cd *hivev1.ClusterDeployment, d powerplan.Decision) error {
	if d.MirrorClaim != nil {
		config := hivev1ac.ClusterDeployment(cd.Name, cd.Namespace).WithUID(cd.UID).
			WithStatus(hivev1ac.ClusterDeploymentStatus().WithClaimedTimestamp(*d.MirrorClaim))
		if err := r.Client.Status().Apply(ctx, config, FieldOwner, client.ForceOwnership); outcome.IgnoreGone(err) != nil {
			return fmt.Errorf("writing when cluster %s was claimed: %w", cd.Name, err)
		}
	}
	if d.Hibernate {
		return r.hibernate(ctx, cd, d.Why)
	}
	return nil
}

// hibernate asks for the cluster to hibernate. A change of the cluster since it was read, perhaps to keep it running, wins.
func (r *Reconciler) hibernate(ctx context.Context, cd *hivev1.ClusterDeployment, why powerplan.Why) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": cd.ResourceVersion, "uid": cd.UID},
		"spec":     map[string]any{"powerState": hivev1.PowerStateHibernating},
	})
	if err != nil {
		return err
	}
	target := &hivev1.ClusterDeployment{}
	target.Namespace, target.Name = cd.Namespace, cd.Name
	if err := r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), FieldOwner); outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("putting cluster %s to sleep: %w", cd.Name, err)
	}
	r.Recorder.Eventf(cd, nil, corev1.EventTypeNormal, string(why), "Hibernate", "The cluster ran for its hibernateAfter of %s and was put to sleep", cd.Spec.HibernateAfter.Duration)
	logf.FromContext(ctx).Info("put a cluster to sleep", "why", why)
	return nil
}
