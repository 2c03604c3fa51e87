// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics declares what the operator counts, and reads gauges from the cache when they are asked for.
package metrics

import (
	"context"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// Metrics holds the counters of one operator process.
type Metrics struct {
	created, handedOver, refused prometheus.Counter
	polls                        *prometheus.CounterVec
	pollSeconds                  *prometheus.HistogramVec
	requests                     *prometheus.CounterVec
	requestSeconds               *prometheus.HistogramVec
	nodesDeleted                 prometheus.Counter
	scalings                     *prometheus.CounterVec
}

// New makes the metrics and registers them.
func New(registry prometheus.Registerer) *Metrics {
	m := &Metrics{
		created: counter("hosts_created_total", "Hosts that discovery created."),
		refused: counter("machines_refused_total", "Machines that discovery refused, each counted when it was first refused for a reason."),
		handedOver: counter("hosts_handed_over_total",
			"Hosts that were handed over to the operator that manages hosts."),
		nodesDeleted: counter("nodes_deleted_total", "Nodes that were deleted in Ironic with their host."),
		polls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "discovery_operator", Name: "polls_total", Help: "Readings of Ironic, by kind (news, full) and result (success, error).",
		}, []string{"kind", "result"}),
		pollSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "discovery_operator", Name: "poll_duration_seconds", Help: "Time that a reading of Ironic took, by kind.",
			Buckets: []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 120},
		}, []string{"kind"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "discovery_operator", Name: "ironic_requests_total", Help: "Requests to Ironic, by operation and HTTP status (0: no reply).",
		}, []string{"operation", "code"}),
		requestSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "discovery_operator", Name: "ironic_request_duration_seconds", Help: "Time to the reply's header, by operation.",
			Buckets: prometheus.DefBuckets,
		}, []string{"operation"}),
		scalings: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "discovery_operator", Name: "scalings_total",
			Help: "Times that a MachineDeployment or MachineSet was scaled to the number of its hosts, by direction (up, down).",
		}, []string{"direction"}),
	}
	registry.MustRegister(m.collectors()...)
	return m
}

func (m *Metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.created, m.refused, m.handedOver, m.nodesDeleted, m.polls, m.pollSeconds, m.requests, m.requestSeconds,
		m.scalings,
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "discovery_operator", Name: name, Help: help})
}

// Created counts a host.
func (m *Metrics) Created() { m.created.Inc() }

// Refused counts a machine.
func (m *Metrics) Refused() { m.refused.Inc() }

// HandedOver counts a hand-over.
func (m *Metrics) HandedOver() { m.handedOver.Inc() }

// NodeDeleted counts a node.
func (m *Metrics) NodeDeleted() { m.nodesDeleted.Inc() }

// Scaled counts a change of a set that follows hosts.
func (m *Metrics) Scaled(up bool) {
	direction := "down"
	if up {
		direction = "up"
	}
	m.scalings.WithLabelValues(direction).Inc()
}

// Poll counts a reading of Ironic.
func (m *Metrics) Poll(_, kind string, took time.Duration, err error) {
	result := "success"
	if err != nil {
		result = "error"
	}
	m.polls.WithLabelValues(kind, result).Inc()
	m.pollSeconds.WithLabelValues(kind).Observe(took.Seconds())
}

// Request counts a request to Ironic.
func (m *Metrics) Request(operation string, status int, took time.Duration) {
	m.requests.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.requestSeconds.WithLabelValues(operation).Observe(took.Seconds())
}

// Collector reads gauges of state from the statuses in the cache when it is asked, so that no series outlives its object.
type Collector struct {
	reader   client.Reader
	machines *prometheus.Desc
	reasons  *prometheus.Desc
}

// NewCollector makes a collector that reads from the cache.
func NewCollector(reader client.Reader) *Collector {
	return &Collector{
		reader: reader,
		machines: prometheus.NewDesc("discovery_operator_machines",
			"Machines by situation: node, read, known, host, lost, waiting, refused, ignored, not-selected.", []string{"discovery_namespace", "discovery_name", "situation"}, nil),
		reasons: prometheus.NewDesc("discovery_operator_machines_by_reason",
			"Machines that wait or are refused, by reason.", []string{"discovery_namespace", "discovery_name", "reason"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.machines
	ch <- c.reasons
}

// scrapeTimeout bounds the reading of the cache, which waits until it is filled.
const scrapeTimeout = 5 * time.Second

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // Collect is called without a context
	defer cancel()
	var list metal3v1.BareMetalHostDiscoveryList
	if err := c.reader.List(ctx, &list); err != nil {
		ch <- prometheus.NewInvalidMetric(c.machines, err)
		return
	}
	for i := range list.Items {
		d := &list.Items[i]
		n := d.Status.Counts
		for situation, value := range map[string]int32{
			"node": n.Nodes, "read": n.Read, "known": n.Known, "host": n.Hosts, "lost": n.Lost, "waiting": n.Waiting, "refused": n.Refused, "ignored": n.Ignored,
			"not-selected": n.NotSelected,
		} {
			ch <- prometheus.MustNewConstMetric(c.machines, prometheus.GaugeValue, float64(value), d.Namespace, d.Name, situation)
		}
		for _, r := range d.Status.Reasons {
			ch <- prometheus.MustNewConstMetric(c.reasons, prometheus.GaugeValue, float64(r.Count), d.Namespace, d.Name, r.Reason)
		}
	}
}
