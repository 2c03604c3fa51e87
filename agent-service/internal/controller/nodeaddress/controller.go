// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeaddress gets addresses of the pools that an InfraEnv names for the systems that its machines are installed with: it makes the claims, gives the service the
// addresses that they get, and releases them when the machine cannot use them any more.
package nodeaddress

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/addressplan"
	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/feed"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// lookInterval is how often the address of a claim is read again that cannot be used: addresses are not watched, nor claims without their label.
const lookInterval = time.Minute

// Service is what the controller needs of the service.
type Service interface {
	GetHost(ctx context.Context, by domain.Principal, key domain.HostKey) (*domain.Host, error)
	ListHosts(ctx context.Context, by domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error)
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
	// Where the service lost its data since, the host is restored as installed, or as one that is not wiped yet, with the addresses of its claims.
	if agent.InstalledBefore(owner, seen.Host) || agent.LostRelease(owner, seen.Host) {
		return ctrl.Result{RequeueAfter: r.LookInterval}, nil
	}
	if err := r.execute(ctx, owner, found, seen, addressplan.Plan(seen)); err != nil {
		return ctrl.Result{}, err
	}
	if seen.Elsewhere || seen.Host != nil && seen.Host.NeedsAddresses() && len(seen.Pools) > 0 {
		return ctrl.Result{RequeueAfter: r.LookInterval}, nil
	}
	return ctrl.Result{}, nil
}

// claim is one that was read, and its kind.
type claim struct {
	*unstructured.Unstructured
	kind Kind
}
