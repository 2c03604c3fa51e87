// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package agent serves Agents: it makes one for every host of an InfraEnv that is a custom resource, states what users want of it to the service, and reports
// what the machine is and does. A heartbeat causes no write.
package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/agent-service/internal/controller/agentclassification"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/apis/ownwrites"
)

// Service is what the controller needs of the service.
type Service interface {
	Hosts
	Restorer
	HostMinimums() validate.Minimums
	GetCluster(ctx context.Context, by domain.Principal, id string) (*domain.Cluster, error)
	Subscribe() *feed.Subscription
}

// Hosts reads and changes hosts.
type Hosts interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error)
	Inventory(ctx context.Context, by domain.Principal, key domain.HostKey) ([]byte, error)
	ApplyDesired(ctx context.Context, by domain.Principal, key domain.HostKey, desired service.DesiredHost) (*domain.Host, error)
	DeleteHost(ctx context.Context, by domain.Principal, key domain.HostKey) error
	RevokeTokens(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
}

// Restorer makes hosts again of what their Agents record, where the service lost its data.
type Restorer interface {
	RestoreHost(ctx context.Context, by domain.Principal, key domain.HostKey, from domain.RestoredHost) (*domain.Host, error)
	RestoreRelease(ctx context.Context, by domain.Principal, key domain.HostKey, cluster domain.KubeRef, wipe domain.Wipe) error
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads Secrets, and Agents that the cache does not have yet.
	Live    client.Reader
	Service Service
	// Queries are the queries of AgentClassifications.
	Queries *agentclassification.Queries
	// Recorder publishes events about Agents.
	Recorder events.EventRecorder
	// Order is what waits for what.
	Order *precedence.Order
	// URL is that of the service, without a slash at the end.
	URL string
}

// Reconciler serves Agents. A request is a host: the same machine in another InfraEnv is another one.
type Reconciler struct {
	Deps
	// written spares passes that begin with a view older than their own writes, which would write the same again.
	written ownwrites.Memory[domain.HostKey]
}

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{Deps: d} }

// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents/status,verbs=patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=infraenvs;agentclassifications,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch;bind
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile brings an Agent and its host together.
func (r *Reconciler) Reconcile(ctx context.Context, key domain.HostKey) (ctrl.Result, error) {
	seen, err := r.observe(ctx, key)
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, stranger := range seen.strangers {
		if !stranger.DeletionTimestamp.IsZero() {
			err = errors.Join(err, r.removeFinalizer(ctx, stranger))
		}
	}
	switch {
	case err != nil:
		return ctrl.Result{}, err
	case seen.agent == nil && seen.host != nil && seen.infraEnv.DeletionTimestamp.IsZero():
		return ctrl.Result{}, r.create(ctx, seen)
	case seen.agent == nil:
		r.written.Forget(key)
		return ctrl.Result{}, nil
	case r.written.Ahead(key, seen.agent.ResourceVersion):
		return ctrl.Result{}, nil // the cache will tell
	}
	// First: tokens end also while an installation keeps the Agent that is being deleted.
	if err := r.revoke(ctx, seen); err != nil {
		return ctrl.Result{}, err
	}
	if !seen.agent.DeletionTimestamp.IsZero() {
		return r.release(ctx, seen)
	}
	if err := r.restore(ctx, seen); err != nil {
		return ctrl.Result{}, err
	}
	switch {
	case seen.waits:
		seen.obstacle = domain.Refuse(domain.Invalid, clusterNotFound, "the service lost its data, and has not got ClusterDeployment %s, which the host was installed in, back from its AgentClusterInstall yet", ClusterKey(seen.agent))
	case seen.host != nil:
		seen.obstacle = r.state(ctx, seen)
		if outcome.IsAgain(seen.obstacle) {
			return ctrl.Result{}, outcome.Pace(seen.obstacle, lookSoon) // the cache will tell before
		}
		if domain.ReasonOf(seen.obstacle) == clusterNotFound && justBound(seen.agent, time.Now()) {
			return ctrl.Result{RequeueAfter: clusterFollows}, nil
		}
	}
	err = errors.Join(r.label(ctx, seen), r.report(ctx, seen))
	if domain.Transient(seen.obstacle) {
		err = errors.Join(err, seen.obstacle)
	}
	result := ctrl.Result{}
	if seen.waits || seen.agent.Spec.IgnitionEndpointTokenReference != nil || domain.ReasonOf(seen.obstacle) == clusterInstalling {
		result.RequeueAfter = look
	}
	if seen.host != nil && seen.host.Reservation.Holds(time.Now()) {
		result.RequeueAfter = time.Until(seen.host.Reservation.Until) + time.Second // its end is no change of the host
	}
	if seen.soon {
		result.RequeueAfter = lookSoon
	}
	return result, err
}

// look is how often a Secret that an Agent names is read again: Secrets are not watched, which would need the right to read all of them.
// So often a host is looked at, too, that its cluster keeps while it is installed: the end of that is no change of the host.
const look = time.Minute

// lookSoon is how often an Agent is looked at whose InfraEnv the service lost with its data, or that the cache shows as it was before another replica applied its spec.
const lookSoon = 2 * time.Second

const (
	clusterInstalling = "ClusterInstalling"
	clusterNotFound   = "ClusterNotFound"
	specOutdated      = "SpecOutdated"
)

// A MachinePool may make the AgentClusterInstall with which the service learns of the cluster just before it binds machines: that the cluster is not
// known yet is no input error for so long. clusterFollows is how soon it is looked for again.
const (
	clusterExpected = 5 * time.Second
	clusterFollows  = 500 * time.Millisecond
)

// justBound says that a MachinePool bound the Agent a moment ago. A time that is to come is that of a clock, or of a user, that is wrong.
func justBound(agent *agentv1.Agent, now time.Time) bool {
	at, err := time.Parse(time.RFC3339, agent.Annotations[agentv1.MachinePoolBoundAtAnnotation])
	return err == nil && now.Sub(at).Abs() < clusterExpected
}

// create makes the Agent of a host as the host is, under the first of its names that no other InfraEnv of the namespace uses.
func (r *Reconciler) create(ctx context.Context, seen *snapshot) error {
	defer r.Order.Begin()()
	name, beside := seen.key.AgentNames()
	made := newAgent(seen, name)
	err := r.Client.Create(ctx, made)
	if apierrors.IsAlreadyExists(err) {
		there := &agentv1.Agent{}
		if err := r.Live.Get(ctx, client.ObjectKeyFromObject(made), there); err != nil {
			return fmt.Errorf("reading Agent %s: %w", made.Name, err)
		}
		if HostKey(there) == seen.key {
			return nil // the cache will tell
		}
		made = newAgent(seen, beside)
		err = r.Client.Create(ctx, made)
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("making Agent %s/%s: %w", made.Namespace, made.Name, err)
	}
	return nil
}

func newAgent(seen *snapshot, name string) *agentv1.Agent {
	made := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{
		Namespace: seen.infraEnv.Namespace, Name: name, Finalizers: []string{agentv1.AgentFinalizer}, Labels: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: agentv1.GroupVersion.String(), Kind: infraEnvKind, Name: seen.infraEnv.Name, UID: seen.infraEnv.UID,
		}},
	}}
	maps.Copy(made.Labels, seen.infraEnv.Spec.AgentLabels)
	made.Labels[agentv1.InfraEnvLabel] = infraenv.Label(seen.infraEnv)
	h := seen.host
	made.Spec = agentv1.AgentSpec{Approved: h.Approved, Role: h.Role, Hostname: h.RequestedHostname}
	if seen.cluster != nil && seen.cluster.Kube != (domain.KubeRef{}) {
		made.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Namespace: seen.cluster.Kube.Namespace, Name: seen.cluster.Kube.Name}
	}
	return made
}

// release makes the service forget the host and lets the Agent go. A machine that still runs the image registers again.
func (r *Reconciler) release(ctx context.Context, seen *snapshot) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(seen.agent, agentv1.AgentFinalizer) {
		return ctrl.Result{}, nil
	}
	err := r.Service.DeleteHost(ctx, domain.Kubernetes, seen.key)
	if domain.KindOf(err) == domain.Conflict {
		seen.obstacle = err // while it is installed; the end of the installation is notified
		return ctrl.Result{}, r.report(ctx, seen)
	}
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return ctrl.Result{}, fmt.Errorf("deregistering host %s: %w", seen.key, err)
	}
	return ctrl.Result{}, r.removeFinalizer(ctx, seen.agent)
}

// revoke ends the tokens of the machine where a user asks for it. The annotation goes last: what is interrupted is done once more.
func (r *Reconciler) revoke(ctx context.Context, seen *snapshot) error {
	if _, asked := seen.agent.Annotations[agentv1.RevokeTokensAnnotation]; !asked {
		return nil
	}
	if _, err := r.Service.RevokeTokens(ctx, domain.Kubernetes, seen.key); err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("revoking the tokens of host %s: %w", seen.key, err)
	}
	before := seen.agent.DeepCopy()
	delete(seen.agent.Annotations, agentv1.RevokeTokensAnnotation)
	return outcome.IgnoreGone(r.Client.Patch(ctx, seen.agent, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// removeFinalizer lets an Agent disappear that is being deleted.
func (r *Reconciler) removeFinalizer(ctx context.Context, agent *agentv1.Agent) error {
	before := agent.DeepCopy()
	if !controllerutil.RemoveFinalizer(agent, agentv1.AgentFinalizer) {
		return nil
	}
	return outcome.IgnoreGone(r.Client.Patch(ctx, agent, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// label keeps labels and annotations that follow from what the machine is; those of users stay.
func (r *Reconciler) label(ctx context.Context, seen *snapshot) error {
	before := seen.agent.DeepCopy()
	if err := relabel(ctx, seen, r.Queries); err != nil {
		return fmt.Errorf("classifying Agent %s/%s: %w", seen.agent.Namespace, seen.agent.Name, err)
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, seen.agent.ObjectMeta) {
		return nil
	}
	labelled := seen.agent.DeepCopy()
	if err := r.Client.Patch(ctx, labelled, client.MergeFrom(before)); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("labelling Agent %s/%s: %w", seen.agent.Namespace, seen.agent.Name, err))
	}
	r.written.Wrote(seen.key, labelled.ResourceVersion)
	return nil
}

// report writes the status where it changed.
func (r *Reconciler) report(ctx context.Context, seen *snapshot) error {
	before := seen.agent.DeepCopy()
	seen.agent.Status = status(seen, r.URL, metav1.Now())
	if equality.Semantic.DeepEqual(before.Status, seen.agent.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, seen.agent, client.MergeFrom(before)); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("reporting on Agent %s/%s: %w", seen.agent.Namespace, seen.agent.Name, err))
	}
	r.written.Wrote(seen.key, seen.agent.ResourceVersion)
	r.tell(seen, before.Status.Conditions)
	return nil
}
