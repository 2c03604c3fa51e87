// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	webhookadmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-io/muster/apis/webhookcert"
	"github.com/muster-io/muster/discovery-operator/internal/admission"
	"github.com/muster-io/muster/discovery-operator/internal/reserve"
)

// check is the admission check on hosts.
type check struct {
	server webhook.Server
	// rotator makes the certificate; nil where files hold it.
	rotator *webhookcert.CertRotator
}

func newCheck(o Options) (check, error) {
	host, port, err := o.webhook()
	if err != nil {
		return check{}, err
	}
	options := webhook.Options{Host: host, Port: port, CertDir: o.WebhookCertDir}
	var c check
	if o.WebhookCertDir == "" {
		c.rotator = &webhookcert.CertRotator{
			Target:    webhookcert.ValidatingWebhook{ConfigurationName: admission.ConfigurationName, WebhookPath: admission.Path},
			Namespace: o.Namespace, Name: admission.ServiceName, URL: o.WebhookURL,
		}
		options.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.GetCertificate = c.rotator.GetCertificate }}
	}
	c.server = webhook.NewServer(options)
	return c, nil
}

// addTo serves the check, where it is wanted. All replicas serve it.
func (c check) addTo(ctx context.Context, mgr ctrl.Manager, o Options, from *sources) error {
	if _, port, err := o.webhook(); err != nil || port == 0 {
		return err
	}
	if err := admission.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	plain, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return wrap(err, "making a client without cache")
	}
	hosts := &admission.Hosts{
		Reader: mgr.GetCache(), Decoder: webhookadmission.NewDecoder(mgr.GetScheme()),
		Reserver: reserve.Reserver{Client: plain, Live: plain, Namespace: o.Namespace, FieldOwner: name, Now: time.Now},
	}
	if !o.ManageHosts {
		hosts.Nodes = discovered{mgr.GetCache(), from}
	}
	mgr.GetWebhookServer().Register(admission.Path, &webhook.Admission{Handler: hosts})
	if c.rotator == nil {
		return nil
	}
	c.rotator.Live = plain
	return wrap(c.rotator.SetupWithManager(mgr, "admission"), "adding the rotation of the certificate")
}
