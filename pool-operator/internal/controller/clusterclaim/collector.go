// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// scrapeTimeout bounds reading the cache for one scrape.
const scrapeTimeout = 5 * time.Second

var (
	claimsWaiting = prometheus.NewDesc("pool_operator_claims_waiting",
		"ClusterClaims that wait for a cluster, by what they wait for; those of pools that do not exist are among them.",
		[]string{"clusterpool_namespace", "clusterpool_name", "waiting_for"}, nil)
	oldestWaiting = prometheus.NewDesc("pool_operator_claim_oldest_waiting_age_seconds",
		"Age in seconds of the ClusterClaim of a pool that has waited longest and is still in the queue.",
		[]string{"clusterpool_namespace", "clusterpool_name"}, nil)
)

// Queues collects the state of queues from the cache at scrape time, so that a queue that is empty has no series.
type Queues struct {
	reader client.Reader
	clock  clock.PassiveClock
}

// NewQueues returns a collector that reads claims from reader.
func NewQueues(reader client.Reader, clock clock.PassiveClock) *Queues {
	return &Queues{reader: reader, clock: clock}
}

// Describe implements prometheus.Collector.
func (q *Queues) Describe(ch chan<- *prometheus.Desc) {
	ch <- claimsWaiting
	ch <- oldestWaiting
}

// Collect implements prometheus.Collector.
func (q *Queues) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout) //nolint:forbidigo // a collector is given no context
	defer cancel()
	var claims hivev1.ClusterClaimList
	if err := q.reader.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		ch <- prometheus.NewInvalidMetric(claimsWaiting, err)
		return
	}
	type cause struct {
		pool types.NamespacedName
		why  hivev1.WaitReason
	}
	counts, oldest := map[cause]int{}, map[types.NamespacedName]time.Time{}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Spec.Namespace != "" || claim.Status.WaitingFor == "" || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		pool := poolOf(claim)
		counts[cause{pool, claim.Status.WaitingFor}]++
		queues := claim.Status.WaitingFor != hivev1.WaitQueueTimedOut
		if first, ok := oldest[pool]; queues && (!ok || claim.CreationTimestamp.Time.Before(first)) {
			oldest[pool] = claim.CreationTimestamp.Time
		}
	}
	for c, n := range counts {
		ch <- prometheus.MustNewConstMetric(claimsWaiting, prometheus.GaugeValue, float64(n), c.pool.Namespace, c.pool.Name, string(c.why))
	}
	for pool, since := range oldest {
		ch <- prometheus.MustNewConstMetric(oldestWaiting, prometheus.GaugeValue, q.clock.Now().Sub(since).Seconds(), pool.Namespace, pool.Name)
	}
}
