// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// FieldOwner owns what this controller applies.
const FieldOwner = "discovery-operator/baremetalhost"

// lifeOwner owns what is applied while this operator manages hosts.
const lifeOwner = FieldOwner + "/life"

// holderIndex finds the reservations of a host.
const holderIndex = "host"

// Provisioner changes nodes that discovery made.
type Provisioner interface {
	// Enter asks, in one request, whether Ironic answers and accepts the credentials.
	Enter(ctx context.Context) error
	Node(ctx context.Context, uuid string) (inventory.Node, error)
	PortsOf(ctx context.Context, node string) ([]inventory.Port, error)
	SetDriver(ctx context.Context, uuid, driver string, boot ...string) error
	DeleteNode(ctx context.Context, uuid string) error
}

// Registrar finds and makes the nodes of hosts, and gives them drivers and credentials.
type Registrar interface {
	Managed(ctx context.Context, uuid string) (hoststate.Node, error)
	Find(ctx context.Context, names, macs []string) (uuid string, err error)
	EnrolNode(ctx context.Context, name string, a hoststate.Access) (uuid string, err error)
	EnsurePort(ctx context.Context, uuid, mac string) error
	Write(ctx context.Context, n hoststate.Node, name string, a hoststate.Access) error
}

// Inspector has machines inspected, and reads what they report.
type Inspector interface {
	Examined(ctx context.Context, uuid string) (hoststate.Node, error)
	Report(ctx context.Context, uuid string) (*inventory.Report, error)
	Inspect(ctx context.Context, n hoststate.Node, mode metal3v1.InspectionMode, m hoststate.Machine) error
}

// Switcher asks for states of power and of provisioning.
type Switcher interface {
	SetProvision(ctx context.Context, uuid, target string) error
	SetPower(ctx context.Context, uuid, target string) error
}

// Deployer has images deployed, and what was deployed removed.
type Deployer interface {
	Prepare(ctx context.Context, n hoststate.Node, d hoststate.Deployment) error
	Deploy(ctx context.Context, uuid string, config osimage.ConfigDrive) error
	SetCleaning(ctx context.Context, uuid string, clean bool) error
	Vacate(ctx context.Context, uuid string) error
	BeginMaintenance(ctx context.Context, uuid string) error
	EndMaintenance(ctx context.Context, uuid string) error
}

// Manager is an Ironic for hosts that this operator manages.
type Manager interface {
	Provisioner
	Registrar
	Inspector
	Switcher
	Deployer
}

// Provisioners finds the Ironic of a host.
type Provisioners interface {
	// Address says which Ironic a reference means, and with which credentials it is asked.
	Address(namespace string, ref *metal3v1.IronicReference) inventory.Address
	Provisioner(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (Manager, error)
}

// Counter counts outcomes.
type Counter interface {
	HandedOver()
	NodeDeleted()
}

// Deps is what the controller works with.
type Deps struct {
	// Client reads from the cache, sees its own writes in it, and writes.
	Client client.Client
	// Live reads from the API server, where a stale answer would be a wrong one.
	Live         client.Reader
	Recorder     events.EventRecorder
	Provisioners Provisioners
	Counter      Counter
	// Namespace holds the reservations of boot MACs.
	Namespace string
	// Grace is how long a reservation without host is respected.
	Grace time.Duration
	// ManageHosts makes this controller own the early life of hosts; without it, hosts are handed over to another operator.
	ManageHosts bool
	// Now is the clock, the system's where it is nil.
	Now func() time.Time
}

// Reconciler reconciles BareMetalHost.
type Reconciler struct {
	Deps
	attempts attempts
	// endpoints limits how many hosts ask one Ironic at the same time.
	endpoints *endpoints
}

// New makes a reconciler.
func New(d Deps) *Reconciler {
	if d.Now == nil {
		d.Now = time.Now
	}
	return &Reconciler{Deps: d, attempts: attempts{list: map[types.NamespacedName]*attempt{}}, endpoints: newEndpoints()}
}

// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts/status,verbs=get;patch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=muster-discovery-operator,resources=leases,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Reconcile does what is next for a host that discovery made.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var host metal3v1.BareMetalHost
	if err := r.Client.Get(ctx, req.NamespacedName, &host); apierrors.IsNotFound(err) {
		r.attempts.forget(req.NamespacedName)
		r.endpoints.forget(req.NamespacedName)
		return r.afterHost(ctx, inventory.Ref(req.NamespacedName))
	} else if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if handled, err := movedAway(ctx, r, &host); handled || err != nil {
		return ctrl.Result{}, err
	}
	if approved, err := r.approve(ctx, &host); approved || err != nil {
		return ctrl.Result{}, err
	}
	if r.ManageHosts {
		return r.manage(ctx, &host)
	}
	switch step := handover.Next(&host).(type) {
	case handover.Clean:
		return r.clean(ctx, &host, step)
	case handover.Switch:
		return r.handOver(ctx, &host, step)
	case handover.TakeBack:
		return ctrl.Result{}, r.takeBack(ctx, &host, step)
	case handover.Wait:
		return r.wait(ctx, &host, step)
	default:
		return ctrl.Result{}, nil
	}
}

// reservationsOf are the reservations that name a host.
func reservationsOf(ctx context.Context, reader client.Reader, namespace string, host inventory.Ref) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	err := reader.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{holderIndex: host.String()})
	return list.Items, wrap(err, "listing reservations of host %s", host)
}
