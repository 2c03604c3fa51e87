// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics holds what pool-operator measures besides what each controller counts itself.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/muster-io/muster/pool-operator/internal/poolplan"
)

// PoolActions counts what was done for pools.
type PoolActions struct {
	actions *prometheus.CounterVec
}

// NewPoolActions returns counters that are not registered anywhere yet.
func NewPoolActions() *PoolActions {
	return &PoolActions{actions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pool_operator_pool_actions_total",
		Help: "Actions for ClusterPools, by what was done, what it was for, and whether it succeeded (success or failure).",
	}, []string{"action", "why", "outcome"})}
}

// Action counts an action by what it was for.
func (m *PoolActions) Action(kind string, why poolplan.Why, failed bool) {
	outcome := "success"
	if failed {
		outcome = "failure"
	}
	m.actions.WithLabelValues(kind, string(why), outcome).Inc()
}

// Describe implements prometheus.Collector.
func (m *PoolActions) Describe(ch chan<- *prometheus.Desc) { m.actions.Describe(ch) }

// Collect implements prometheus.Collector.
func (m *PoolActions) Collect(ch chan<- prometheus.Metric) { m.actions.Collect(ch) }
