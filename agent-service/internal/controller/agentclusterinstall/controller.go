// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agentclusterinstall serves AgentClusterInstalls: it states the cluster to the service, starts the installation when all that it needs is there,
// and reports by the install contract that ClusterDeployments follow.
package agentclusterinstall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
)

// look is how often Secrets are read again, missing is how often something is looked for that is not there, and unread how often node access is that hosts wait for, too: Secrets are not
// watched, which would need the right to read all of them.
const (
	look    = 5 * time.Minute
	missing = 15 * time.Second
	unread  = time.Minute
)

// Service is what the controller needs of the service.
type Service interface {
	Clusters
	ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error)
	InstallHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	ControlPlane(ctx context.Context, by domain.Principal, id string) (plane *domain.ControlPlane, nodeManager string, err error)
	Subscribe() *feed.Subscription
}

// Clusters reads and changes clusters.
type Clusters interface {
	CreateCluster(ctx context.Context, by domain.Principal, request domain.NewCluster) (*domain.Cluster, error)
	GetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	ListClusters(ctx context.Context, by domain.Principal, filter domain.ClusterFilter) (domain.List[domain.Cluster], error)
	UpdateCluster(ctx context.Context, by domain.Principal, id string, change func(*domain.ClusterSettings) error) (*domain.Cluster, error)
	DeleteCluster(ctx context.Context, by domain.Principal, id string, force bool) error
	InstallCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	RestoreCluster(ctx context.Context, by domain.Principal, id string, from domain.Restored) (*domain.Cluster, error)
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads Secrets.
	Live    client.Reader
	Service Service
	// Recorder publishes events about AgentClusterInstalls.
	Recorder events.EventRecorder
	// Order is what waits for what.
	Order *precedence.Order
	// Versions are those that the service has images of, the default first.
	Versions []string
	// URL is that of the service, without a slash at the end.
	URL string
}

// Reconciler serves AgentClusterInstalls.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{d} }

// +kubebuilder:rbac:groups=extensions.hive.openshift.io,resources=agentclusterinstalls,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=extensions.hive.openshift.io,resources=agentclusterinstalls/status,verbs=patch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments;clusterimagesets,verbs=get;list;watch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=infraenvs,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create;patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile states a cluster to the service, installs it when it is ready, and reports.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	seen, err := r.observe(ctx, request.NamespacedName)
	switch {
	case err != nil || seen == nil:
		return ctrl.Result{}, err
	case !seen.install.DeletionTimestamp.IsZero():
		return ctrl.Result{}, r.release(ctx, seen)
	}
	if seen.obstacle == nil {
		if err := r.addFinalizer(ctx, seen); err != nil {
			return ctrl.Result{}, err
		}
		seen.obstacle = r.state(ctx, seen)
	}
	if seen.obstacle == nil {
		seen.refusal = r.begin(ctx, seen)
	}
	err = r.credentials(ctx, seen)
	err = errors.Join(err, r.report(ctx, seen))
	for _, why := range []error{seen.obstacle, seen.refusal} {
		if domain.Transient(why) {
			return ctrl.Result{}, errors.Join(err, why)
		}
	}
	switch {
	case seen.obstacle != nil:
		return ctrl.Result{RequeueAfter: missing}, err
	case seen.unread:
		return ctrl.Result{RequeueAfter: unread}, err
	case seen.rest > 0:
		return ctrl.Result{RequeueAfter: min(seen.rest, look)}, err
	}
	return ctrl.Result{RequeueAfter: look}, err
}

// addFinalizer keeps the object until the service has forgotten the cluster, and has it deleted with its ClusterDeployment.
func (r *Reconciler) addFinalizer(ctx context.Context, seen *snapshot) error {
	before := seen.install.DeepCopy()
	controllerutil.AddFinalizer(seen.install, hiveextv1.FinalizerAgentClusterInstall)
	owned := false
	for _, owner := range seen.install.OwnerReferences {
		owned = owned || owner.UID == seen.deployment.UID
	}
	if !owned {
		seen.install.OwnerReferences = append(seen.install.OwnerReferences, metav1.OwnerReference{
			APIVersion: hivev1.GroupVersion.String(), Kind: "ClusterDeployment", Name: seen.deployment.Name, UID: seen.deployment.UID,
		})
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, seen.install.ObjectMeta) {
		return nil
	}
	if err := r.Client.Patch(ctx, seen.install, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("adding the finalizer and the owner of AgentClusterInstall %s: %w", seen.key, err)
	}
	return nil
}

// state applies the objects to the cluster in the service. Its error is why that is not done.
func (r *Reconciler) state(ctx context.Context, seen *snapshot) error {
	id := string(seen.deployment.UID)
	if seen.cluster == nil {
		// Those of ClusterDeployments that had this name before, and are gone.
		if err := r.deleteClusters(ctx, seen, id); err != nil {
			return err
		}
		settings := domain.ClusterSettings{Imported: seen.deployment.Spec.Installed}
		r.settle(seen, &settings)
		cluster, err := r.Service.CreateCluster(ctx, domain.Kubernetes, domain.NewCluster{
			ID: id, Name: seen.deployment.Spec.ClusterName, Kube: domain.KubeRef{Namespace: seen.deployment.Namespace, Name: seen.deployment.Name}, ClusterSettings: settings,
			Restored: seen.restored,
		})
		seen.cluster = cluster
		return err
	}
	if seen.restored != nil {
		cluster, err := r.Service.RestoreCluster(ctx, domain.Kubernetes, id, *seen.restored)
		if err != nil {
			return err
		}
		seen.cluster = cluster
	}
	wanted := seen.cluster.ClusterSettings
	r.settle(seen, &wanted)
	if equality.Semantic.DeepEqual(wanted, seen.cluster.ClusterSettings) {
		return nil
	}
	cluster, err := r.Service.UpdateCluster(ctx, domain.Kubernetes, id, func(settings *domain.ClusterSettings) error {
		r.settle(seen, settings)
		return nil
	})
	if err == nil {
		seen.cluster = cluster
	}
	return err
}

// begin starts the installation of a cluster that is ready, and of hosts that join an installed one, but for a cluster that is being deleted. While a cluster hibernates, hosts do not join
// it: its API gives them nothing to join with, and their installation would fail. Its error is why that was refused.
func (r *Reconciler) begin(ctx context.Context, seen *snapshot) error {
	if seen.install.Spec.HoldInstallation || !seen.deployment.DeletionTimestamp.IsZero() {
		return nil
	}
	prepared := seen.cluster.Preparation
	if seen.rest = time.Until(prepared.RetryAt); seen.cluster.Status == lifecycle.ClusterReady && seen.rest <= 0 && !prepared.Cancelled {
		cluster, err := r.Service.InstallCluster(ctx, domain.Kubernetes, seen.cluster.ID)
		if err != nil {
			return err
		}
		seen.cluster = cluster
	}
	if seen.deployment.Spec.PowerState == hivev1.PowerStateHibernating {
		return nil
	}
	var refusals []error
	for i := range seen.hosts {
		h := &seen.hosts[i]
		if !h.DayTwo || !h.Approved || h.State != lifecycle.Known {
			continue
		}
		before, err := r.installedBefore(ctx, h)
		if err == nil && !before {
			_, err = r.Service.InstallHost(ctx, domain.Kubernetes, h.HostKey)
		}
		refusals = append(refusals, err)
	}
	return errors.Join(refusals...)
}

// report writes the status where it changed.
func (r *Reconciler) report(ctx context.Context, seen *snapshot) error {
	before := seen.install.DeepCopy()
	seen.install.Status = status(seen, r.URL, metav1.Now())
	if equality.Semantic.DeepEqual(before.Status, seen.install.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, seen.install, client.MergeFrom(before)); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("reporting on AgentClusterInstall %s: %w", seen.key, err))
	}
	r.tell(seen, before.Status.Conditions)
	return nil
}

// deleteClusters deletes the clusters in the service that were made for the ClusterDeployment of this name, but for one.
func (r *Reconciler) deleteClusters(ctx context.Context, seen *snapshot, but string) error {
	key := deploymentKey(seen.install)
	found, err := r.Service.ListClusters(ctx, domain.Kubernetes, domain.ClusterFilter{Kube: &domain.KubeRef{Namespace: key.Namespace, Name: key.Name}})
	if err != nil {
		return fmt.Errorf("listing the clusters of ClusterDeployment %s: %w", key, err)
	}
	for i := range found.Items {
		if found.Items[i].ID == but {
			continue
		}
		err := r.Service.DeleteCluster(ctx, domain.Kubernetes, found.Items[i].ID, true)
		if err != nil && domain.KindOf(err) != domain.NotFound {
			return fmt.Errorf("deleting the cluster of AgentClusterInstall %s: %w", seen.key, err)
		}
	}
	return nil
}

// release frees the hosts, makes the service forget the cluster and removes its finalizer. An installation that is under way ends: hosts that left the discovery image must boot it again.
func (r *Reconciler) release(ctx context.Context, seen *snapshot) error {
	if !controllerutil.ContainsFinalizer(seen.install, hiveextv1.FinalizerAgentClusterInstall) {
		return nil
	}
	if !seen.rival {
		if err := errors.Join(r.deleteClusters(ctx, seen, ""), r.freeAgents(ctx, seen)); err != nil {
			return err
		}
	}
	before := seen.install.DeepCopy()
	controllerutil.RemoveFinalizer(seen.install, hiveextv1.FinalizerAgentClusterInstall)
	return outcome.IgnoreGone(r.Client.Patch(ctx, seen.install, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}
