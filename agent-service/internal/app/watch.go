// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/zapr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/muster-io/muster/apis/metricsauth"
	"github.com/muster-io/muster/apis/operator"
)

// serveProbes answers /healthz and /readyz of a handler at an address of their own until ctx ends.
func (p *Process) serveProbes(ctx context.Context, handler http.Handler) error {
	if p.HealthProbeBindAddress == "0" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.HealthProbeBindAddress)
	if err != nil {
		return fmt.Errorf("listening for probes: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", handler)
	mux.Handle("GET /readyz", handler)
	return serve(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener)
}

// serveMetrics answers /metrics until ctx ends: to any client, or with TLS to those that the cluster authorizes.
func (p *Process) serveMetrics(ctx context.Context, log *zap.Logger, instruments ...prometheus.Collector) error {
	if p.MetricsBindAddress == "0" {
		return nil
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(instruments...)
	// Where there are controllers, these are registered already.
	_ = ctrlmetrics.Registry.Register(collectors.NewGoCollector())
	_ = ctrlmetrics.Registry.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	handler := promhttp.HandlerFor(prometheus.Gatherers{registry, ctrlmetrics.Registry}, promhttp.HandlerOpts{})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.MetricsBindAddress)
	if err != nil {
		return fmt.Errorf("listening for metrics: %w", err)
	}
	if p.MetricsAuth == "kubernetes" {
		if handler, err = p.authorized(handler, log); err != nil {
			return err
		}
		trust, err := ownCertificate()
		if err != nil {
			return err
		}
		listener = tls.NewListener(listener, trust)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", handler)
	return serve(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener)
}

// authorized lets pass whose token the cluster knows, if that user may get the path.
func (p *Process) authorized(handler http.Handler, log *zap.Logger) (http.Handler, error) {
	config, err := p.cluster()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	filter, err := metricsauth.RefuseUnknownTokens(filters.WithAuthenticationAndAuthorization)(config, client)
	if err != nil {
		return nil, fmt.Errorf("preparing the authorization of metrics: %w", err)
	}
	return filter(zapr.NewLogger(log), handler)
}

// cluster is how the Kubernetes API is reached.
func (p *Process) cluster() (*rest.Config, error) {
	return operator.ClientConfig("agent-service", p.Kubeconfig)
}

// ownCertificate is self-signed: it keeps tokens from passive listeners.
func ownCertificate() (*tls.Config, error) {
	certificate, key, err := certutil.GenerateSelfSignedCertKey("localhost", []net.IP{{127, 0, 0, 1}}, nil)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for metrics: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate for metrics: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}, nil
}
