// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	webhookadmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/muster-io/muster/discovery-operator/internal/admission"
)

// check is the admission check on hosts.
type check struct {
	server webhook.Server
	// keeper makes the certificate; nil where files hold it.
	keeper *admission.Keeper
}

func newCheck(o Options) (check, error) {
	host, port, err := o.webhook()
	if err != nil {
		return check{}, err
	}
	options := webhook.Options{Host: host, Port: port, CertDir: o.WebhookCertDir}
	var c check
	if o.WebhookCertDir == "" {
		c.keeper = &admission.Keeper{Namespace: o.Namespace, URL: o.WebhookURL}
		options.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.GetCertificate = c.keeper.GetCertificate }}
	}
	c.server = webhook.NewServer(options)
	return c, nil
}

// addTo serves the check, where it is wanted. All replicas serve it.
func (c check) addTo(ctx context.Context, mgr ctrl.Manager, o Options) error {
	if _, port, err := o.webhook(); err != nil || port == 0 {
		return err
	}
	if err := admission.Index(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	mgr.GetWebhookServer().Register(admission.Path, &webhook.Admission{Handler: &admission.Hosts{
		Reader: mgr.GetCache(), Decoder: webhookadmission.NewDecoder(mgr.GetScheme()),
	}})
	if c.keeper == nil {
		return nil
	}
	plain, err := client.New(mgr.GetConfig(), client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return wrap(err, "making a client without cache")
	}
	c.keeper.Reader, c.keeper.Live = mgr.GetCache(), plain
	return wrap(c.keeper.SetupWithManager(mgr), "adding the keeper of the certificate")
}
