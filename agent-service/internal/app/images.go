// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/agent-service/internal/metrics"
	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/logging"
	"github.com/muster-io/muster/apis/operator"
)

// remoteClient is for what this process asks of another one of ours.
var remoteClient = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{Proxy: proxyTo, MaxIdleConnsPerHost: 100, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true}}

// proxyTo is the proxy that the environment names. A name without a dot is of the same cluster, such as agent-service: the domains and networks of NO_PROXY do not cover it, and a proxy does not find it.
func proxyTo(request *http.Request) (*url.URL, error) {
	if !strings.ContainsAny(request.URL.Hostname(), ".:") {
		return nil, nil //nolint:nilnil // no proxy, as http.ProxyFromEnvironment says it
	}
	return http.ProxyFromEnvironment(request)
}

// ImageOptions are the settings of a process that serves discovery images alone: "agent-service images". It keeps no secrets; what an image holds it
// asks of the service, with the key that the image's address has.
type ImageOptions struct {
	Process
	ServiceURL    string
	ServiceCAFile string
}

// parseImageOptions is ParseOptions for ImageOptions.
func parseImageOptions(arguments []string) (ImageOptions, error) {
	var o ImageOptions
	if err := operator.ParseFlags("agent-service images", arguments, o.bind); err != nil {
		return o, err
	}
	o.findLiveImages()
	return o, o.Validate()
}

func (o *ImageOptions) bind(flags *flag.FlagSet) {
	o.Process.bind(flags)
	flags.StringVar(&o.Listen, "listen", ":8092", "address of discovery images, /healthz and /readyz")
	flags.StringVar(&o.BaseURL, "base-url", "http://localhost:8092", "how hosts reach this process, without a slash at the end: --image-url of the service")
	flags.StringVar(&o.ServiceURL, "service-url", "http://localhost:8090", "how this process reaches the service, without a slash at the end")
	flags.StringVar(&o.ServiceCAFile, "service-ca-file", "", "PEM certificates that the service is trusted by; empty for the system's")
}

// Validate says everything that is wrong with the options.
func (o *ImageOptions) Validate() error {
	errs := o.validate()
	if !isAddress(o.ServiceURL) {
		errs = append(errs, fmt.Errorf("--service-url=%s: write http(s)://host:port without a slash at the end", o.ServiceURL))
	}
	if o.LiveImages == "" {
		errs = append(errs, errors.New("--live-images: write the file that lists them, or build our own live image with make live-image"))
	}
	return errors.Join(errs...)
}

// runImages serves discovery images until ctx ends.
func runImages(ctx context.Context, o ImageOptions) error {
	log, err := logging.New(o.LogLevel)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	return runImagesWith(ctx, o, log, listener)
}

// runImagesWith serves discovery images on a listener until ctx ends.
func runImagesWith(ctx context.Context, o ImageOptions, log *zap.Logger, listener net.Listener) error {
	live, err := o.liveImages()
	if err != nil {
		return err
	}
	client, err := o.client()
	if err != nil {
		return err
	}
	images := image.New(image.Options{
		Catalog: &image.Catalog{Directory: o.LiveImageCache, Versions: live, Log: log}, Source: &image.Remote{URL: o.ServiceURL, Client: client}, URL: o.BaseURL,
	})
	mux := http.NewServeMux()
	mux.Handle("/images/", images)
	mux.Handle("/boot-artifacts/", images)
	// It is ready without the service: kernels and root file systems need nothing of it, and other requests are answered with 503 and Retry-After.
	for _, probe := range []string{"GET /healthz", "GET /readyz"} {
		mux.HandleFunc(probe, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return o.serve(ctx, &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}, listener, log)
	})
	group.Go(func() error { return o.serveProbes(ctx, mux) })
	group.Go(func() error {
		return o.serveMetrics(ctx, log, metrics.NewImages(images), buildinfo.Metric("agent-service-images"))
	})
	log.Info("started to serve images", zap.String("address", listener.Addr().String()), zap.String("version", buildinfo.Version()))
	return group.Wait()
}

// client trusts what the service is to be trusted by.
func (o *ImageOptions) client() (*http.Client, error) {
	if o.ServiceCAFile == "" {
		return remoteClient, nil
	}
	trust := &trusting{file: o.ServiceCAFile}
	if _, err := trust.current(); err != nil {
		return nil, err
	}
	return &http.Client{Timeout: remoteClient.Timeout, Transport: trust}, nil
}
