// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/pool-operator/internal/installplan"
)

// InstallDeps are what an InstallReconciler works with; all are required.
type InstallDeps struct {
	// Client reads ClusterDeployments from the cache and writes them.
	Client client.Client
	// Live reads install objects: their kinds are not known beforehand, and a kind that may not be read must not block other clusters.
	Live client.Reader
	// Informers watch the kinds of install objects as they come up. They are not those of the manager's cache, by which an operator is ready or not: a kind that may be read and not be listed never
	// fills.
	Informers Informers
	// Recorder publishes events about ClusterDeployments.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
}

// InstallReconciler carries what install objects say to the ClusterDeployments that name them in spec.clusterInstallRef. It knows the install contract and no
// kind: any installer that follows the contract works.
type InstallReconciler struct {
	InstallDeps
	writer  *writer
	watches *installWatches
}

// NewInstall returns an InstallReconciler.
func NewInstall(d InstallDeps) *InstallReconciler {
	return &InstallReconciler{
		InstallDeps: d,
		writer:      &writer{client: d.Client, recorder: d.Recorder, conditions: installplan.Conditions()},
		watches:     newInstallWatches(d.Informers),
	}
}

// SetupWithManager registers the controller.
func (r *InstallReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("clusterdeployment-install").
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(hasInstallRef))).
		WatchesRawSource(wakeUps(r.watches.changes)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 10}).
		Complete(tracing.ReconcilerOf("clusterdeployment-install", outcome.Reconciler[ctrl.Request](r), tracing.OfClusterDeployment(r.Client)))
}

func hasInstallRef(object client.Object) bool {
	cluster, ok := object.(*hivev1.ClusterDeployment)
	return ok && cluster.Spec.ClusterInstallRef != nil
}

// Install objects of other kinds need a ClusterRole of their own with these verbs, bound to the operator.
// +kubebuilder:rbac:groups=extensions.hive.openshift.io,resources=agentclusterinstalls,verbs=get;list;watch

// Reconcile reads the install object, plans, and writes what changed.
func (r *InstallReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	cluster := &hivev1.ClusterDeployment{}
	if err := r.Client.Get(ctx, request.NamespacedName, cluster); err != nil {
		r.writer.written.Forget(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if cluster.Spec.ClusterInstallRef == nil {
		return ctrl.Result{}, nil
	}
	if r.writer.written.Ahead(request.NamespacedName, cluster.ResourceVersion) {
		return ctrl.Result{RequeueAfter: outcome.Delay()}, nil
	}
	var decision installplan.Decision
	err := r.label(ctx, cluster)
	if err == nil {
		decision, err = r.settle(ctx, cluster)
	}
	if err == nil {
		err = r.writer.report(ctx, cluster, decision.Status)
	}
	return ctrl.Result{RequeueAfter: decision.RequeueAfter}, err
}

// label says of which platform the cluster is. The pool does so when it creates one; a cluster that was made by hand lacks it.
func (r *InstallReconciler) label(ctx context.Context, cluster *hivev1.ClusterDeployment) error {
	if cluster.Labels[hivev1.LabelClusterPlatform] != "" || cluster.DeletionTimestamp != nil || hivev1.IsTrue(cluster.Annotations, hivev1.AnnotationReconcilePause) {
		return nil
	}
	return r.writer.patch(ctx, cluster, "labelling", labelPlatform)
}

// settle plans, and plans again after the installation was recorded, so that the status says it in the same pass.
func (r *InstallReconciler) settle(ctx context.Context, cluster *hivev1.ClusterDeployment) (installplan.Decision, error) {
	snapshot, err := r.observe(ctx, cluster)
	if err != nil {
		return installplan.Decision{}, err
	}
	decision := installplan.Plan(r.Clock.Now(), snapshot)
	if decision.Record == nil {
		return decision, nil
	}
	err = r.writer.patch(ctx, cluster, "recording the installation of", func(c *hivev1.ClusterDeployment) {
		c.Spec.Installed = true
		c.Spec.ClusterMetadata = decision.Record
	})
	if err != nil {
		return decision, err
	}
	logf.FromContext(ctx).Info("cluster was installed", "installer", cluster.Spec.ClusterInstallRef.Kind)
	return installplan.Plan(r.Clock.Now(), snapshot), nil
}

// observe reads the install object, whatever its kind. An object that is missing, or may not be read, is an observation and no error.
func (r *InstallReconciler) observe(ctx context.Context, cluster *hivev1.ClusterDeployment) (installplan.Snapshot, error) {
	ref := cluster.Spec.ClusterInstallRef
	snapshot := installplan.Snapshot{Cluster: cluster}
	if !hivev1.MayInstall(ref.Group) {
		snapshot.Obstacle = fmt.Sprintf("Kind %s of group %q, which spec.clusterInstallRef names, is one of Kubernetes or of Hive, and installs no cluster.", ref.Kind, ref.Group)
		return snapshot, nil
	}
	gvk := schema.GroupVersionKind{Group: ref.Group, Version: ref.Version, Kind: ref.Kind}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: ref.Name}, object)
	if err == nil || apierrors.IsNotFound(err) {
		// The kind exists and may be read: from now on its changes are watched, also the creation of the object.
		if err := r.watches.ensure(ctx, gvk); err != nil {
			return snapshot, err
		}
	}
	if err != nil {
		snapshot.Obstacle = obstacleTo(ref, err)
		if snapshot.Obstacle == "" {
			return snapshot, fmt.Errorf("reading %s %s/%s: %w", ref.Kind, cluster.Namespace, ref.Name, err)
		}
		return snapshot, nil
	}
	if snapshot.Install, err = decodeInstall(object); err != nil {
		snapshot.Install = nil
		snapshot.Obstacle = fmt.Sprintf("%s %s does not follow the install contract: %v.", ref.Kind, ref.Name, err)
	}
	return snapshot, nil
}

// obstacleTo explains why an install object cannot be read; "" when it may be readable a moment later.
func obstacleTo(ref *hivev1.ClusterInstallLocalReference, err error) string {
	switch {
	case meta.IsNoMatchError(err):
		return fmt.Sprintf("There is no kind %s in %s/%s, which spec.clusterInstallRef names.", ref.Kind, ref.Group, ref.Version)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("pool-operator may not read %s of %s: bind it a ClusterRole with get, list and watch.", ref.Kind, ref.Group)
	case apierrors.IsNotFound(err):
		return fmt.Sprintf("There is no %s %s in the namespace of the cluster, which spec.clusterInstallRef names.", ref.Kind, ref.Name)
	}
	return ""
}

// decodeInstall reads the part of an install object that is the contract's.
func decodeInstall(object *unstructured.Unstructured) (*hivev1.ClusterInstall, error) {
	install := &hivev1.ClusterInstall{}
	return install, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, install)
}
