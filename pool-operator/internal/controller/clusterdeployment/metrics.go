// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
)

// Metrics count what happens to hosted clusters.
type Metrics struct {
	actions *prometheus.CounterVec
	ready   *prometheus.HistogramVec
}

// NewMetrics returns Metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	return &Metrics{
		actions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pool_operator_hosted_actions_total",
			Help: "Actions on hosted clusters, by what was done, what it was for, and whether it succeeded (success or failure).",
		}, []string{"action", "why", "outcome"}),
		ready: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "pool_operator_hosted_ready_seconds",
			Help:    "Seconds until a hosted cluster answered: after its installation began (install), or after it stopped being ready or hibernating (resume).",
			Buckets: []float64{1, 2, 3, 5, 8, 13, 20, 30, 60, 120, 300, 600},
		}, []string{"after"}),
	}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	m.actions.Describe(ch)
	m.ready.Describe(ch)
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	m.actions.Collect(ch)
	m.ready.Collect(ch)
}

// acted counts an action.
func (m *Metrics) acted(action hostedplan.Action, failed bool) {
	outcome := "success"
	if failed {
		outcome = "failure"
	}
	m.actions.WithLabelValues(actionName(action), string(action.Purpose()), outcome).Inc()
}

func actionName(action hostedplan.Action) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", action), "hostedplan.")
}

// reported measures the time to an answer, when a status that is written says for the first time that there is one.
func (m *Metrics) reported(before, after hivev1.ClusterDeploymentStatus, now time.Time) {
	if !hivev1.IsConditionTrue(after.Conditions, hivev1.ClusterDeploymentReady) || hivev1.IsConditionTrue(before.Conditions, hivev1.ClusterDeploymentReady) {
		return
	}
	if before.InstalledTimestamp == nil {
		if after.InstallStartedTimestamp != nil {
			m.ready.WithLabelValues("install").Observe(now.Sub(after.InstallStartedTimestamp.Time).Seconds())
		}
		return
	}
	began := time.Time{}
	for _, conditionType := range []string{hivev1.ClusterDeploymentHibernating, hivev1.ClusterDeploymentReady} {
		c := hivev1.FindCondition(before.Conditions, conditionType)
		if c != nil && c.Status == corev1.ConditionFalse && c.LastTransitionTime.After(began) {
			began = c.LastTransitionTime.Time
		}
	}
	if !began.IsZero() {
		m.ready.WithLabelValues("resume").Observe(now.Sub(began).Seconds())
	}
}
