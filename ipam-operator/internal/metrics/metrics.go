// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics measures what the operator does. Numbers of pools are read when they are scraped, so that no series
// outlives its pool.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Pools is what the collector reads.
type Pools interface {
	Pools() []types.NamespacedName
	Counts(types.NamespacedName) (allocate.Counts, bool)
}

// Waiting tells how many claims wait for an address, by reason.
type Waiting interface {
	Waiting() map[allocate.Why]int
}

// Metrics are the instruments of the operator.
type Metrics struct {
	latency     prometheus.Histogram
	allocations *prometheus.CounterVec
	conflicts   *prometheus.CounterVec
	released    *prometheus.CounterVec
}

// Kinds of conflict.
const (
	// NameTaken is an address that another claim got first.
	NameTaken = "name_taken"
	// ClaimChanged is a claim that changed while it was served.
	ClaimChanged = "claim_changed"
)

// New registers the instruments.
func New(registry prometheus.Registerer, pools Pools, waiting Waiting) *Metrics {
	m := &Metrics{
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "ipam_allocation_duration_seconds", Help: "Time from the first look at a claim without address to its status.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5},
		}),
		allocations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ipam_allocations_total", Help: "Addresses given to claims, by how the address was found.",
		}, []string{"why"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ipam_conflicts_total", Help: "Writes that the API server refused because another writer was first.",
		}, []string{"kind"}),
		released: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ipam_releases_total", Help: "Addresses given back, by why.",
		}, []string{"why"}),
	}
	registry.MustRegister(m.latency, m.allocations, m.conflicts, m.released, &collector{pools, waiting})
	return m
}

// Allocated counts an address that a claim got.
func (m *Metrics) Allocated(why allocate.Why, took time.Duration) {
	m.allocations.WithLabelValues(string(why)).Inc()
	m.latency.Observe(took.Seconds())
}

// Conflict counts a write that came second.
func (m *Metrics) Conflict(kind string) { m.conflicts.WithLabelValues(kind).Inc() }

// Released counts an address that was given back.
func (m *Metrics) Released(why allocate.Why) { m.released.WithLabelValues(string(why)).Inc() }

type collector struct {
	pools   Pools
	waiting Waiting
}

var (
	addresses = prometheus.NewDesc("ipam_addresses", "Addresses of a pool, by state.", []string{"ippool_namespace", "ippool_name", "state"}, nil)
	claims    = prometheus.NewDesc("ipam_claims_waiting", "Claims without an address, by reason.", []string{"reason"}, nil)
)

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	out <- addresses
	out <- claims
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, name := range c.pools.Pools() {
		counts, ok := c.pools.Counts(name)
		if !ok {
			continue
		}
		for state, n := range map[string]int64{"total": counts.Total, "used": counts.Used, "free": counts.Free, "out_of_range": counts.OutOfRange, "external": counts.External} {
			out <- prometheus.MustNewConstMetric(addresses, prometheus.GaugeValue, float64(n), name.Namespace, name.Name, state)
		}
	}
	for why, n := range c.waiting.Waiting() {
		out <- prometheus.MustNewConstMetric(claims, prometheus.GaugeValue, float64(n), string(why))
	}
}
