// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/olderkinds"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/probes"
	"github.com/muster-io/muster/apis/requestcount"
	"github.com/muster-io/muster/apis/servedkinds"
	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhostdiscovery"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/metrics"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// name is the operator's, in events and as the name of its leader's Lease.
const name = "discovery-operator"

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=muster-discovery-operator,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=muster-discovery-operator,resources=events,verbs=create;patch

// Run runs the operator until the context ends.
func Run(ctx context.Context, o Options) error {
	if _, err := logging.New(o.LogLevel); err != nil {
		return err
	}
	log := ctrl.Log
	defer tracing.Start(ctx, name, log)()
	config, err := operator.ClientConfig(name, o.Kubeconfig)
	if err != nil {
		return err
	}
	return runWith(logr.NewContext(ctx, log), o, config)
}

// runWith runs the operator with a client configuration until the context ends.
func runWith(ctx context.Context, o Options, config *rest.Config) error {
	p, err := newParts(o)
	if err != nil {
		return err
	}
	return p.run(ctx, config)
}

// parts are what an operator is put together from.
type parts struct {
	Options
	check    check
	manager  ctrl.Options
	registry prometheus.Registerer
	// rack is the demo's, nil where the operator's own Ironic is a real one; runners run beside the controllers.
	rack    *demo.Rack
	runners []manager.Runnable
	// sources finds Ironics, and hosts adds the controller of BareMetalHosts.
	sources func(o Options, rack *demo.Rack, live client.Reader, observe ironic.Observer) *sources
	hosts   func(ctrl.Manager, baremetalhost.Deps) error
}

func newParts(o Options) (parts, error) {
	onHosts, err := newCheck(o)
	if err != nil {
		return parts{}, err
	}
	options, err := managerOptions(o, onHosts.server)
	if err != nil {
		return parts{}, err
	}
	p := parts{Options: o, check: onHosts, manager: options, registry: ctrlmetrics.Registry, sources: newSources, hosts: addHosts}
	if o.Provisioner == ProvisionerDemo {
		p.rack = demo.New()
		p.runners = append(p.runners, rackRunner{p.rack, o})
	}
	return p, nil
}

// run runs the operator until the context ends.
func (p parts) run(ctx context.Context, config *rest.Config) error {
	if unused := ironic.Unused(p.env, p.ManageHosts); len(unused) > 0 {
		logr.FromContextOrDiscard(ctx).Info("settings have no effect", "variables", unused)
	}
	requests := requestcount.New("discovery_operator_client_requests_total")
	p.registry.MustRegister(requests, buildinfo.Metric("discovery-operator"))
	config = rest.CopyConfig(config)
	config.Wrap(requests.Wrap)
	if err := servedkinds.Wait(ctx, config, logr.FromContextOrDiscard(ctx), p.HealthProbeBindAddress, p.kinds()...); err != nil {
		return err
	}
	mgr, err := newManager(config, p.manager)
	if err != nil {
		return err
	}
	counters := metrics.New(p.registry)
	p.registry.MustRegister(metrics.NewCollector(mgr.GetCache()))
	if p.ManageHosts {
		p.registry.MustRegister(metrics.NewHosts(mgr.GetCache()))
	}
	from := p.sources(p.Options, p.rack, mgr.GetAPIReader(), counters.Request)
	fleets := fleet.NewRegistry(counters.Poll)
	p.registry.MustRegister(metrics.NewPolls(fleets.Readings))
	for _, r := range append([]manager.Runnable{fleets}, p.runners...) {
		if err := mgr.Add(r); err != nil {
			return wrap(err, "adding what runs beside the controllers")
		}
	}
	if err := p.addControllers(ctx, mgr, from, fleets, counters); err != nil {
		return err
	}
	if err := addAutoscaling(ctx, mgr, p.Options, counters); err != nil {
		return err
	}
	if err := p.check.addTo(ctx, mgr, p.Options, from); err != nil {
		return err
	}
	return wrap(mgr.Start(ctx), "running")
}

// kinds are those that the operator needs. Where it manages hosts, it writes fields that the definitions of former baremetal operators lack.
func (o Options) kinds() []servedkinds.Set {
	if o.ManageHosts {
		return []servedkinds.Set{servedkinds.ManagedHosts, servedkinds.DiscoveryOperator}
	}
	return []servedkinds.Set{servedkinds.Hosts, servedkinds.DiscoveryOperator}
}

func managerOptions(o Options, server webhook.Server) (ctrl.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	options := o.ManagerOptions(name, filters.WithAuthenticationAndAuthorization)
	options.Scheme = scheme
	options.Cache = cacheOptions(o.Namespace)
	options.Client = client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}}
	options.WebhookServer = server
	return options, nil
}

func newManager(config *rest.Config, o ctrl.Options) (ctrl.Manager, error) {
	mgr, err := ctrl.NewManager(config, o)
	if err != nil {
		return nil, wrap(err, "making the manager")
	}
	return mgr, probes.Add(mgr, mgr.GetCache())
}

func (p parts) addControllers(ctx context.Context, mgr ctrl.Manager, from *sources, fleets *fleet.Registry, counters *metrics.Metrics) error {
	recorder := operator.Recorder(mgr.GetEventRecorder(name))
	c := mgr.GetClient()
	if !p.ManageHosts { // the definitions of hosts are those of the operator that manages them
		c = olderkinds.Client(c, "BareMetalHost", "HardwareData")
	}
	discovery := baremetalhostdiscovery.New(baremetalhostdiscovery.Deps{
		Client: c, Live: mgr.GetAPIReader(), Recorder: recorder, Sources: from, Fleets: fleets, Counter: counters,
		Namespace: p.Namespace, ManageHosts: p.ManageHosts,
	})
	if err := discovery.SetupWithManager(mgr); err != nil {
		return wrap(err, "adding the controller of BareMetalHostDiscoveries")
	}
	if err := baremetalhost.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	return wrap(p.hosts(mgr, baremetalhost.Deps{
		Client: c, Live: mgr.GetAPIReader(), Recorder: recorder, Provisioners: from, Counter: counters,
		Namespace: p.Namespace, Grace: reservation.Time, ManageHosts: p.ManageHosts,
	}), "adding the controller of BareMetalHosts")
}

func addHosts(mgr ctrl.Manager, d baremetalhost.Deps) error {
	r := baremetalhost.New(d)
	return r.SetupWithManager(mgr, r)
}

func reservations() labels.Selector {
	return labels.SelectorFromSet(labels.Set{metal3v1.ReservationLabel: "true"})
}
