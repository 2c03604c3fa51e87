// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/agentclassification"
	"github.com/muster-io/muster/agent-service/internal/controller/agentclusterinstall"
	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/controller/nodes"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/controller/release"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/nmstate"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/workload"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/requestcount"
	"github.com/muster-io/muster/apis/servedkinds"
)

const (
	// leaderElectionID is the name of the Lease.
	leaderElectionID = "agent-service"
	// afterKube is how long to wait before controllers are started again that ended: the API server is away, or the Lease was lost.
	afterKube = 3 * time.Second
	// readyInterval is how often the service is asked whether it knows its hosts.
	readyInterval = 100 * time.Millisecond
)

// KubeOptions are the settings of custom resources.
type KubeOptions struct {
	KubeAPI                 bool
	LeaderElect             bool
	LeaderElectionNamespace string

	// lookInterval is how often addresses are read again that cannot be used; tests do not wait for the default.
	lookInterval time.Duration
	// apiInterval is how often the API server is asked whether it answers, zero for the default.
	apiInterval time.Duration
}

func (o *KubeOptions) bind(flags *flag.FlagSet) {
	flags.BoolVar(&o.KubeAPI, "kube-api", false, "serve InfraEnvs, Agents, AgentClusterInstalls, AgentClassifications, AgentReservations and NMStateConfigs of the cluster that --kubeconfig says")
	flags.BoolVar(&o.LeaderElect, "leader-elect", false, "with --kube-api: enable leader election: one of several replicas reconciles; all of them serve REST")
	flags.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", "", operator.LeaseHelp)
}

// restoreTime is how long the InfraEnvs of custom resources may take to come back after a start with an empty database.
func (o *Options) restoreTime() time.Duration {
	if !o.KubeAPI {
		return 0
	}
	return 5 * time.Minute
}

// kube serves custom resources. The service does not depend on it: while the API server is away, machines register, and their Agents appear later.
type kube struct {
	options KubeOptions
	config  *rest.Config
	service *service.Service
	images  infraenv.Images
	// versions are those that the service has images of.
	versions []string
	// url is that of the service.
	url string
	// tokens are those that hosts join clusters with.
	tokens workload.Tokens
	// order is what waits for what.
	order *precedence.Order
	log   *zap.Logger
}

// kubernetes says how the Kubernetes API is reached; its requests are counted.
func (o *Options) kubernetes(requests *requestcount.Counter) (*rest.Config, error) {
	config := o.kube
	if config == nil {
		var err error
		if config, err = o.cluster(); err != nil {
			return nil, err
		}
	}
	config = rest.CopyConfig(config)
	config.Wrap(requests.Wrap)
	return config, nil
}

// startKube serves custom resources until ctx ends, where that is asked for.
func (o *Options) startKube(ctx context.Context, p *parts, log *zap.Logger) error {
	if !o.KubeAPI {
		return nil
	}
	config, err := o.kubernetes(p.requests)
	if err != nil {
		return err
	}
	k := &kube{options: o.KubeOptions, config: config, service: p.service, images: &addresses{p.discovery}, url: o.BaseURL, tokens: p.tokens, log: log,
		order: &precedence.Order{Clock: clock.RealClock{}}}
	for _, image := range p.service.OSImages {
		k.versions = append(k.versions, image.Version)
	}
	watch, err := newAPIWatch(config, o.apiInterval, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go watch.run(ctx)
	return k.run(ctx)
}

// run starts controllers again and again. It ends with ctx only.
func (k *kube) run(ctx context.Context) error {
	for {
		err := k.serve(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		k.log.Warn("custom resources are not served at the moment, trying again", zap.Error(err))
		if !pause(ctx, afterKube) {
			return nil
		}
	}
}

// pause waits, and says whether ctx is still going on.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// serve runs one set of controllers until ctx ends or the API server is lost.
func (k *kube) serve(ctx context.Context) error {
	// A service that has not loaded its hosts takes them for silent.
	for k.service.Ready(ctx) != nil {
		if !pause(ctx, readyInterval) {
			return ctx.Err()
		}
	}
	if err := servedkinds.Wait(ctx, k.config, zapr.NewLogger(k.log), "", servedkinds.Clusters, servedkinds.AgentService); err != nil {
		return err
	}
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(k.config, ctrl.Options{
		Scheme: scheme,
		Logger: zapr.NewLogger(k.log),
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				&metal3v1.BareMetalHost{}: {Label: labelled}, // the others do not concern this service
				&agentv1.Agent{}:          {Transform: agent.Transform()},
			},
		},
		Controller:                    ctrlconfig.Controller{SkipNameValidation: new(true)},
		LeaderElection:                k.options.LeaderElect,
		LeaderElectionID:              leaderElectionID,
		LeaderElectionNamespace:       k.options.LeaderElectionNamespace,
		LeaderElectionReleaseOnCancel: true,
		GracefulShutdownTimeout:       new(operator.ShutdownTimeout),
		HealthProbeBindAddress:        "0",
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		NewCache: func(config *rest.Config, options cache.Options) (cache.Cache, error) {
			made, err := cache.New(config, options)
			return readable{made, ctx}, err
		},
	})
	if err != nil {
		return fmt.Errorf("preparing controllers: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what controllers began ends with them
	if err := k.add(ctx, mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// readable is a cache whose reads end with their context: a manager waits for its caches, and ignores its context, while the API server is away.
type readable struct {
	cache.Cache
	until context.Context //nolint:containedctx // it is that of the manager, which does not hand it on
}

// WaitForCacheSync implements cache.Cache.
func (c readable) WaitForCacheSync(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.until, cancel)() //nolint:contextcheck // the end of either ends it
	return c.Cache.WaitForCacheSync(ctx) || c.until.Err() != nil
}

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=muster-agent-service,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",namespace=muster-agent-service,resources=events,verbs=create;patch

func (k *kube) add(ctx context.Context, mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	if err := infraenv.Index(ctx, indexer); err != nil {
		return err
	}
	if err := agent.Index(ctx, indexer); err != nil {
		return err
	}
	if err := agentclusterinstall.Index(ctx, indexer); err != nil {
		return err
	}
	queries := agentclassification.NewQueries(clock.RealClock{})
	recorder := mgr.GetEventRecorder("agent-service")
	joining := nodes.New(ctx, nodes.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Service: k.service, Tokens: k.tokens, Recorder: recorder})
	for name, controller := range map[string]interface{ SetupWithManager(mgr ctrl.Manager) error }{
		"InfraEnvs": infraenv.New(infraenv.Deps{Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Service: k.service, Images: k.images, Recorder: recorder}),
		"Agents": agent.New(agent.Deps{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Service: k.service, Queries: queries, Recorder: recorder, URL: k.url, Order: k.order,
		}),
		"AgentClusterInstalls": agentclusterinstall.New(agentclusterinstall.Deps{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Service: k.service, Recorder: recorder, Versions: k.versions, URL: k.url, Order: k.order,
		}),
		"releases": release.New(release.Deps{
			Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Service: k.service, Tokens: k.tokens, Clock: clock.RealClock{},
		}),
		"nodes":                joining,
		"AgentClassifications": agentclassification.New(agentclassification.Deps{Client: mgr.GetClient(), Queries: queries}),
	} {
		if err := controller.SetupWithManager(mgr); err != nil {
			return fmt.Errorf("adding the controller of %s: %w", name, err)
		}
	}
	return k.addOptional(ctx, mgr, joining)
}

// joiner makes the tokens that hosts join clusters with, and what hosts join clusters by; nil where no custom resources are served. Each replica answers for first-boot data, so it reads without a cache.
// The service is there when hosts ask.
func (o *Options) joiner(seed []byte, requests *requestcount.Counter, svc **service.Service) (tokens workload.Tokens, join, rejoin service.Join, err error) {
	if tokens, err = workload.NewTokens(seed); err != nil {
		return tokens, nil, nil, err
	}
	if !o.KubeAPI {
		return tokens, nil, nil, nil
	}
	config, err := o.kubernetes(requests)
	if err != nil {
		return tokens, nil, nil, err
	}
	scheme, err := newScheme()
	if err != nil {
		return tokens, nil, nil, err
	}
	reader, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return tokens, nil, nil, fmt.Errorf("preparing to let hosts join clusters: %w", err)
	}
	planes := func(ctx context.Context, by domain.Principal, id string) (*domain.ControlPlane, string, error) {
		return (*svc).ControlPlane(ctx, by, id)
	}
	note := func(ctx context.Context, key domain.HostKey, clusterID string, node domain.Node) error {
		return (*svc).NoteNode(ctx, key, clusterID, node)
	}
	joiner := &workload.Joiner{Reader: reader, Planes: planes, NoteNode: note, Tokens: tokens, Now: time.Now}
	return tokens, joiner.Values, joiner.Rejoin, nil
}

// labelled selects BareMetalHosts that name an InfraEnv.
var labelled = func() labels.Selector {
	requirement, err := labels.NewRequirement(agentv1.InfraEnvLabel, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*requirement)
}()

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, hiveextv1.AddToScheme, metal3v1.AddToScheme, ipamv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

// addresses are those of images, of their parts, and of what REST says about them.
type addresses struct{ *discovery }

// Addresses implements infraenv.Images.
func (a *addresses) Addresses(ctx context.Context, env *domain.InfraEnv) (infraenv.Addresses, error) {
	if a.discovery == nil {
		return infraenv.Addresses{}, domain.Refuse(domain.Conflict, "NoImages", "%s", httpapi.NoImages)
	}
	short, err := a.authority.Short(env.ID, env.Generations)
	if err != nil {
		return infraenv.Addresses{}, fmt.Errorf("making the address of the image: %w", err)
	}
	obstacle := a.obstacle(ctx, short)
	if obstacle != nil && obstacle.Lasting {
		return infraenv.Addresses{}, domain.Refuse(domain.Conflict, "NoImage", "%s", obstacle.Reason)
	}
	own, shared, rest := a.images+"/images/"+short, a.images+"/boot-artifacts/", a.base+api.Base
	query := "?" + url.Values{"version": {env.OSImageVersion}, "arch": {hardware.Architecture(env.CPUArchitecture)}}.Encode()
	found := infraenv.Addresses{
		ISO: own + "/discovery.iso", IPXEScript: a.scriptURL(short, scriptType(env)), Initrd: own + "/pxe-initrd", Kernel: shared + "kernel" + query, RootFS: shared + "rootfs" + query,
		Ignition: rest + "/infra-envs/" + env.ID + "/downloads/files?file_name=discovery.ign", Events: rest + "/events?infra_env_id=" + env.ID,
	}
	if len(env.StaticNetworkConfig) > 0 {
		found.StaticNetwork = rest + "/infra-envs/" + env.ID + "/downloads/files?file_name=static-network-config"
	}
	var lacks []string
	if obstacle != nil {
		found.Away, lacks = true, append(lacks, "it cannot be had at the moment: "+obstacle.Reason)
	}
	if env.ImageType == minimalISO && !isMinimal(env) {
		lacks = append(lacks, "it is the full image, because machines need their stated networks before they can fetch what the minimal one leaves out")
	}
	program, _, err := a.programs.sum(env.CPUArchitecture)
	if program == "" {
		lacks = append(lacks, "live images of CoreOS do not start an agent, because this service has none for "+hardware.Architecture(env.CPUArchitecture))
	}
	found.Lacks = strings.Join(append(lacks, unusable(env.StaticNetworkConfig)...), "; ")
	return found, err
}

// mostUnusable is how many networks are named that cannot be used.
const mostUnusable = 3

// unusable says which networks machines are not going to have, although they are stated.
func unusable(config json.RawMessage) []string {
	if len(config) == 0 {
		return nil
	}
	statements, err := nmstate.Read(config)
	if err != nil {
		return []string{"the networks of its machines cannot be used: " + err.Error()}
	}
	var said []string
	more := 0
	for _, statement := range statements {
		_, err := statement.Keyfiles()
		if err == nil {
			continue
		}
		if len(said) == mostUnusable {
			more++
			continue
		}
		var cards []string
		for _, card := range statement.Cards {
			cards = append(cards, card.MAC)
		}
		said = append(said, fmt.Sprintf("the network that is stated for %s is left out until its NMStateConfig is mended: %v", strings.Join(cards, ", "), err))
	}
	if more > 0 {
		said = append(said, fmt.Sprintf("so are those of %d more", more))
	}
	return said
}
