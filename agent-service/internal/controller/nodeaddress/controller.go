// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeaddress gets addresses of the pools that an InfraEnv names for the systems that its machines are installed with: it makes the claims, gives the service the
// addresses that they get, and releases them when the machine cannot use them any more.
package nodeaddress

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/agent-service/internal/addressplan"
	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// lookInterval is how often the address of a claim is read again that cannot be used: addresses are not watched, nor claims without their label.
const lookInterval = time.Minute

// Service is what the controller needs of the service.
type Service interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	Inventory(ctx context.Context, by domain.Principal, key domain.HostKey) ([]byte, error)
	ChoosePools(ctx context.Context, key domain.HostKey, clusterID string, pools []domain.AddressPool) error
	NoteAddressing(ctx context.Context, was *domain.Host, is domain.Addressing) error
	Subscribe() *feed.Subscription
}

// Deps are what a Reconciler works with; all but LookInterval are required.
type Deps struct {
	Client client.Client
	// Live reads claims that the cache does not have, addresses, and Agents before their claims are released.
	Live client.Reader
	// Claims is a cache of the claims that have agentv1.ClaimOwnerLabel.
	Claims  Claims
	Service Service
	// Kinds are the kinds of claims that the API server serves.
	Kinds []Kind
	// LookInterval is how often the address of a claim is read again that cannot be used; 0 for a minute.
	LookInterval time.Duration
}

// Reconciler looks after the addresses of Agents.
type Reconciler struct{ Deps }

// New returns a Reconciler.
func New(d Deps) *Reconciler {
	d.LookInterval = cmp.Or(d.LookInterval, lookInterval)
	return &Reconciler{d}
}

// +kubebuilder:rbac:groups=agent-install.openshift.io,resources=agents;infraenvs,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.metal3.io,resources=ipclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.metal3.io;ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get

// Reconcile goes on with the addresses of one Agent.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	found, err := r.claims(ctx, request.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	owner := &agentv1.Agent{}
	err = r.Client.Get(ctx, request.NamespacedName, owner)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading Agent %s: %w", request, err)
	}
	if err := r.abandon(ctx, request, found); err != nil || owner.UID == "" {
		return ctrl.Result{}, err
	}
	seen, err := r.observe(ctx, owner, found)
	if err != nil || seen == nil {
		return ctrl.Result{}, err
	}
	if err := r.execute(ctx, owner, found, seen, addressplan.Plan(seen)); err != nil {
		return ctrl.Result{}, err
	}
	if seen.Host != nil && seen.Host.NeedsAddresses() && len(seen.Pools) > 0 {
		return ctrl.Result{RequeueAfter: r.LookInterval}, nil
	}
	return ctrl.Result{}, nil
}

// claim is one that was read, and its kind.
type claim struct {
	*unstructured.Unstructured
	kind Kind
}

// claims are those that say that they are for an Agent.
func (r *Reconciler) claims(ctx context.Context, key client.ObjectKey) ([]claim, error) {
	var found []claim
	for _, kind := range r.Kinds {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.Claim)
		if err := r.Claims.List(ctx, list, client.InNamespace(key.Namespace), client.MatchingLabels{agentv1.ClaimOwnerLabel: key.Name}); err != nil {
			return nil, fmt.Errorf("listing %ss of Agent %s: %w", kind.Claim.Kind, key, err)
		}
		for i := range list.Items {
			found = append(found, claim{&list.Items[i], kind})
		}
	}
	return found, nil
}

// abandon releases the claims of an Agent that is gone: a user deleted it, and says by that that its machine does not use them.
func (r *Reconciler) abandon(ctx context.Context, request ctrl.Request, found []claim) error {
	for _, c := range found {
		owner := metav1.GetControllerOf(c)
		if owner == nil || owner.Kind != "Agent" || owner.Name != request.Name {
			continue
		}
		live := &agentv1.Agent{}
		err := r.Live.Get(ctx, request.NamespacedName, live)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading Agent %s: %w", request, err)
		}
		if live.UID == owner.UID {
			return nil
		}
		if err := r.release(ctx, c.Unstructured); err != nil {
			return err
		}
	}
	return nil
}

// observe reads what is known of the addresses of an Agent; nil where its InfraEnv does not vouch for it.
func (r *Reconciler) observe(ctx context.Context, owner *agentv1.Agent, found []claim) (*addressplan.Snapshot, error) {
	key := agent.HostKey(owner)
	var infraEnvs agentv1.InfraEnvList
	if err := r.Client.List(ctx, &infraEnvs, client.InNamespace(owner.Namespace), client.MatchingFields{infraenv.UIDIndex: key.InfraEnvID}); err != nil {
		return nil, fmt.Errorf("looking for the InfraEnv of Agent %s/%s: %w", owner.Namespace, owner.Name, err)
	}
	if len(infraEnvs.Items) == 0 {
		return nil, nil
	}
	host, err := r.Service.GetHost(ctx, domain.Kubernetes, key)
	if domain.KindOf(err) == domain.NotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading host %s: %w", key, err)
	}
	spec := infraEnvs.Items[0].Spec
	seen := &addressplan.Snapshot{Agent: owner.Name, Host: host, Pools: infraenv.Pools(spec), Stated: len(spec.NMStateConfigLabelSelector.MatchLabels)+len(spec.NMStateConfigLabelSelector.MatchExpressions) > 0}
	if len(seen.Pools) == 0 && len(found) == 0 && len(host.Addressing.Pools) == 0 {
		return nil, nil
	}
	for _, c := range found {
		read, err := c.kind.understand(ctx, r.Live, owner, c.Unstructured)
		if err != nil {
			return nil, err
		}
		seen.Claims = append(seen.Claims, read)
	}
	return seen, r.cards(ctx, seen)
}

func (r *Reconciler) cards(ctx context.Context, seen *addressplan.Snapshot) error {
	reported, err := r.Service.Inventory(ctx, domain.Kubernetes, seen.Host.HostKey)
	if err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("reading the inventory of host %s: %w", seen.Host.HostKey, err)
	}
	var inventory hardware.Inventory
	if len(reported) > 0 && json.Unmarshal(reported, &inventory) != nil {
		return fmt.Errorf("the inventory of host %s cannot be read", seen.Host.HostKey)
	}
	seen.Cards = inventory.Interfaces
	return nil
}

func (r *Reconciler) execute(ctx context.Context, owner *agentv1.Agent, found []claim, seen *addressplan.Snapshot, d addressplan.Decision) error {
	if d.Choose {
		return r.Service.ChoosePools(ctx, seen.Host.HostKey, seen.Host.ClusterID, seen.Pools)
	}
	by := map[string]claim{}
	for _, c := range found {
		by[c.GetName()] = c
	}
	for _, name := range d.Release {
		if err := r.release(ctx, by[name].Unstructured); err != nil {
			return err
		}
	}
	for _, name := range d.Hold {
		c := by[name]
		if err := r.patch(ctx, c.Unstructured, func(o *unstructured.Unstructured) { controllerutil.AddFinalizer(o, agentv1.NodeAddressFinalizer) }); err != nil {
			return err
		}
	}
	for name, pool := range d.Create {
		why, err := r.create(ctx, owner, name, pool)
		if err != nil {
			return err
		}
		if why != "" {
			is := seen.Host.Addressing
			if d.Note != nil {
				is = *d.Note
			}
			is.Missing = pool.String() + ": " + why
			d.Note = &is
		}
	}
	if d.Note == nil {
		return nil
	}
	if err := r.Service.NoteAddressing(ctx, seen.Host, *d.Note); err != nil && domain.KindOf(err) != domain.NotFound {
		return fmt.Errorf("keeping the addresses of host %s: %w", seen.Host.HostKey, err)
	}
	return nil
}

// create makes a claim; why says what is in the way.
func (r *Reconciler) create(ctx context.Context, owner *agentv1.Agent, name string, pool domain.AddressPool) (why string, err error) {
	kind, served := r.kindOf(KindOf(pool))
	if !served {
		wanted := KindOf(pool)
		return fmt.Sprintf("the API server does not serve %s of %s: install its custom resource definition", wanted.Kind, wanted.Group), nil
	}
	made := kind.newClaim(owner, name, pool)
	err = r.Client.Create(ctx, made)
	if !apierrors.IsAlreadyExists(err) {
		if err != nil {
			return "", fmt.Errorf("making %s %s/%s: %w", kind.Claim.Kind, owner.Namespace, name, err)
		}
		return "", nil
	}
	// Another replica made it, or the cache is late, or a user took its label away.
	there := empty(kind.Claim)
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(made), there); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(there, owner) {
		return "a claim " + name + " is there already, and does not belong to the Agent: delete it", nil
	}
	return "", r.patch(ctx, there, func(o *unstructured.Unstructured) {
		labels := o.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[agentv1.ClaimOwnerLabel] = owner.Name
		o.SetLabels(labels)
	})
}

func (r *Reconciler) kindOf(wanted schema.GroupKind) (Kind, bool) {
	for _, kind := range r.Kinds {
		if kind.Claim.GroupKind() == wanted {
			return kind, true
		}
	}
	return Kind{}, false
}

// release lets an address be given to others.
func (r *Reconciler) release(ctx context.Context, c *unstructured.Unstructured) error {
	if c.GetDeletionTimestamp() == nil {
		uid := c.GetUID()
		if err := r.Client.Delete(ctx, c, client.Preconditions{UID: &uid}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s/%s: %w", c.GetKind(), c.GetNamespace(), c.GetName(), err)
		}
	}
	return r.patch(ctx, c, func(o *unstructured.Unstructured) { controllerutil.RemoveFinalizer(o, agentv1.NodeAddressFinalizer) })
}

// patch changes a claim as it was read: a list of finalizers is replaced as a whole, so a change in between is a conflict.
func (r *Reconciler) patch(ctx context.Context, c *unstructured.Unstructured, change func(*unstructured.Unstructured)) error {
	after := c.DeepCopy()
	change(after)
	if err := r.Client.Patch(ctx, after, client.MergeFromWithOptions(c, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing %s %s/%s: %w", c.GetKind(), c.GetNamespace(), c.GetName(), err)
	}
	return nil
}
