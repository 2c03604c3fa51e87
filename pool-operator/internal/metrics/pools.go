// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// scrapeTimeout bounds reading the cache for one scrape.
const scrapeTimeout = 5 * time.Second

var (
	poolClusters = prometheus.NewDesc("pool_operator_pool_clusters",
		"ClusterDeployments of a ClusterPool by state: installing, standby, ready and broken are unclaimed.", []string{"clusterpool_namespace", "clusterpool_name", "state"}, nil)
	poolSize = prometheus.NewDesc("pool_operator_pool_size",
		"Unclaimed clusters that a ClusterPool asks for.", []string{"clusterpool_namespace", "clusterpool_name"}, nil)
	poolPending = prometheus.NewDesc("pool_operator_pool_pending_claims",
		"ClusterClaims of a ClusterPool that wait for a cluster.", []string{"clusterpool_namespace", "clusterpool_name"}, nil)
	poolFailures = prometheus.NewDesc("pool_operator_pool_consecutive_failures",
		"Clusters of a ClusterPool that broke since one was last installed.", []string{"clusterpool_namespace", "clusterpool_name"}, nil)
	poolOperations = prometheus.NewDesc("pool_operator_pool_operations",
		"Creations and deletions of a ClusterPool that were decided and whose effect has not been seen yet.", []string{"clusterpool_namespace", "clusterpool_name"}, nil)
)

// Pools collects the state of pools from the cache at scrape time, so that a pool that is gone has no series.
type Pools struct {
	reader client.Reader
}

// NewPools returns a collector that reads pools from reader.
func NewPools(reader client.Reader) *Pools { return &Pools{reader: reader} }

// Describe implements prometheus.Collector.
func (p *Pools) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{poolClusters, poolSize, poolPending, poolFailures, poolOperations} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (p *Pools) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // a collector is given no context
	defer cancel()
	pools := &hivev1.ClusterPoolList{}
	if err := p.reader.List(ctx, pools, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(poolClusters, err)
		return
	}
	for i := range pools.Items {
		collectPool(ch, &pools.Items[i])
	}
}

func collectPool(ch chan<- prometheus.Metric, pool *hivev1.ClusterPool) {
	gauge := func(desc *prometheus.Desc, value int32, labels ...string) {
		ch <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(value), append([]string{pool.Namespace, pool.Name}, labels...)...)
	}
	status := pool.Status
	for _, s := range []struct {
		state string
		count int32
	}{
		{"installing", status.Installing}, {"standby", status.Standby}, {"ready", status.Ready}, {"broken", status.Broken},
		{"claimed", status.Claimed}, {"deleting", status.Deleting},
	} {
		gauge(poolClusters, s.count, s.state)
	}
	gauge(poolSize, pool.Spec.Size)
	gauge(poolPending, status.PendingClaims)
	gauge(poolOperations, int32(len(status.Operations))) //nolint:gosec // at most 64
	failures := int32(0)
	if status.Provisioning != nil {
		failures = status.Provisioning.ConsecutiveFailures
	}
	gauge(poolFailures, failures)
}
