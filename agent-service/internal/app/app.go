// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package app wires agent-service: options, store, service, REST, controllers, metrics.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/metrics"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	"github.com/muster-io/muster/agent-service/internal/workload"
	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/certfile"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/apis/operator"
	"github.com/muster-io/muster/apis/requestcount"
	"github.com/muster-io/muster/apis/tracing"
)

const (
	// storePatience is how long the database may take to come up.
	storePatience = 2 * time.Minute
)

// Run runs the service until ctx ends.
func Run(ctx context.Context, o Options) error {
	log, err := logging.New(o.LogLevel)
	if err != nil {
		return err
	}
	defer tracing.Start(ctx, "agent-service", zapr.NewLogger(log))()
	o.warn(log)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return RunWith(ctx, o, log, listener)
}

// warn logs that any client that reaches the service is accepted.
func (o *Options) warn(log *zap.Logger) {
	if o.OIDCIssuer != "none" || isLoopback(o.Listen) {
		return
	}
	log.Warn("any client that reaches this address is an administrator: name the issuer of people's tokens with --oidc-issuer, or listen on 127.0.0.1",
		zap.String("listen", o.Listen))
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// RunWith runs the service on a listener until ctx ends.
func RunWith(ctx context.Context, o Options, log *zap.Logger, listener net.Listener) error {
	address, err := o.database()
	if err != nil {
		return err
	}
	db, err := openStore(ctx, address, log, store.Reread(o.database))
	if err != nil && ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to end while it began
	}
	if err != nil {
		return err
	}
	p, err := assemble(o, db, log)
	if err != nil {
		return errors.Join(err, db.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.service.Run(ctx) })
	group.Go(func() error {
		return o.serve(ctx, &http.Server{Handler: p.handler, ReadHeaderTimeout: 10 * time.Second}, listener, log)
	})
	group.Go(func() error { return o.serveProbes(ctx, p.handler) })
	group.Go(func() error { return o.serveMetrics(ctx, log, p.instruments...) })
	group.Go(func() error { return o.startKube(ctx, p, log) })
	log.Info("started", zap.String("address", listener.Addr().String()), zap.String("version", buildinfo.Version()))
	err = group.Wait()
	return errors.Join(err, db.Close())
}

// openStore waits for a database that is not there yet.
func openStore(ctx context.Context, address string, log *zap.Logger, options ...store.Option) (*store.Store, error) {
	deadline := time.Now().Add(storePatience)
	for {
		db, err := store.Open(ctx, address, options...)
		if domain.KindOf(err) != domain.Unavailable || time.Now().After(deadline) {
			return db, err
		}
		log.Warn("waiting for the database", zap.Error(domain.CauseOf(err)))
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Second):
		}
	}
}

// parts are what a process is made of.
type parts struct {
	service *service.Service
	// handler serves REST.
	handler http.Handler
	// discovery is nil where this service has no images.
	discovery   *discovery
	instruments []prometheus.Collector
	// requests counts those to the Kubernetes API.
	requests *requestcount.Counter
	// tokens are those that hosts join clusters with.
	tokens workload.Tokens
}

// assemble makes the service, the handler of REST, and what measures them.
func assemble(o Options, db *store.Store, log *zap.Logger) (*parts, error) {
	options, err := o.service(log)
	if err != nil {
		return nil, err
	}
	key, err := token.Key(o.TokenKey)
	if err != nil {
		return nil, err
	}
	requests := requestcount.New("agent_service_client_requests_total")
	people, err := o.people(requests)
	if err != nil {
		return nil, err
	}
	programs, err := newPrograms(o.AgentDirectory)
	if err != nil {
		return nil, err
	}
	var authority *token.Authority
	var discovery *discovery
	var svc *service.Service
	tokens, join, rejoin, err := o.joiner(key.Seed(), requests, &svc)
	if err != nil {
		return nil, err
	}
	options.HostToken = func(ctx context.Context, h *domain.Host) (string, error) { return authority.ForInstalled(ctx, h) }
	live, err := o.liveImages()
	if err != nil {
		return nil, err
	}
	if len(live) > 0 || o.ImageURL != "" {
		options.BootArtifacts = func(ctx context.Context, e *domain.InfraEnv) (agentproto.BootArtifactsArgs, error) {
			return discovery.artifacts(ctx, e)
		}
	}
	options.CheckImage = func(e *domain.InfraEnv) error { return discovery.check(e) }
	options.Join, options.Rejoin, options.AgentSum = join, rejoin, programs.checksum
	svc = service.New(o.throughFaults(db), options)
	if authority, err = token.New(token.Options{Key: key, Generations: svc}); err != nil {
		return nil, fmt.Errorf("preparing tokens: %w", err)
	}
	rest := httpapi.Options{Service: svc, Authority: authority, People: people, Programs: programs, Versions: versions(options.OSImages), BaseURL: o.BaseURL, Release: buildinfo.Version(), AgentImage: o.AgentImage, Log: log}
	mux := http.NewServeMux()
	instruments := []prometheus.Collector{metrics.New(svc, &db.Statements), requests, buildinfo.Metric("agent-service")}
	if len(live) == 0 && o.ImageURL == "" {
		log.Warn(httpapi.NoImages)
	} else {
		programs.tell(log, live)
		discovery = newDiscovery(o, live, svc, authority, options.Authorities, programs, log)
		rest.Images, instruments = discovery, append(instruments, discovery.mount(mux)...)
	}
	handler, err := httpapi.New(rest)
	if err != nil {
		return nil, fmt.Errorf("preparing REST: %w", err)
	}
	mux.Handle("/", handler)
	if err := o.mountConsole(mux, handler, people, key.Seed(), requests, log); err != nil {
		return nil, err
	}
	return &parts{service: svc, handler: mux, discovery: discovery, instruments: instruments, requests: requests, tokens: tokens}, nil
}

// throughFaults is the store, with the faults that tests inject.
func (o *Options) throughFaults(db *store.Store) transaction.Store {
	if o.through != nil {
		return o.through(db)
	}
	return db
}

// service are the options of the service that flags and files state.
func (o *Options) service(log *zap.Logger) (service.Options, error) {
	images, err := o.osImages()
	if err != nil {
		return service.Options{}, err
	}
	minimums, err := o.hostMinimums()
	if err != nil {
		return service.Options{}, err
	}
	authorities, err := o.authorities()
	if err != nil {
		return service.Options{}, err
	}
	return service.Options{
		DisconnectAfter: o.DisconnectAfter, EventRetention: o.EventRetention, OSImages: images, RegistryImages: split(o.RegistryImages), InstallerImage: o.InstallerImage,
		BaseURL: o.BaseURL, Minimums: minimums, Log: log, Authorities: authorities, RestoreTime: o.restoreTime(), AgentVersion: buildinfo.Version(),
	}, nil
}

// people is who may come with which token.
func (o *Options) people(requests *requestcount.Counter) (token.People, error) {
	switch o.OIDCIssuer {
	case "none":
		return token.Anonymous{}, nil
	case "kubernetes":
		return o.reviewedPeople(requests)
	}
	issuer := &token.Issuer{
		URL: o.OIDCIssuer, Audience: o.OIDCAudience, UserClaim: o.OIDCUserClaim, OrganizationClaim: o.OIDCOrganization, AdminGroup: o.OIDCAdminGroup, ViewerGroup: o.OIDCViewerGroup, Now: time.Now,
		Keys: &token.KeySet{Issuer: o.OIDCIssuer, URL: o.OIDCKeysURL, Client: &http.Client{Timeout: 10 * time.Second}, Now: time.Now},
	}
	if o.OIDCKeyFile != "" {
		keys, err := token.ReadKeyFile(o.OIDCKeyFile)
		if err != nil {
			return nil, err
		}
		issuer.Keys = keys
	}
	return issuer, nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// versions are what users can choose.
func versions(images []agentproto.OSImage) []httpapi.Version {
	var list []httpapi.Version
	at := map[string]int{}
	for _, image := range images {
		i, there := at[image.Version]
		if !there {
			i = len(list)
			at[image.Version] = i
			list = append(list, httpapi.Version{Name: image.Version, DisplayName: image.Version, Default: i == 0})
		}
		if image.CPUArchitecture != "" {
			list[i].CPUArchitectures = append(list[i].CPUArchitectures, image.CPUArchitecture)
		}
	}
	return list
}

// serve answers until ctx ends, with TLS if the process has a certificate. A renewed certificate is served as soon as its files have it.
func (p *Process) serve(ctx context.Context, server *http.Server, listener net.Listener, log *zap.Logger) error {
	if p.TLSCertificate == "" {
		return serve(ctx, server, listener)
	}
	pair, err := certfile.Load(p.TLSCertificate, p.TLSKey, func(err error) {
		log.Error("the certificate was not read again, and the former one is served", zap.Error(err))
	})
	if err != nil {
		return fmt.Errorf("serving: %w", err)
	}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: pair.GetCertificate}
	return serve(ctx, server, listener)
}

// serve answers until ctx ends, and then lets requests end. Held polls are answered by the service, which ends at the same time.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	stopped := make(chan error, 1)
	go func() {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), operator.ShutdownTimeout)
		defer cancel()
		stopped <- server.Shutdown(last)
	}()
	var err error
	if server.TLSConfig != nil {
		err = server.ServeTLS(listener, "", "")
	} else {
		err = server.Serve(listener)
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("ending requests: %w", err)
	}
	return nil
}
