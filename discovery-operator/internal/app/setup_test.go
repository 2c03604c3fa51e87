// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// haste divides the times after which operators of tests look at hosts again.
const haste = 10

// setup is how an operator of a test differs from one in a cluster.
type setup struct {
	Options
	// only are the namespaces whose hosts and resources it sees.
	only []string
	// through stands between a host and its Ironic.
	through func(baremetalhost.Manager) baremetalhost.Manager
	// ironicTimeout bounds a request to Ironic; 0 is the usual time.
	ironicTimeout time.Duration
	// now is the clock by which it manages hosts; nil is the usual one.
	now func() time.Time
}

// parts puts an operator together that can run beside others in this process, and whose own Ironic is a rack unless the options name a real one.
func (s setup) parts(rack *demo.Rack) (parts, error) {
	p, err := newParts(s.Options)
	if err != nil {
		return p, err
	}
	if p.rack != nil {
		p.rack, p.runners = rack, nil
	}
	p.registry = prometheus.NewRegistry()
	p.manager.Controller.SkipNameValidation = new(true)
	p.manager.Cache.DefaultNamespaces = map[string]cache.Config{}
	for _, ns := range s.only {
		p.manager.Cache.DefaultNamespaces[ns] = cache.Config{}
	}
	p.sources = func(o Options, rack *demo.Rack, live client.Reader, observe ironic.Observer) *sources {
		from := newSources(o, rack, live, observe)
		from.dialer.Timeout = s.ironicTimeout
		return from
	}
	p.hosts = func(mgr ctrl.Manager, d baremetalhost.Deps) error {
		if s.through != nil {
			d.Provisioners = interposed{d.Provisioners, s.through}
		}
		d.Now = s.now
		r := baremetalhost.New(d)
		least := time.Duration(0)
		if s.Provisioner == ProvisionerIronic {
			least = ironictest.Beat
		}
		return r.SetupWithManager(mgr, hasty{r, least})
	}
	return p, nil
}

// interposed puts something between hosts and their Ironics.
type interposed struct {
	baremetalhost.Provisioners
	through func(baremetalhost.Manager) baremetalhost.Manager
}

func (i interposed) Provisioner(ctx context.Context, namespace string, ref *metal3v1.IronicReference) (baremetalhost.Manager, error) {
	m, err := i.Provisioners.Provisioner(ctx, namespace, ref)
	if err != nil {
		return nil, err
	}
	return i.through(m), nil
}

// hasty looks at hosts again soon.
type hasty struct {
	reconcile.Reconciler
	// least is how soon it looks again at most, unless the reconciler itself asks for less.
	least time.Duration
}

func (h hasty) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := h.Reconciler.Reconcile(ctx, req)
	result.RequeueAfter = max(result.RequeueAfter/haste, min(result.RequeueAfter, h.least))
	return result, err
}
