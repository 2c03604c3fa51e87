// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/bench"
	"github.com/muster-io/muster/e2e/environment"
)

// Benchmarks returns all benchmarks of discovery-operator.
func Benchmarks() []bench.Benchmark {
	operator := environment.DiscoveryOperator()
	operator.Args = func(string) []string { return []string{"--provisioner=ironic"} }
	return []bench.Benchmark{
		{Name: "discovery.sync_1k", Operator: operator, Play: func(ctx context.Context, r *bench.Run) error { return syncAll(ctx, r, 1000, 1.5) }},
		{Name: "discovery.sync_10k", Operator: operator, Play: func(ctx context.Context, r *bench.Run) error { return syncAll(ctx, r, 10_000, 1.3) }},
		{Name: "discovery.sync_100k", Operator: operator, Play: func(ctx context.Context, r *bench.Run) error {
			return syncUnrefused(ctx, r, load{machines: 100_000, tenth: true})
		}},
		{Name: "discovery.sync_1k_slow", Operator: operator, Play: func(ctx context.Context, r *bench.Run) error {
			return syncUnrefused(ctx, r, load{machines: 1000, delay: slow})
		}},
		{Name: "discovery.sync_10k_slow", Operator: operator, Play: func(ctx context.Context, r *bench.Run) error {
			return syncUnrefused(ctx, r, load{machines: 10_000, delay: slow})
		}},
		{Name: "discovery.sync_100k_slow", ByName: true, Operator: operator, Play: func(ctx context.Context, r *bench.Run) error {
			return syncUnrefused(ctx, r, load{machines: 100_000, delay: slow, tenth: true})
		}},
		{Name: "discovery.steady_10k", Operator: operator, Play: steady},
		{Name: "discovery.resync_10k", Operator: operator, Play: resync},
		{Name: "discovery.diff_100k", Play: diff},
	}
}

// diff compares 100,000 nodes with 100,000 hosts, in memory.
func diff(ctx context.Context, r *bench.Run) error {
	results, err := bench.GoBenchmark{Module: "discovery-operator", Package: "./internal/inventory", Pattern: "^BenchmarkDiff$"}.Run(ctx)
	if err != nil {
		return err
	}
	r.Figure("ms", results[0].NanosecondsPerOp/1e6, "ms", 1000)
	return nil
}

// syncAll makes hosts of all machines of a seeded Ironic, in at most so many times the time of the bare writes.
func syncAll(ctx context.Context, r *bench.Run, n int, target bench.Target) error {
	w, err := synced(ctx, r, load{machines: n})
	if err != nil {
		return err
	}
	defer w.ironic.close(ctx)
	w.Figure("writes_per_op", float64(bench.Total(w.done.Writes(), nil))/float64(w.machines), "writes", bench.NoTarget)
	w.Note("operator's writes: %s", bench.Describe(w.done.Writes()))
	w.Note("apart: %s", bench.Describe(w.done.Apart()))
	if err := w.FigureUsage(); err != nil {
		return err
	}
	var like metal3v1.BareMetalHostList
	if err := w.user.List(ctx, &like, client.Limit(1)); err != nil {
		return fmt.Errorf("listing hosts: %w", err)
	}
	reservation, err := w.reservation(ctx)
	if err != nil {
		return err
	}
	w.StopOperator()
	read, err := w.ironic.readAll(ctx)
	if err != nil {
		return err
	}
	w.Figure("bare_read_seconds", read.Seconds(), "s", bench.NoTarget)
	w.Note("bare_read: the lists and the inventories of %d machines, %d at a time, no operator running. bare_seconds are writes alone; a sync has to do both on the same cores",
		w.machines, fetchers)
	w.Note("bare: with each host, its reservation is created; HardwareData is written after the time that was taken, and not among it")
	writes := maps.Clone(w.done.Writes())
	delete(writes, bench.Kind{Verb: "apply", Resource: "hardwaredata"})
	return w.RatioToBare(ctx, w.took, w.bare(&like.Items[0], reservation, writes), w.counter, target)
}

// slow is by how much longer a slow Ironic takes for each request.
const slow = 200 * time.Millisecond

// syncUnrefused makes hosts of machines of a seeded Ironic. None may be refused on the way because the first reading took long.
func syncUnrefused(ctx context.Context, r *bench.Run, l load) error {
	w, err := synced(ctx, r, l)
	if err != nil {
		return err
	}
	defer w.ironic.close(ctx)
	refusals := 0
	var events eventsv1.EventList
	if err := w.user.List(ctx, &events, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("listing events: %w", err)
	}
	for i := range events.Items {
		if events.Items[i].Action == "Refuse" {
			refusals++
		}
	}
	w.Figure("seconds", w.took.Seconds(), "s", bench.NoTarget)
	w.Figure("refused", float64(refusals), "machines", 0)
	if l.delay > 0 {
		w.Note("%d inventories with %d at a time take %.0f s at the least", w.machines, fetchers, float64(w.machines)/fetchers*l.delay.Seconds())
	}
	return w.FigureUsage()
}

// fetchers is how many inventories the operator reads at once.
const fetchers = 8

// reservation is one of those that the operator made, without what the API server adds.
func (w *testEnv) reservation(ctx context.Context) (*coordinationv1.Lease, error) {
	var leases coordinationv1.LeaseList
	if err := w.user.List(ctx, &leases); err != nil {
		return nil, fmt.Errorf("listing reservations: %w", err)
	}
	for i := range leases.Items {
		if l := &leases.Items[i]; strings.HasPrefix(l.Name, "boot-mac-") {
			return &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: "bare", Labels: l.Labels, Annotations: l.Annotations}, Spec: l.Spec,
			}, nil
		}
	}
	return nil, errors.New("the operator reserved nothing")
}

// bare are the writes of a sync, per machine in the order in which the operator does them.
func (w *testEnv) bare(like *metal3v1.BareMetalHost, reservation *coordinationv1.Lease, writes map[bench.Kind]int) bench.Bare {
	host := func(item int) *metal3v1.BareMetalHost {
		h := like.DeepCopy()
		h.ObjectMeta = metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("bare-%05d", item), Labels: like.Labels, Annotations: like.Annotations, Finalizers: like.Finalizers,
		}
		h.Spec.BootMACAddress = fmt.Sprintf("02:00:00:%02x:%02x:%02x", item>>16&255, item>>8&255, item&255)
		h.APIVersion, h.Kind = metal3v1.GroupVersion.String(), "BareMetalHost"
		return h
	}
	return bench.Bare{
		Writers: writers, Items: w.machines, Writes: writes,
		Order: []bench.Kind{
			{Verb: "create", Resource: "baremetalhosts"},
			{Verb: "apply", Resource: "baremetalhosts/status"},
			{Verb: "apply", Resource: "baremetalhostdiscoveries/status"},
		},
		Write: func(ctx context.Context, kind bench.Kind, item, n int) error {
			switch kind.Verb + " " + kind.Resource {
			case "create baremetalhosts":
				l := reservation.DeepCopy()
				l.Name = fmt.Sprintf("bare-%05d", item)
				if err := w.plain.Create(ctx, l); err != nil {
					return err
				}
				return w.plain.Create(ctx, host(item))
			case "apply baremetalhosts/status":
				return w.applyHost(ctx, host(item))
			default:
				return w.applyCounts(ctx, item, n)
			}
		},
	}
}

// steady watches for five minutes that nothing is written and little asked.
func steady(ctx context.Context, r *bench.Run) error {
	w, err := synced(ctx, r, load{machines: 10_000, noted: true})
	if err != nil {
		return err
	}
	defer w.ironic.close(ctx)
	before, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	w.ironic.taken()
	watched := time.Duration(w.Scaled(300)) * time.Second
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(watched):
	}
	after, err := w.Requests(ctx)
	if err != nil {
		return err
	}
	asked := w.ironic.taken()
	polls := 0
	for _, u := range asked {
		if strings.HasSuffix(u.Path, "/nodes") {
			polls++
		}
	}
	if polls == 0 {
		return fmt.Errorf("the operator did not poll Ironic in %s", watched)
	}
	w.Figure("requests_per_poll", float64(len(asked))/float64(polls), "requests", 3)
	w.Figure("writes_total", float64(bench.Total(after.Since(before).Writes(), nil)), "writes", 0)
	w.Asserted("%d polls in %s", polls, watched)
	return w.FigureUsage()
}

// resync counts what one reading of everything asks.
func resync(ctx context.Context, r *bench.Run) error {
	w, err := synced(ctx, r, load{machines: 10_000, noted: true})
	if err != nil {
		return err
	}
	defer w.ironic.close(ctx)
	w.ironic.taken()
	w.resource.Spec.ResyncInterval = &metav1.Duration{Duration: 10 * time.Second}
	if err := w.user.Update(ctx, w.resource); err != nil {
		return fmt.Errorf("making the operator read everything: %w", err)
	}
	var asked []*url.URL
	err = w.Await(ctx, 5*time.Minute, func() string {
		asked = append(asked, w.ironic.taken()...)
		if first, last := fullReading(asked); first < 0 || last < 0 {
			return "everything was not read yet"
		}
		return ""
	})
	if err != nil {
		return err
	}
	first, last := fullReading(asked)
	pages := w.machines/1000 + 1 + 2*w.machines/1000 + 1
	w.Figure("requests", float64(last-first), "requests", bench.Target(2*pages+2))
	w.Note("%d machines and %d ports are %d pages", w.machines, 2*w.machines, pages)
	return nil
}

// fullReading finds the requests from the first list of nodes without marker up to the next poll; -1 where there is none yet.
func fullReading(asked []*url.URL) (first, last int) {
	first, last = -1, -1
	ports := false
	for i, u := range asked {
		nodes, marker := strings.HasSuffix(u.Path, "/nodes"), u.Query().Has("marker")
		switch {
		case first < 0:
			if nodes && !marker {
				first = i
			}
		case strings.HasSuffix(u.Path, "/ports"):
			ports = true
		case nodes && ports:
			return first, i
		}
	}
	return first, last
}
