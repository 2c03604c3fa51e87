// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics measures the service. Numbers of hosts are read when they are scraped.
package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
)

// Collector reads a service when it is scraped.
type Collector struct {
	service    *service.Service
	statements *atomic.Int64
	hosts      *prometheus.Desc
	connected  *prometheus.Desc
	held       *prometheus.Desc
	away       *prometheus.Desc
	counters   []counter
}

type counter struct {
	desc *prometheus.Desc
	from *atomic.Int64
}

// New makes a collector of a service and of the statements that its store sent.
func New(s *service.Service, statements *atomic.Int64) *Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("agent_service_"+name, help, labels, nil)
	}
	return &Collector{
		service: s, statements: statements,
		hosts:     desc("hosts", "Hosts by state.", "state"),
		connected: desc("hosts_connected", "Hosts whose agent polled within the time-out."),
		held:      desc("polls_held", "Polls of agents that are held open now."),
		away:      desc("store_away", "1 while the database cannot be reached."),
		counters: []counter{
			{desc("polls_total", "Polls of agents."), &s.Polls},
			{desc("registrations_total", "Registrations of hosts, repeated ones too."), &s.Registers},
			{desc("heartbeats_saved_total", "Heartbeats written to the database."), &s.Saved},
			{desc("refusals_total", "Requests that were refused with a reason."), &s.Refusals},
			{desc("timeouts_total", "Hosts that were too long in a state."), &s.Timeouts},
			{desc("sql_statements_total", "Statements sent to the database."), statements},
		},
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.hosts, c.connected, c.held, c.away} {
		descs <- d
	}
	for _, one := range c.counters {
		descs <- one.desc
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	states, connected := c.service.Census()
	for _, state := range lifecycle.States {
		out <- prometheus.MustNewConstMetric(c.hosts, prometheus.GaugeValue, float64(states[state]), string(state))
	}
	away := 0.0
	if c.service.StoreAway() {
		away = 1
	}
	out <- prometheus.MustNewConstMetric(c.connected, prometheus.GaugeValue, float64(connected))
	out <- prometheus.MustNewConstMetric(c.held, prometheus.GaugeValue, float64(c.service.Held.Load()))
	out <- prometheus.MustNewConstMetric(c.away, prometheus.GaugeValue, away)
	for _, one := range c.counters {
		out <- prometheus.MustNewConstMetric(one.desc, prometheus.CounterValue, float64(one.from.Load()))
	}
}
