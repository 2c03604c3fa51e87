// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release removes hosts that were released from their clusters: their pods leave, and the Node, its token and its open certificate requests go. A cluster that does not
// answer is not waited for: what is left behind is noted.
package release

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/servicewatch"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/workload"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/tracing"
)

const (
	// DrainTimeout is how long pods may take to leave a node where no MachinePool says.
	DrainTimeout = 5 * time.Minute
	// AnswerTimeout is how long a cluster may be away.
	AnswerTimeout = 2 * time.Minute
	// clockSkew is how far the clock of a cluster may be ahead of this one.
	clockSkew = 5 * time.Minute
	// look is how often pods that are leaving are looked at, and a cluster that is away is tried.
	look = 2 * time.Second
	// silentLook is how often a host is looked at whose cluster another host asks.
	silentLook = 10 * time.Second
)

// Service is what the controller needs of the service.
type Service interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error)
	LeaveCluster(ctx context.Context, key domain.HostKey, releasedAt time.Time, note string) error
	Subscribe() *feed.Subscription
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads Secrets of node access.
	Live    client.Reader
	Service Service
	Tokens  workload.Tokens
	Clock   clock.PassiveClock
}

// Reconciler looks after hosts that leave a cluster.
type Reconciler struct {
	Deps
	mu sync.Mutex
	// answered is when the cluster of a host answered last, or was asked first.
	answered map[domain.HostKey]time.Time
	// began is when this process first went on with the departure of a host. Pods get their time to leave from then: while no process asks, no pod is evicted.
	began map[domain.HostKey]time.Time
	// silent are clusters that did not answer, by id, with whether a host asks them again. A cluster that accepts requests and answers none would otherwise occupy all workers.
	silent map[string]bool
}

// New returns a Reconciler.
func New(d Deps) *Reconciler {
	return &Reconciler{Deps: d, answered: map[domain.HostKey]time.Time{}, began: map[domain.HostKey]time.Time{}, silent: map[string]bool{}}
}

// SetupWithManager registers the controller.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	log := mgr.GetLogger().WithValues("controller", "release")
	return builder.TypedControllerManagedBy[domain.HostKey](mgr).
		Named("release").
		WatchesRawSource(servicewatch.Source[domain.HostKey]{Service: r.Service, All: r.leaving, Concerns: r.concerned}).
		WithOptions(controller.TypedOptions[domain.HostKey]{MaxConcurrentReconciles: 8, RateLimiter: servicewatch.RateLimiter[domain.HostKey]()}).
		WithLogConstructor(func(key *domain.HostKey) logr.Logger {
			if key == nil {
				return log
			}
			return log.WithValues("infraEnvID", key.InfraEnvID, "host", key.HostID)
		}).
		Complete(tracing.Reconciler("release", outcome.Reconciler[domain.HostKey](r)))
}

// leaves is true for a host whose cluster still has to be rid of it.
func leaves(h *domain.Host) bool { return h.Release.Underway() && !h.Release.Left() }

func (r *Reconciler) concerned(ctx context.Context, change domain.Change) []domain.HostKey {
	if change.Kind != domain.HostChanged || change.Gone {
		return nil
	}
	h, err := r.Service.GetHost(ctx, domain.Kubernetes, change.Host)
	if err != nil || !leaves(h) {
		return nil
	}
	return []domain.HostKey{change.Host}
}

// leaving are all such hosts.
func (r *Reconciler) leaving(ctx context.Context) (keys []domain.HostKey, err error) {
	const page = 1000
	filter := domain.HostFilter{Page: domain.Page{Limit: page}}
	for _, state := range lifecycle.States {
		if lifecycle.Unbound(state) {
			filter.States = append(filter.States, state)
		}
	}
	for {
		found, err := r.Service.ListHosts(ctx, domain.Kubernetes, filter)
		if err != nil {
			return keys, fmt.Errorf("listing the hosts that leave their clusters: %w", err)
		}
		for i := range found.Items {
			if leaves(&found.Items[i]) {
				keys = append(keys, found.Items[i].HostKey)
			}
		}
		if len(found.Items) < page {
			return keys, nil
		}
		filter.Offset += page
	}
}

// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments;machinepools,verbs=get;list;watch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Reconcile goes on with the departure of one host.
func (r *Reconciler) Reconcile(ctx context.Context, key domain.HostKey) (ctrl.Result, error) {
	h, err := r.Service.GetHost(ctx, domain.Kubernetes, key)
	if domain.KindOf(err) == domain.NotFound || err == nil && !leaves(h) {
		r.forget(key)
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading host %s: %w", key, err)
	}
	gone, note, err := r.depart(ctx, h)
	now := r.Clock.Now()
	if err != nil && !errors.As(err, &awayError{}) {
		return ctrl.Result{}, fmt.Errorf("releasing host %s: %w", key, err)
	}
	if err != nil {
		away := now.Sub(r.since(key, now))
		if away < AnswerTimeout {
			if errors.Is(err, errAsked) {
				return ctrl.Result{RequeueAfter: silentLook}, nil
			}
			logf.FromContext(ctx).Info("cluster of a released host cannot be reached, trying again", "cluster", h.Release.Cluster, "why", err.Error())
			return ctrl.Result{RequeueAfter: look}, nil
		}
		how := "did not answer"
		switch {
		case errors.Is(err, workload.ErrTooMuch):
			how = "answered " + workload.ErrTooMuch.Error()
		case domain.KindOf(err) == domain.Conflict:
			how = "could not be asked (" + err.Error() + ")"
		}
		left := fmt.Sprintf("its Node %s may still be there. Delete it", h.Release.NodeName)
		if h.Release.Unjoined {
			left = fmt.Sprintf("the host was not known to have become its Node %s, which may be another machine's", h.Release.NodeName)
		}
		gone, note = true, fmt.Sprintf("The cluster %s for %s: %s", how, AnswerTimeout, left)
	} else {
		r.answer(key, now)
	}
	if !gone {
		return ctrl.Result{RequeueAfter: look}, nil
	}
	if err := r.Service.LeaveCluster(ctx, key, h.Release.StartedAt, note); err != nil && domain.KindOf(err) != domain.NotFound {
		return ctrl.Result{}, fmt.Errorf("noting that host %s left its cluster: %w", key, err)
	}
	r.forget(key)
	return ctrl.Result{}, nil
}

// awayError says that the cluster itself cannot be reached. Any other error is one of the service or of the management cluster, and says nothing about it.
type awayError struct{ error }

func (e awayError) Unwrap() error { return e.error }

// errAsked says that a cluster did not answer, and that another host asks it again.
var errAsked = errors.New("another host waits for the cluster")

// depart goes on with the departure.
func (r *Reconciler) depart(ctx context.Context, h *domain.Host) (gone bool, note string, err error) {
	release := h.Release
	key := client.ObjectKey{Namespace: release.Cluster.Namespace, Name: release.Cluster.Name}
	deployment := &hivev1.ClusterDeployment{}
	err = r.Client.Get(ctx, key, deployment)
	if apierrors.IsNotFound(err) || err == nil && string(deployment.UID) != release.ClusterID {
		r.answers(release.ClusterID)
		return true, "The cluster is gone", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("reading ClusterDeployment %s: %w", key, err)
	}
	successor, err := r.successor(ctx, h)
	if err != nil {
		return false, "", err
	}
	if successor != "" {
		return true, fmt.Sprintf("The Node %s stays: it is host %s by now", release.NodeName, successor), nil
	}
	access, err := workload.ReadAccess(ctx, r.Live, deployment)
	if domain.KindOf(err) == domain.Conflict { // there is none that can be used, or it may not be read
		return false, "", awayError{err}
	}
	if err != nil {
		return false, "", err
	}
	if access == nil {
		return true, "The cluster has no node access any more: its Node " + release.NodeName + " may still be there", nil
	}
	cluster, err := access.Client()
	if err != nil {
		return false, "", awayError{err}
	}
	until := release.StartedAt // a cluster that is deleted is not drained
	if deployment.DeletionTimestamp == nil {
		until = r.drainsSince(h).Add(r.drainTimeout(ctx, h))
	}
	former := *h
	former.ClusterID, former.Stamps.Binding, former.Node.Rejoin.Stamp = release.ClusterID, release.Binding, release.Rejoin
	departure := workload.Departure{NodeName: release.NodeName, TokenID: r.Tokens.ID(&former), Since: release.StartedAt.Add(clockSkew), DrainUntil: until, Unjoined: release.Unjoined}
	if !r.asks(release.ClusterID) {
		return false, "", awayError{errAsked}
	}
	if gone, note, err = departure.Depart(ctx, cluster, r.Clock.Now()); err != nil {
		r.isSilent(release.ClusterID)
		return false, "", awayError{err}
	}
	r.answers(release.ClusterID)
	return gone, note, nil
}

// asks says whether a host may ask its cluster: of a silent one, one host at a time may.
func (r *Reconciler) asks(cluster string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	asked, silent := r.silent[cluster]
	if silent {
		r.silent[cluster] = true
	}
	return !asked
}

func (r *Reconciler) isSilent(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent[cluster] = false
}

func (r *Reconciler) answers(cluster string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.silent, cluster)
}

// successor is another host that has the name of the Node in the cluster by now, empty for none.
func (r *Reconciler) successor(ctx context.Context, h *domain.Host) (string, error) {
	members, err := r.Service.ListHosts(ctx, domain.Kubernetes, domain.HostFilter{ClusterID: h.Release.ClusterID, Page: domain.WholeCluster})
	if err != nil {
		return "", fmt.Errorf("listing the hosts of the cluster: %w", err)
	}
	for i := range members.Items {
		if other := &members.Items[i]; other.HostKey != h.HostKey && other.Node.Name == h.Release.NodeName {
			return other.HostID, nil
		}
	}
	return "", nil
}

// drainTimeout is that of the MachinePool which the host belonged to: its labels stay on the Agent until the host is free.
func (r *Reconciler) drainTimeout(ctx context.Context, h *domain.Host) time.Duration {
	var agents agentv1.AgentList
	if err := r.Client.List(ctx, &agents, client.MatchingFields{agent.HostIndex: h.String()}); err != nil || len(agents.Items) == 0 {
		return DrainTimeout
	}
	labels := agents.Items[0].Labels
	pool := &hivev1.MachinePool{}
	key := client.ObjectKey{Namespace: labels[agentv1.MachinePoolNamespaceLabel], Name: labels[agentv1.MachinePoolLabel]}
	if key.Name == "" || r.Live.Get(ctx, key, pool) != nil {
		return DrainTimeout // of a pool that cannot be read, too: a machine never waits for it
	}
	if platform := pool.Spec.Platform.AgentBareMetal; platform != nil && platform.NodeDrainTimeout != nil {
		return platform.NodeDrainTimeout.Duration
	}
	return DrainTimeout
}

// drainsSince is when the pods of a host were first asked to leave, by this process.
func (r *Reconciler) drainsSince(h *domain.Host) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began, known := r.began[h.HostKey]; !known || began.Before(h.Release.StartedAt) {
		r.began[h.HostKey] = r.Clock.Now()
	}
	return r.began[h.HostKey]
}

func (r *Reconciler) since(key domain.HostKey, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.answered[key]; !known {
		r.answered[key] = now
	}
	return r.answered[key]
}

func (r *Reconciler) answer(key domain.HostKey, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered[key] = now
}

func (r *Reconciler) forget(key domain.HostKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.answered, key)
	delete(r.began, key)
}
