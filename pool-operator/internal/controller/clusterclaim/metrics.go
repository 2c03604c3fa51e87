// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// Metrics count what happens to claims.
type Metrics struct {
	waits     *prometheus.HistogramVec
	actions   *prometheus.CounterVec
	conflicts prometheus.Counter
}

// NewMetrics returns Metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	return &Metrics{
		waits: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pool_operator_claim_wait_seconds",
			Help:    "Seconds from the creation of a ClusterClaim until it had a cluster and its subjects their rights.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200},
		}, []string{"clusterpool_namespace", "clusterpool_name"}),
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pool_operator_claim_actions_total",
			Help: "Actions on ClusterClaims, by what was done and why.",
		}, []string{"action", "why"}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pool_operator_claim_conflicts_total",
			Help: "Lost races for a cluster; each was followed by another choice.",
		}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.waits.Describe(ch)
	m.actions.Describe(ch)
	m.conflicts.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.waits.Collect(ch)
	m.actions.Collect(ch)
	m.conflicts.Collect(ch)
}

func (m *Metrics) served(pool types.NamespacedName, wait time.Duration) {
	m.waits.WithLabelValues(pool.Namespace, pool.Name).Observe(max(wait, 0).Seconds())
}

func (m *Metrics) acted(action claimplan.Action) {
	name := strings.TrimPrefix(fmt.Sprintf("%T", action), "claimplan.")
	m.actions.WithLabelValues(name, string(action.Reason())).Inc()
}
