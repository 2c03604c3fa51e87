// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"sync"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// reread is how long a configuration is used before files and Secrets are read again.
const reread = 30 * time.Second

// Secrets reads the data of one Secret. It is the only way in which this package learns of Secrets.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// Dialer makes clients for the endpoints that resources name, and keeps them while their configuration stays the same.
type Dialer struct {
	environment func() (Config, error)
	secrets     Secrets
	observe     Observer
	// Timeout bounds one request; 0 means the default of Config.
	Timeout time.Duration

	mu      sync.Mutex
	clients map[string]*dialed
}

type dialed struct {
	client      *Client
	fingerprint string
	read        time.Time
}

// NewDialer makes a dialer. environment is the Ironic of the operator itself, for resources that name none.
func NewDialer(environment func() (Config, error), secrets Secrets, observe Observer) *Dialer {
	return &Dialer{environment: environment, secrets: secrets, observe: observe, clients: map[string]*dialed{}}
}

// Key tells endpoints apart, and says how the endpoint is called. Equal references in one namespace have equal keys; two
// namespaces share a poller only for the operator's own endpoint or one without credentials.
func (d *Dialer) Key(namespace string, ref *metal3v1.IronicReference) (key, endpoint string) {
	if ref == nil {
		c, _ := d.environment()
		return "", Redact(c.Endpoint)
	}
	key = normalEndpoint(ref.Endpoint) + " " + normalEndpoint(ref.InspectorEndpoint)
	if ref.Auth != "" && ref.Auth != metal3v1.AuthNone {
		key += " " + string(ref.Auth)
	}
	if ref.CredentialsName != "" {
		key += " " + namespace + "/" + ref.CredentialsName
	}
	if ref.DisableCertificateVerification {
		key += " insecure"
	}
	return key, Redact(ref.Endpoint)
}

// Client returns the client of an endpoint. Files and Secrets are read again from time to time, and at once after a request failed because of them or found nobody, so
// that a rotated or corrected credential is used without a restart.
func (d *Dialer) Client(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (*Client, error) {
	key, _ := d.Key(namespace, ref)
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.clients[key]
	if known != nil && time.Since(known.read) < reread && !known.client.Failing() {
		return known.client, nil
	}
	config, err := d.config(ctx, namespace, ref)
	if err != nil {
		return nil, err
	}
	if known != nil && known.fingerprint == config.Fingerprint() {
		known.read = time.Now()
		return known.client, nil
	}
	if config.Timeout == 0 {
		config.Timeout = d.Timeout
	}
	client, err := New(config, d.observe)
	if err != nil {
		return nil, err
	}
	d.clients[key] = &dialed{client: client, fingerprint: config.Fingerprint(), read: time.Now()}
	return client, nil
}

func (d *Dialer) config(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (Config, error) {
	if ref == nil {
		return d.environment()
	}
	c := Config{
		Endpoint: ref.Endpoint, InspectorEndpoint: ref.InspectorEndpoint, Auth: Auth(ref.Auth),
		Insecure: ref.DisableCertificateVerification,
	}
	if ref.CredentialsName == "" {
		return c, nil
	}
	data, err := d.secrets(ctx, namespace, ref.CredentialsName)
	if err != nil {
		return c, inventory.Failf(inventory.ProblemNoSecret, "the Secret %s/%s cannot be read: %v", namespace, ref.CredentialsName, err)
	}
	return FromSecret(c, data), nil
}
