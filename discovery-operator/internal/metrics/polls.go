// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/discovery-operator/internal/fleet"
)

// Polls exports when each Ironic was last read, when it is asked, so that a series begins with the poller of its Ironic and ends with it.
type Polls struct {
	polls          func() []fleet.Reading
	last, interval *prometheus.Desc
}

// NewPolls makes a collector of the readings that a function returns.
func NewPolls(polls func() []fleet.Reading) *Polls {
	// The label endpoint is the scraper's own.
	labels := []string{"ironic", "kind"}
	return &Polls{
		polls: polls,
		last: prometheus.NewDesc("discovery_operator_poll_last_success_timestamp_seconds",
			"When an Ironic was last read without error, by kind (news, full); until the first time, when this process began to try.", labels, nil),
		interval: prometheus.NewDesc("discovery_operator_poll_interval_seconds",
			"The time between two readings of an Ironic while it answers, by kind (news, full).", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *Polls) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.last
	ch <- c.interval
}

// Collect implements prometheus.Collector. Pollers of one endpoint, which differ in their credentials, are one series: that of the one that is worst off.
func (c *Polls) Collect(ch chan<- prometheus.Metric) {
	type series struct{ endpoint, kind string }
	last, interval := map[series]time.Time{}, map[series]time.Duration{}
	for _, r := range c.polls() {
		for kind, at := range map[string]time.Time{"news": r.News, "full": r.Full} {
			s := series{r.Endpoint, kind}
			if known, ok := last[s]; !ok || at.Before(known) {
				last[s] = at
			}
			every := r.Pace.News
			if kind == "full" {
				every = r.Pace.Full
			}
			interval[s] = max(interval[s], every)
		}
	}
	for s, at := range last {
		ch <- prometheus.MustNewConstMetric(c.last, prometheus.GaugeValue, float64(at.UnixMilli())/1000, s.endpoint, s.kind)
		ch <- prometheus.MustNewConstMetric(c.interval, prometheus.GaugeValue, interval[s].Seconds(), s.endpoint, s.kind)
	}
}
