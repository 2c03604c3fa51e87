// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package infraenv serves InfraEnvs: it states them to the service, and says where their images are.
package infraenv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/agent-service/internal/controller/conditionevent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/outcome"
)

// infraEnvKind is how the owner references of Agents name InfraEnvs.
const infraEnvKind = "InfraEnv"

// look is how often Secrets and ConfigMaps that InfraEnvs name are read again: they are not watched, which would need the right to read all of them.
const look = 5 * time.Minute

// missing is how often something is looked for that is not there.
const missing = 15 * time.Second

// Service is what the controller needs of the service.
type Service interface {
	CreateInfraEnv(ctx context.Context, by domain.Principal, request domain.NewInfraEnv) (*domain.InfraEnv, error)
	UpdateInfraEnv(ctx context.Context, by domain.Principal, id string, change func(*domain.InfraEnvSettings) error) (*domain.InfraEnv, error)
	DeleteInfraEnv(ctx context.Context, by domain.Principal, id string, force bool) error
	RevokeHostTokens(ctx context.Context, by domain.Principal, id string) error
	Subscribe() *feed.Subscription
}

// Images knows where the image of an InfraEnv is.
type Images interface {
	Addresses(ctx context.Context, env *domain.InfraEnv) (Addresses, error)
}

// Addresses are those of an image and of its parts.
type Addresses struct {
	ISO                                          string
	Kernel, Initrd, RootFS, IPXEScript, Ignition string
	Events, StaticNetwork                        string
	// Lacks is how the image is not what was asked for, and what machines that boot it may miss; empty for nothing.
	Lacks string
	// Away is true for an image that cannot be had at the moment.
	Away bool
}

// Deps are what a Reconciler works with; all are required.
type Deps struct {
	Client client.Client
	// Live reads Secrets and ConfigMaps.
	Live    client.Reader
	Service Service
	Images  Images
	// Recorder publishes events about InfraEnvs.
	Recorder events.EventRecorder
}

// Reconciler serves InfraEnvs.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler { return &Reconciler{d} }

// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=infraenvs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=infraenvs/status,verbs=patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=nmstateconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=hive.openshift.io,resources=clusterdeployments,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets;configmaps,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile states an InfraEnv to the service and reports.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	infraEnv := &agentv1.InfraEnv{}
	if err := r.Client.Get(ctx, request.NamespacedName, infraEnv); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// First: tokens end also where the spec cannot be applied, and while hosts keep the InfraEnv that is being deleted.
	if err := r.revoke(ctx, infraEnv); err != nil {
		return ctrl.Result{}, err
	}
	if !infraEnv.DeletionTimestamp.IsZero() {
		return r.release(ctx, infraEnv)
	}
	if err := errors.Join(r.addFinalizer(ctx, infraEnv), r.adopt(ctx, infraEnv)); err != nil {
		return ctrl.Result{}, err
	}
	stated, err := r.observe(ctx, infraEnv)
	var env *domain.InfraEnv
	if err == nil {
		env, err = r.state(ctx, infraEnv, stated)
	}
	if err == nil {
		err = r.remember(ctx, infraEnv, env)
	}
	soon := err != nil
	var addresses Addresses
	if err == nil {
		addresses, err = r.Images.Addresses(ctx, env)
		soon = addresses.Away
	}
	if domain.Transient(err) {
		return ctrl.Result{}, fmt.Errorf("stating InfraEnv %s: %w", request, err)
	}
	result := ctrl.Result{RequeueAfter: look}
	if soon {
		result.RequeueAfter = missing
	}
	return result, r.report(ctx, infraEnv, env, addresses, err)
}

// addFinalizer keeps an InfraEnv until the service has forgotten it.
func (r *Reconciler) addFinalizer(ctx context.Context, infraEnv *agentv1.InfraEnv) error {
	before := infraEnv.DeepCopy()
	if !controllerutil.AddFinalizer(infraEnv, agentv1.InfraEnvFinalizer) {
		return nil
	}
	return r.Client.Patch(ctx, infraEnv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// adopt makes the InfraEnv the owner of its Agents that have none, as those of former versions of assisted-service have. It comes before the service knows the InfraEnv: no machine
// registers that would become another Agent.
func (r *Reconciler) adopt(ctx context.Context, infraEnv *agentv1.InfraEnv) error {
	var agents agentv1.AgentList
	err := r.Client.List(ctx, &agents, client.InNamespace(infraEnv.Namespace), client.MatchingLabels{agentv1.InfraEnvLabel: Label(infraEnv)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("listing the Agents of InfraEnv %s/%s: %w", infraEnv.Namespace, infraEnv.Name, err)
	}
	var failures []error
	for i := range agents.Items {
		before := &agents.Items[i]
		if slices.ContainsFunc(before.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == infraEnvKind }) {
			continue
		}
		after := before.DeepCopy()
		after.OwnerReferences = append(after.OwnerReferences, metav1.OwnerReference{APIVersion: agentv1.GroupVersion.String(), Kind: infraEnvKind, Name: infraEnv.Name, UID: infraEnv.UID})
		err := outcome.IgnoreGone(r.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
		if outcome.IsRefused(err) { // one Agent keeps the others from nothing
			logf.FromContext(ctx).Error(err, "an Agent gets no owner", "agent", before.Name)
			continue
		}
		failures = append(failures, err)
	}
	return errors.Join(failures...)
}

// release deletes the InfraEnv in the service and removes its finalizer. While hosts are bound it stays and says so.
func (r *Reconciler) release(ctx context.Context, infraEnv *agentv1.InfraEnv) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(infraEnv, agentv1.InfraEnvFinalizer) {
		return ctrl.Result{}, nil
	}
	err := r.Service.DeleteInfraEnv(ctx, domain.Kubernetes, string(infraEnv.UID), false)
	if domain.KindOf(err) == domain.Conflict {
		return ctrl.Result{RequeueAfter: missing}, r.report(ctx, infraEnv, nil, Addresses{}, err)
	}
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return ctrl.Result{}, fmt.Errorf("deleting InfraEnv %s/%s: %w", infraEnv.Namespace, infraEnv.Name, err)
	}
	before := infraEnv.DeepCopy()
	controllerutil.RemoveFinalizer(infraEnv, agentv1.InfraEnvFinalizer)
	err = r.Client.Patch(ctx, infraEnv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return ctrl.Result{}, outcome.IgnoreGone(err)
}

// state makes the InfraEnv in the service what the object says.
func (r *Reconciler) state(ctx context.Context, infraEnv *agentv1.InfraEnv, stated domain.InfraEnvSettings) (*domain.InfraEnv, error) {
	id := string(infraEnv.UID)
	env, err := r.Service.UpdateInfraEnv(ctx, domain.Kubernetes, id, func(settings *domain.InfraEnvSettings) error {
		stated.RendezvousIP = settings.RendezvousIP
		*settings = stated
		return nil
	})
	if domain.ReasonOf(err) != "InfraEnvNotFound" {
		return env, err
	}
	return r.Service.CreateInfraEnv(ctx, domain.Kubernetes, domain.NewInfraEnv{
		ID: id, Name: infraEnv.Name, Kube: domain.KubeRef{Namespace: infraEnv.Namespace, Name: infraEnv.Name}, InfraEnvSettings: stated,
		ImageGeneration: generation(infraEnv), Restored: infraEnv.Status.ISODownloadURL != "", // it had an image before
	})
}

// revoke ends the tokens of the InfraEnv's hosts where a user asks for it. The annotation goes last: what is interrupted is done once more. An InfraEnv that the service does not know
// has no hosts.
func (r *Reconciler) revoke(ctx context.Context, infraEnv *agentv1.InfraEnv) error {
	if _, asked := infraEnv.Annotations[agentv1.RevokeHostTokensAnnotation]; !asked {
		return nil
	}
	if err := r.Service.RevokeHostTokens(ctx, domain.Kubernetes, string(infraEnv.UID)); err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("revoking the tokens of the hosts of InfraEnv %s/%s: %w", infraEnv.Namespace, infraEnv.Name, err)
	}
	before := infraEnv.DeepCopy()
	delete(infraEnv.Annotations, agentv1.RevokeHostTokensAnnotation)
	return outcome.IgnoreGone(r.Client.Patch(ctx, infraEnv, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// generation is the one of the tokens that the object remembers, 0 for none.
func generation(infraEnv *agentv1.InfraEnv) int64 {
	kept, err := strconv.ParseInt(infraEnv.Annotations[agentv1.TokenGenerationAnnotation], 10, 32)
	if err != nil || kept < 0 {
		return 0
	}
	return kept
}

// remember writes down which tokens count, where some were revoked: should the service lose its data, these stay revoked.
func (r *Reconciler) remember(ctx context.Context, infraEnv *agentv1.InfraEnv, env *domain.InfraEnv) error {
	if env.ImageGeneration <= max(generation(infraEnv), 1) {
		return nil
	}
	before := infraEnv.DeepCopy()
	metav1.SetMetaDataAnnotation(&infraEnv.ObjectMeta, agentv1.TokenGenerationAnnotation, strconv.FormatInt(env.ImageGeneration, 10))
	return r.Client.Patch(ctx, infraEnv, client.MergeFrom(before))
}

// report writes the status where it changed.
func (r *Reconciler) report(ctx context.Context, infraEnv *agentv1.InfraEnv, env *domain.InfraEnv, addresses Addresses, obstacle error) error {
	before := infraEnv.DeepCopy()
	infraEnv.Status = status(infraEnv, env, addresses, obstacle, metav1.Now())
	if equality.Semantic.DeepEqual(before.Status, infraEnv.Status) {
		return nil
	}
	if err := r.Client.Status().Patch(ctx, infraEnv, client.MergeFrom(before)); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("reporting on InfraEnv %s/%s: %w", infraEnv.Namespace, infraEnv.Name, err))
	}
	conditionevent.Publish(r.Recorder, infraEnv, nil, eventRules, conditionevent.OfAgentInstall(before.Status.Conditions), conditionevent.OfAgentInstall(infraEnv.Status.Conditions))
	return nil
}
