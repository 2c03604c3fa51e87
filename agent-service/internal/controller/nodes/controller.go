// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodes lets hosts become nodes of the clusters that they are installed for: for each cluster with node access and hosts it keeps a
// workload.Watcher, which decides about their certificate requests.
package nodes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/workload"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

// look is how often node access is read again: Secrets are not watched, which would need the right to read all of them.
const look = time.Minute

// askedLast is for how long a machine that lost its certificate gets tokens after it last asked. It asks with each poll, of which one in a while is kept.
const askedLast = time.Hour

// Service is what the controller needs of the service.
type Service interface {
	ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error)
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	GetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	ControlPlane(ctx context.Context, by domain.Principal, id string) (plane *domain.ControlPlane, nodeManager string, err error)
	NoteNode(ctx context.Context, key domain.HostKey, clusterID string, node domain.Node) error
	NoteCertificate(ctx context.Context, key domain.HostKey, clusterID string, certificate domain.Certificate) error
	Subscribe() *feed.Subscription
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads Secrets of node access.
	Live    client.Reader
	Service Service
	Tokens  workload.Tokens
	// Recorder tells of clusters that cannot be watched.
	Recorder events.EventRecorder
}

// Reconciler looks after clusters that take nodes.
type Reconciler struct {
	Deps
	// life ends with the controllers, and all watchers with it.
	life context.Context //nolint:containedctx // watchers outlive the reconcile that begins them

	mu       sync.Mutex
	watchers map[types.NamespacedName]*watcher
	// readers are notified of clusters whose Nodes changed; own is that of this controller.
	readers []chan event.GenericEvent
	own     <-chan event.GenericEvent
}

// watcher is a running workload.Watcher.
type watcher struct {
	*workload.Watcher
	// access is the version of node access that it runs with, uid that of the ClusterDeployment.
	access string
	uid    types.UID
	stop   context.CancelFunc
}

// New returns a Reconciler whose watchers end with ctx.
func New(ctx context.Context, d Deps) *Reconciler {
	r := &Reconciler{Deps: d, life: ctx, watchers: map[types.NamespacedName]*watcher{}}
	r.own = r.Changes()
	return r
}

// changesKept is how many changes wait for a reader. More are dropped: a reader looks again by itself.
const changesKept = 1024

// Changes are ClusterDeployments, by name and namespace, of which a Node became Ready or is not Ready any more. Each reader has a channel of its own, and asks for it before the
// controllers start.
func (r *Reconciler) Changes() <-chan event.GenericEvent {
	changes := make(chan event.GenericEvent, changesKept)
	r.readers = append(r.readers, changes)
	return changes
}

// changed notifies of a cluster. It does not block.
func (r *Reconciler) changed(key types.NamespacedName) {
	for _, reader := range r.readers {
		select {
		case reader <- event.GenericEvent{Object: &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}}:
		default:
		}
	}
}

// NodeReady says whether a cluster has a Ready Node of that name. It is not known where the cluster is not watched: it has no hosts, is stopped or not reached.
func (r *Reconciler) NodeReady(cluster types.NamespacedName, node string) (ready, known bool) {
	r.mu.Lock()
	w := r.watchers[cluster]
	r.mu.Unlock()
	if w == nil {
		return false, false
	}
	return w.Ready(node)
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("nodes").
		For(&hivev1.ClusterDeployment{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, stops), predicate.NewPredicateFuncs(mayTakeNodes))).
		WatchesRawSource(source.Channel(r.own, &handler.EnqueueRequestForObject{})).
		WatchesRawSource(servicewatch.Source[ctrl.Request]{Service: r.Service, Concerns: r.concerned}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: servicewatch.RateLimiter[ctrl.Request]()}).
		Complete(tracing.ReconcilerOf("nodes", outcome.Reconciler[ctrl.Request](r), tracing.OfClusterDeployment(r.Client)))
}

// stops lets through the moment at which a hibernating cluster stops.
var stops = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool { return asleep(e.ObjectOld) != asleep(e.ObjectNew) }}

// asleep says that a cluster that hibernates has no machine that runs, or no API: its nodes are of no interest. Until then it is known which of them are gone.
func asleep(object client.Object) bool {
	deployment, ok := object.(*hivev1.ClusterDeployment)
	return ok && deployment.Spec.PowerState == hivev1.PowerStateHibernating &&
		(hivev1.IsConditionTrue(deployment.Status.Conditions, hivev1.ClusterDeploymentHibernating) || hivev1.IsConditionTrue(deployment.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped))
}

// mayTakeNodes selects clusters with node access, and those whose hosts may run the control plane.
func mayTakeNodes(object client.Object) bool {
	deployment, ok := object.(*hivev1.ClusterDeployment)
	return ok && (hasAccess(deployment) || deployment.Spec.Platform.Hosted == nil)
}

func hasAccess(deployment *hivev1.ClusterDeployment) bool {
	return deployment.Spec.ClusterMetadata != nil && deployment.Spec.ClusterMetadata.NodeAccessSecretRef != nil
}

// concerned is the cluster of a host that changed.
func (r *Reconciler) concerned(ctx context.Context, change domain.Change) []ctrl.Request {
	if change.Kind != domain.HostChanged || change.Gone {
		return nil
	}
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, change.Host)
	if err != nil || host.ClusterID == "" || !joining(host.State) {
		return nil
	}
	cluster, err := r.Service.GetCluster(ctx, domain.Kubernetes, host.ClusterID)
	if err != nil || cluster.Kube == (domain.KubeRef{}) {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: cluster.Kube.Namespace, Name: cluster.Kube.Name}}}
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Reconcile keeps a watcher of a cluster that runs, takes nodes and has hosts, and tells it the hosts.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	deployment := &hivev1.ClusterDeployment{}
	if err := r.Client.Get(ctx, request.NamespacedName, deployment); err != nil {
		r.stop(request.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if asleep(deployment) {
		if err := r.noteLast(ctx, deployment); err != nil {
			return ctrl.Result{}, err
		}
	}
	plane, nodeManager, err := r.plane(ctx, deployment)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !hasAccess(deployment) && plane == nil || deployment.DeletionTimestamp != nil || asleep(deployment) {
		r.stop(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	machines, hosts, err := r.machines(ctx, deployment)
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(machines) == 0 { // a host that joins later brings it back
		r.stop(request.NamespacedName)
		return ctrl.Result{}, nil
	}
	r.ofPlane(machines, hosts, plane, time.Now())
	access, err := workload.ReadAccess(ctx, r.Live, deployment)
	if err == nil && access == nil {
		access, err = workload.OwnAccess(plane, nodeManager)
	}
	if domain.KindOf(err) == domain.Conflict {
		logf.FromContext(ctx).Info("cluster takes no nodes at the moment", "why", err.Error())
		r.stop(request.NamespacedName)
		return ctrl.Result{RequeueAfter: look}, nil
	}
	if err != nil || access == nil {
		return ctrl.Result{}, err
	}
	w, err := r.watch(ctx, request.NamespacedName, deployment.UID, access)
	if err != nil {
		return ctrl.Result{}, err
	}
	addresses := workload.Addresses(hosts, access.Reserved())
	for i := range machines {
		machines[i].Addresses = addresses[machines[i].Host]
		machines[i].NameReserved = access.RefusesName(&hosts[i])
	}
	w.Expect(machines)
	if err := w.TooMuch(); err != nil {
		r.Recorder.Eventf(deployment, nil, corev1.EventTypeWarning, "ClusterNotWatched", "Watch", "The nodes of the cluster are not looked after: %v", err)
	}
	return ctrl.Result{RequeueAfter: look}, r.note(ctx, w, machines, hosts)
}

// plane is the control plane of a cluster whose host runs it, nil for others.
func (r *Reconciler) plane(ctx context.Context, deployment *hivev1.ClusterDeployment) (*domain.ControlPlane, string, error) {
	if deployment.Spec.Platform.Hosted != nil {
		return nil, "", nil
	}
	plane, nodeManager, err := r.Service.ControlPlane(ctx, domain.Kubernetes, string(deployment.UID))
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return nil, "", fmt.Errorf("reading the control plane of cluster %s: %w", client.ObjectKeyFromObject(deployment), err)
	}
	return plane, nodeManager, nil
}

// ofPlane adds to machines what a control plane that one of them runs makes of them, and how their tokens are made: those that were installed before it answered get theirs from the
// Watcher, as those whose kubelet lost its certificate do while they ask for one, and those that take long to join get them anew.
func (r *Reconciler) ofPlane(machines []workload.Machine, hosts []domain.Host, plane *domain.ControlPlane, now time.Time) {
	for i := range machines {
		h := &hosts[i]
		if plane.RunsOn(h) {
			machines[i].Labels = maps.Clone(machines[i].Labels)
			if machines[i].Labels == nil {
				machines[i].Labels = map[string]string{}
			}
			machines[i].Labels[workload.ControlPlaneLabel] = ""
		}
		awaits, rejoins := plane.Awaits(h), h.Rejoins() && now.Sub(h.Node.Rejoin.AskedAt) < askedLast
		installs := lifecycle.Installs(h.State) && !h.Node.WasReady // one that was a Ready node, and booted the discovery image since, has its certificate
		if h.Node.Ready || !awaits && !installs && !rejoins {
			continue
		}
		machines[i].MakeToken = func(ctx context.Context, cluster kubernetes.Interface) error {
			is, err := r.Service.GetHost(ctx, domain.Kubernetes, h.HostKey)
			switch {
			case domain.KindOf(err) == domain.NotFound, err == nil && r.Tokens.ID(is) != r.Tokens.ID(h):
				return nil // it was released a moment ago, and its token revoked
			case err != nil:
				return fmt.Errorf("reading host %s: %w", h.HostKey, err)
			}
			return r.Tokens.Make(ctx, cluster, h, time.Now())
		}
		if !awaits && !rejoins {
			machines[i].TokenMadeAt = h.StateUpdatedAt
		}
	}
}

// noteLast keeps what a cluster knew of its hosts before it stopped.
func (r *Reconciler) noteLast(ctx context.Context, deployment *hivev1.ClusterDeployment) error {
	r.mu.Lock()
	w := r.watchers[client.ObjectKeyFromObject(deployment)]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	machines, hosts, err := r.machines(ctx, deployment)
	if err != nil {
		return err
	}
	return r.note(ctx, w, machines, hosts)
}

// note keeps what the cluster knows of the hosts, which machines are made of.
func (r *Reconciler) note(ctx context.Context, w *watcher, machines []workload.Machine, hosts []domain.Host) error {
	for i := range hosts {
		h := &hosts[i]
		node, known := w.Node(machines[i])
		same := h.Node.Name == node.Name && h.Node.Seen == node.Seen && h.Node.Ready == node.Ready
		if !known || same || !node.Seen && h.Node.Name == "" {
			continue
		}
		if err := r.Service.NoteNode(ctx, h.HostKey, h.ClusterID, node); err != nil && domain.KindOf(err) != domain.NotFound {
			return fmt.Errorf("keeping what is known of node %s: %w", node.Name, err)
		}
	}
	return nil
}

// approved keeps a certificate with its host. One that is not kept is missing in a list; that the Node is the host's is known by the request, and kept when the Node is there.
func (r *Reconciler) approved(ctx context.Context, machine workload.Machine, certificate domain.Certificate) {
	if err := r.Service.NoteCertificate(ctx, machine.Host, machine.ClusterID, certificate); err != nil {
		logf.FromContext(ctx).Info("approved certificate request is not shown", "request", certificate.Name, "why", err.Error())
	}
}

// machines are the hosts that are nodes of the cluster, or are becoming so.
func (r *Reconciler) machines(ctx context.Context, deployment *hivev1.ClusterDeployment) ([]workload.Machine, []domain.Host, error) {
	hosts, err := r.Service.ListHosts(ctx, domain.Kubernetes, domain.HostFilter{ClusterID: string(deployment.UID), Page: domain.WholeCluster})
	if err != nil {
		return nil, nil, fmt.Errorf("listing the hosts of cluster %s: %w", client.ObjectKeyFromObject(deployment), err)
	}
	var machines []workload.Machine
	var members []domain.Host
	for i := range hosts.Items {
		if h := &hosts.Items[i]; joining(h.State) {
			members = append(members, *h)
			_, restricted := join.SplitLabels(h.NodeLabels)
			machines = append(machines, workload.Machine{
				Host: h.HostKey, ClusterID: h.ClusterID, NodeName: workload.NodeName(h), TokenID: r.Tokens.ID(h), Joining: true,
				Labels: restricted, Joined: h.Joined(), Rejoins: h.Node.Rejoin.Stamp != "",
			})
		}
	}
	return machines, members, nil
}

// joining says whether a host is, or is becoming, a node.
func joining(state lifecycle.State) bool {
	return slices.Contains([]lifecycle.State{
		lifecycle.Installing, lifecycle.InstallingInProgress, lifecycle.InstallingPendingUserAction, lifecycle.Installed, lifecycle.AddedToExistingCluster,
	}, state)
}

// watch returns the watcher of a cluster, a new one where its access changed.
func (r *Reconciler) watch(ctx context.Context, key types.NamespacedName, uid types.UID, access *workload.Access) (*watcher, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watchers[key]; w != nil {
		if w.access == access.Version && w.uid == uid {
			return w, nil
		}
		w.stop()
		delete(r.watchers, key)
	}
	life, stop := context.WithCancel(r.life)
	made, err := workload.Watch(life, access, logf.FromContext(ctx), func() { r.changed(key) }, r.approved) //nolint:contextcheck // it outlives the reconcile
	if err != nil {
		stop()
		return nil, fmt.Errorf("watching cluster %s: %w", key, err)
	}
	w := &watcher{Watcher: made, access: access.Version, uid: uid, stop: stop}
	r.watchers[key] = w
	return w, nil
}

func (r *Reconciler) stop(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.watchers[key]; w != nil {
		w.stop()
		delete(r.watchers, key)
	}
}
