// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/muster-io/muster/apis/buildinfo"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/metricsauth"
	"github.com/muster-io/muster/apis/servedkinds"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhostdiscovery"
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
	log := zap.New(zap.Level(o.level))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return wrap(err, "reading the kubeconfig")
	}
	config.QPS = -1 // fairness is the API server's business
	return RunWith(logr.NewContext(ctx, log), o, config)
}

// RunWith runs the operator with a client configuration until the context ends.
func RunWith(ctx context.Context, o Options, config *rest.Config) error {
	if unused := ironic.Unused(o.env, o.ManageHosts); len(unused) > 0 {
		logr.FromContextOrDiscard(ctx).Info("settings are set that mean nothing here", "variables", unused)
	}
	var registry prometheus.Registerer = ctrlmetrics.Registry
	if o.several {
		registry = prometheus.NewRegistry()
	}
	requests := metrics.NewRequests()
	registry.MustRegister(requests, buildinfo.Metric("discovery-operator"))
	config = rest.CopyConfig(config)
	config.Wrap(requests.Wrap)
	onHosts, err := newCheck(o)
	if err != nil {
		return err
	}
	if err := servedkinds.Wait(ctx, config, logr.FromContextOrDiscard(ctx), o.HealthProbeBindAddress, servedkinds.Hosts, servedkinds.DiscoveryOperator); err != nil {
		return err
	}
	mgr, err := newManager(o, config, onHosts.server)
	if err != nil {
		return err
	}
	counters := metrics.New(registry)
	registry.MustRegister(metrics.NewCollector(mgr.GetCache()))
	if o.ManageHosts {
		registry.MustRegister(metrics.NewHosts(mgr.GetCache()))
	}
	from := newSources(o, mgr.GetAPIReader(), counters.Request)
	fleets := fleet.NewRegistry(counters.Poll)
	registry.MustRegister(metrics.NewPolls(fleets.Readings))
	if err := mgr.Add(fleets); err != nil {
		return wrap(err, "adding the pollers")
	}
	if from.rack != nil && o.rack == nil {
		if err := mgr.Add(rackRunner{from.rack, o}); err != nil {
			return wrap(err, "adding the rack")
		}
	}
	if err := addControllers(ctx, mgr, o, from, fleets, counters); err != nil {
		return err
	}
	if err := addAutoscaling(ctx, mgr, o, counters); err != nil {
		return err
	}
	if err := onHosts.addTo(ctx, mgr, o, from); err != nil {
		return err
	}
	return wrap(mgr.Start(ctx), "running")
}

// metricsOptions serves metrics to users whom the API server knows and allows to get them.
func metricsOptions(o Options) metricsserver.Options {
	return metricsserver.Options{
		BindAddress: o.MetricsBindAddress, SecureServing: true, FilterProvider: metricsauth.RefuseUnknownTokens(filters.WithAuthenticationAndAuthorization),
	}
}

func newManager(o Options, config *rest.Config, server webhook.Server) (ctrl.Manager, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, err
	}
	readYourWrites := true
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Cache:                         cacheOptions(o.Namespace, o.only),
		Client:                        client.Options{Cache: &client.CacheOptions{EnableReadYourWritesConsistency: &readYourWrites}},
		Controller:                    ctrlconfig.Controller{SkipNameValidation: &o.several},
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              name,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		WebhookServer:                 server,
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		GracefulShutdownTimeout:       new(10 * time.Second),
		Metrics:                       metricsOptions(o),
	})
	if err != nil {
		return nil, wrap(err, "making the manager")
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, wrap(err, "adding the health check")
	}
	return mgr, wrap(mgr.AddReadyzCheck("ping", healthz.Ping), "adding the readiness check")
}

func addControllers(ctx context.Context, mgr ctrl.Manager, o Options, from *sources, fleets *fleet.Registry, counters *metrics.Metrics) error {
	recorder := mgr.GetEventRecorder(name)
	discovery := baremetalhostdiscovery.New(baremetalhostdiscovery.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Sources: from, Fleets: fleets, Counter: counters,
		Namespace: o.Namespace, ManageHosts: o.ManageHosts,
	})
	if err := discovery.SetupWithManager(mgr); err != nil {
		return wrap(err, "adding the controller of BareMetalHostDiscoveries")
	}
	if err := baremetalhost.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	hosts := baremetalhost.New(baremetalhost.Deps{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Events: recorder, Provisioners: from, Counter: counters,
		Namespace: o.Namespace, Grace: reservation.Time, ManageHosts: o.ManageHosts,
		Haste: o.haste,
	})
	return wrap(hosts.SetupWithManager(mgr), "adding the controller of BareMetalHosts")
}

func reservations() labels.Selector {
	return labels.SelectorFromSet(labels.Set{metal3v1.ReservationLabel: "true"})
}
