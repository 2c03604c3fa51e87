// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// dialTimeout bounds the reading of one configuration.
const dialTimeout = 30 * time.Second

// reread is how long a configuration is used before files and Secrets are read again.
const reread = 30 * time.Second

// unusedTime is how long a client is kept that no resource or host uses.
const unusedTime = time.Hour

// Secrets reads the data of one Secret. It is the only way in which this package learns of Secrets.
type Secrets func(ctx context.Context, namespace, name string) (map[string][]byte, error)

// Dialer makes clients for the endpoints that resources name, and keeps them while their configuration stays the same.
type Dialer struct {
	environment func() (Config, error)
	// own is the environment when it was first looked at: its endpoint does not change.
	own     func() Config
	secrets Secrets
	observe Observer
	// Timeout bounds one request; 0 means the default of Config.
	Timeout time.Duration

	// dialing reads each configuration once for all who ask for it. No lock is held meanwhile, so that an endpoint whose configuration cannot be
	// read hinders no other one.
	dialing singleflight.Group
	mu      sync.Mutex
	clients map[string]*dialed
}

type dialed struct {
	client      *Client
	fingerprint string
	// read is when its configuration was last read, used when a client was last asked for.
	read, used time.Time
}

// NewDialer makes a dialer. environment is the Ironic of the operator itself, for resources that name none.
func NewDialer(environment func() (Config, error), secrets Secrets, observe Observer) *Dialer {
	own := sync.OnceValue(func() Config {
		c, _ := environment()
		return c
	})
	return &Dialer{environment: environment, own: own, secrets: secrets, observe: observe, clients: map[string]*dialed{}}
}

// Address says which Ironic a reference means, and how its namespace comes in. No reference means the operator's own.
func (d *Dialer) Address(namespace string, ref *metal3v1.IronicReference) inventory.Address {
	a := inventory.Address{Session: "own"}
	var endpoint, inspector string
	keystone := false
	if ref == nil {
		c := d.own()
		endpoint, inspector, keystone = Redact(c.Endpoint), c.InspectorEndpoint, c.Auth == AuthKeystone
		a.Unverified = c.Insecure
	} else {
		endpoint, inspector, keystone = Redact(ref.Endpoint), ref.InspectorEndpoint, ref.Auth == metal3v1.AuthKeystone
		a.Session, a.Unverified = "open", ref.DisableCertificateVerification
		if ref.CredentialsName != "" {
			a.Session = string(ref.Auth) + " " + namespace + "/" + ref.CredentialsName
		}
		if a.Unverified {
			a.Session += " unverified"
		}
	}
	a.Endpoint, a.Ironic = endpoint, normalEndpoint(endpoint)
	a.View = a.Ironic + " " + normalEndpoint(inspector)
	if keystone { // Ironic shows the nodes of its project to a project's user
		a.View += " " + a.Session
	}
	return a
}

// Client returns the client of an endpoint. Files and Secrets are read again from time to time, and at once after a request failed because of them or reached no server, so
// that a rotated or corrected credential is used without a restart.
func (d *Dialer) Client(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (*Client, error) {
	a := d.Address(namespace, ref)
	key := a.View + " " + a.Session
	known := d.known(key)
	if known != nil && time.Since(known.read) < reread && !known.client.Failing() {
		return known.client, nil
	}
	dialing := d.dialing.DoChan(key, func() (any, error) {
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), dialTimeout)
		defer cancel()
		config, err := d.config(within, namespace, ref)
		if err != nil {
			return nil, err
		}
		return d.keep(key, config)
	})
	select {
	case <-ctx.Done():
		return nil, inventory.Failf(inventory.ProblemTimedOut, "reading how to reach %s: no answer in time", a.Endpoint)
	case r := <-dialing:
		if r.Err != nil {
			return nil, r.Err
		}
		client, _ := r.Val.(*Client)
		return client, nil
	}
}

func (d *Dialer) known(key string) *dialed {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.clients[key]
	if known != nil {
		known.used = time.Now()
	}
	return known
}

// keep returns the client of a configuration that was just read: the one that there is, if nothing in it changed.
func (d *Dialer) keep(key string, config Config) (*Client, error) {
	if config.Timeout == 0 {
		config.Timeout = d.Timeout
	}
	next := &dialed{fingerprint: config.Fingerprint(), read: time.Now(), used: time.Now()}
	if known := d.known(key); known != nil && known.fingerprint == next.fingerprint {
		next.client = known.client
	} else {
		var err error
		if next.client, err = New(config, d.observe); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.clients, func(_ string, c *dialed) bool { return time.Since(c.used) > unusedTime }) // users choose endpoints, and so how many there are
	d.clients[key] = next
	return next.client, nil
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
