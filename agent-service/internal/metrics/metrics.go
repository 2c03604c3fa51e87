// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics measures the service. Numbers of hosts are read when they are scraped.
package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/agent-service/internal/domain"
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
	waiting    *prometheus.Desc
	oldest     *prometheus.Desc
	counters   []counter
}

type counter struct {
	desc *prometheus.Desc
	from *atomic.Int64
}

// New makes a collector of a service and of the statements that its store sent.
func New(s *service.Service, statements *atomic.Int64) *Collector {
	return &Collector{
		service: s, statements: statements,
		hosts:     prometheus.NewDesc("agent_service_hosts", "Hosts by state.", []string{"state"}, nil),
		connected: prometheus.NewDesc("agent_service_hosts_connected", "Hosts whose agent polled within the time-out.", nil, nil),
		held:      prometheus.NewDesc("agent_service_polls_held", "Polls of agents that are held open now.", nil, nil),
		away:      prometheus.NewDesc("agent_service_store_away", "1 while the database cannot be reached.", nil, nil),
		waiting:   prometheus.NewDesc("agent_service_hosts_waiting", "Hosts that are being installed, join their cluster, or are released, by situation.", []string{"situation"}, nil),
		oldest:    prometheus.NewDesc("agent_service_hosts_waiting_oldest_age_seconds", "How long the first of them has been in its state of that situation, 0 where there is none.", []string{"situation"}, nil),
		counters: []counter{
			{prometheus.NewDesc("agent_service_polls_total", "Polls of agents.", nil, nil), &s.Polls},
			{prometheus.NewDesc("agent_service_registrations_total", "Registrations of hosts, repeated ones too.", nil, nil), &s.Registers},
			{prometheus.NewDesc("agent_service_heartbeats_saved_total", "Heartbeats written to the database.", nil, nil), &s.Saved},
			{prometheus.NewDesc("agent_service_refusals_total", "Requests that were refused with a reason.", nil, nil), &s.Refusals},
			{prometheus.NewDesc("agent_service_timeouts_total", "Hosts that were too long in a state.", nil, nil), &s.Timeouts},
			{prometheus.NewDesc("agent_service_sql_statements_total", "Statements sent to the database.", nil, nil), statements},
		},
	}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.hosts, c.connected, c.held, c.away, c.waiting, c.oldest} {
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
	waits := c.service.Waits()
	for _, in := range domain.Situations {
		age := 0.0
		if waits[in].Hosts > 0 {
			age = max(0, c.service.Now().Sub(waits[in].Since).Seconds())
		}
		out <- prometheus.MustNewConstMetric(c.waiting, prometheus.GaugeValue, float64(waits[in].Hosts), string(in))
		out <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, age, string(in))
	}
	for _, one := range c.counters {
		out <- prometheus.MustNewConstMetric(one.desc, prometheus.CounterValue, float64(one.from.Load()))
	}
}
