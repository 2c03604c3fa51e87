// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/webhookcert"
)

const (
	// conversionPath is where controller-runtime serves conversions.
	conversionPath = "/convert"
	// webhookName is the name of the Service that leads to the conversion, and of the Secret with its certificate.
	webhookName = "ipam-operator-webhook"
	// templateDefinition is the CustomResourceDefinition whose versions are converted.
	templateDefinition = "metal3datatemplates.infrastructure.cluster.x-k8s.io"
)

// conversion converts Metal3DataTemplates between their versions for the API server. All replicas serve it.
type conversion struct {
	server  webhook.Server
	rotator *webhookcert.CertRotator
}

// newConversion returns nil where no conversion is served.
func newConversion(o Options) (*conversion, error) {
	host, port, err := o.webhook()
	if err != nil || port == 0 {
		return nil, err
	}
	rotator := &webhookcert.CertRotator{
		Target:    webhookcert.ConversionWebhook{DefinitionName: templateDefinition, WebhookPath: conversionPath},
		Namespace: o.WebhookNamespace, Name: webhookName, URL: o.WebhookURL,
	}
	server := webhook.NewServer(webhook.Options{
		Host: host, Port: port, TLSOpts: []func(*tls.Config){func(config *tls.Config) { config.GetCertificate = rotator.GetCertificate }},
	})
	return &conversion{&boundedServer{server, reviewTimeout}, rotator}, nil
}

// webhookServer is the server of the manager; nil where no conversion is served.
func (c *conversion) webhookServer() webhook.Server {
	if c == nil {
		return nil
	}
	return c.server
}

// addTo serves the conversion.
func (c *conversion) addTo(ctx context.Context, mgr ctrl.Manager) error {
	if c == nil {
		return nil
	}
	live, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return fmt.Errorf("making a client without cache: %w", err)
	}
	c.rotator.Live = live
	if err := ctrl.NewWebhookManagedBy(mgr, &infrav1.Metal3DataTemplate{}).Complete(); err != nil {
		return fmt.Errorf("adding the conversion of Metal3DataTemplates: %w", err)
	}
	if err := c.rotator.Prepare(ctx); err != nil {
		return fmt.Errorf("preparing the certificate of the conversion: %w", err)
	}
	return c.rotator.SetupWithManager(mgr, "webhook-certificate")
}

// webhook splits the address of the conversion. The port is 0 when there is none.
func (o *Options) webhook() (host string, port int, err error) {
	return webhookcert.SplitAddress(o.WebhookBindAddress)
}

// validateWebhook says what is wrong with the options of the conversion.
func (o *Options) validateWebhook() error {
	var errs []error
	_, port, err := o.webhook()
	if err != nil {
		errs = append(errs, err)
	}
	if port != 0 && !o.NetworkData {
		errs = append(errs, errors.New("--webhook-bind-address: add --network-data, whose kinds are converted"))
	}
	if port != 0 && o.WebhookNamespace == "" {
		errs = append(errs, errors.New("--webhook-namespace is empty: name the namespace of the operator"))
	}
	if u, err := url.Parse(o.WebhookURL); o.WebhookURL != "" && (err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != "") {
		errs = append(errs, fmt.Errorf("--webhook-url=%s: write a URL without path such as https://127.0.0.1:9443", o.WebhookURL))
	}
	return errors.Join(errs...)
}
