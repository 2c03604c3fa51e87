// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package discovery holds the benchmarks of discovery-operator.
package discovery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/bench"
)

const (
	// namespace holds the resource and the hosts.
	namespace = "bench"
	// patience is how long a sync may take on a busy machine before it counts as stuck.
	patience = 2 * time.Hour
	// quiet is how long the operator must not have written to count as idle.
	quiet = 3 * time.Second
	// writers write at a time without the operator.
	writers = 10
)

// testEnv is an operator beside an Ironic whose machines are hosts.
type testEnv struct {
	*bench.Run
	ironic   *proxied
	user     client.WithWatch
	plain    client.Client
	counter  *bench.Counter
	machines int
	// every says that the resource takes each so many-th machine; 1 takes all.
	every    int
	resource *metal3v1.BareMetalHostDiscovery
	// took is how long the sync took, done what it wrote.
	took time.Duration
	done bench.Requests
}

// load is what a sync has to do.
type load struct {
	machines int
	// delay is by how much longer Ironic takes for each request.
	delay time.Duration
	// noted says that it is noted what Ironic is asked.
	noted bool
	// tenth makes hosts of each tenth machine only: 100,000 hosts are more than etcd holds by default.
	tenth bool
}

// synced makes hosts of machines, of as many as the scale says.
func synced(ctx context.Context, r *bench.Run, l load) (*testEnv, error) {
	w := &testEnv{Run: r, machines: r.Scaled(l.machines), every: 1, counter: bench.NewCounter()}
	if l.tenth {
		w.every = 10
	}
	if err := w.clients(); err != nil {
		return nil, err
	}
	var err error
	if w.ironic, err = startIronic(ctx, w.machines, l); err != nil {
		return nil, err
	}
	if err := w.sync(ctx); err != nil {
		w.ironic.close(ctx)
		return nil, err
	}
	return w, nil
}

func (w *testEnv) clients() error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), metal3v1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("making a scheme: %w", err)
	}
	var err error
	if w.user, err = client.NewWithWatch(w.Admin, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	counted := rest.CopyConfig(w.Admin)
	counted.Wrap(w.counter.Wrap)
	if w.plain, err = client.New(counted, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return nil
}

func (w *testEnv) sync(ctx context.Context) error {
	if err := w.user.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("creating the namespace: %w", err)
	}
	// No webhook serves the check on hosts here. The operator's own hosts pass it by, bare ones would each wait for a connection that is refused.
	check := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "baremetalhosts.discovery.muster.io"}}
	if err := w.user.Delete(ctx, check); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("removing the check on hosts: %w", err)
	}
	before, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	w.resource = &metal3v1.BareMetalHostDiscovery{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "all"},
		Spec: metal3v1.BareMetalHostDiscoverySpec{
			ResourceNameTemplate: metal3v1.ResourceNameTemplate{HardwareDetails: metal3v1.DetailHostname},
			Ironic:               &metal3v1.IronicReference{Endpoint: w.ironic.endpoint, InspectorEndpoint: w.ironic.inspector},
			RateLimit:            metal3v1.RateLimit{HostsPerMinute: 1_000_000},
			Interval:             &metav1.Duration{Duration: 10 * time.Second},
			ResyncInterval:       &metav1.Duration{Duration: time.Hour},
		},
	}
	if w.every > 1 {
		w.resource.Spec.Selector = "hardware.hostname.endsWith('0')"
	}
	profiled, err := w.Profile(ctx, w.Local.Pid("discovery-operator"))
	if err != nil {
		return err
	}
	started := time.Now()
	if err := w.user.Create(ctx, w.resource); err != nil {
		return fmt.Errorf("creating the resource: %w", err)
	}
	err = w.Await(ctx, patience, w.follow(ctx))
	w.took = time.Since(started)
	profiled()
	if err != nil {
		return err
	}
	after, err := w.Settled(ctx, quiet, patience)
	if err != nil {
		return err
	}
	w.done = after.Since(before)
	return w.verify(ctx)
}

// follow returns what a sync lacks, and nothing when it is complete. It follows the resource by a watch: looking at it again and again would be work of the
// API server that the bare writes do not have.
func (w *testEnv) follow(ctx context.Context) (missing func() string) {
	var changes watch.Interface
	return func() string {
		if changes == nil {
			var err error
			if changes, err = w.user.Watch(ctx, &metal3v1.BareMetalHostDiscoveryList{}, client.InNamespace(namespace)); err != nil {
				return err.Error()
			}
		}
		for {
			select {
			case event, ok := <-changes.ResultChan():
				if resource, is := event.Object.(*metal3v1.BareMetalHostDiscovery); is {
					w.resource = resource
				}
				if !ok {
					changes = nil
					return "the watch has ended"
				}
				continue
			default:
			}
			break
		}
		if c := w.resource.Status.Counts; int(c.Hosts) != w.hosts() || c.Waiting != 0 || int(c.Read) != w.machines {
			return fmt.Sprintf("%d of %d machines are read, %d of %d are hosts", c.Read, w.machines, c.Hosts, w.hosts())
		}
		changes.Stop()
		return ""
	}
}

// hosts is how many machines become hosts.
func (w *testEnv) hosts() int { return w.machines / w.every }

// verify checks that each machine that is taken has one host, with its node and hardware.
func (w *testEnv) verify(ctx context.Context) error {
	var hosts metal3v1.BareMetalHostList
	if err := w.user.List(ctx, &hosts); err != nil {
		return fmt.Errorf("listing hosts: %w", err)
	}
	macs, nodes := map[string]bool{}, map[string]bool{}
	for i := range hosts.Items {
		h := &hosts.Items[i]
		if h.Status.HardwareDetails == nil || len(h.Status.HardwareDetails.NIC) != 2 {
			return fmt.Errorf("host %s lacks its hardware", h.Name)
		}
		macs[strings.ToLower(h.Spec.BootMACAddress)], nodes[h.Status.Provisioning.ID] = true, true
	}
	w.Figure("duplicates", float64(len(hosts.Items)-len(macs)), "hosts", 0)
	if len(hosts.Items) != w.hosts() || len(macs) != w.hosts() || len(nodes) != w.hosts() {
		return fmt.Errorf("%d hosts with %d boot MACs and %d nodes, wanted %d of each", len(hosts.Items), len(macs), len(nodes), w.hosts())
	}
	w.Asserted("%d hosts, each with a boot MAC and a node of its own, and with hardware", w.hosts())
	return nil
}
