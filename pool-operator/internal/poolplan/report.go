// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// report is what the status says after a pass, and what the pool waits for. It reads the pass and decides nothing.
type report struct{ *pass }

// decision puts together what the pass found.
func (r report) decision() Decision {
	d := Decision{Actions: r.ticket.actions, Status: r.status()}
	if len(r.ticket.ops) > 0 {
		r.wakeAt(r.now.Add(lookAgain))
	}
	if !r.wake.IsZero() {
		d.RequeueAfter = max(time.Second, r.wake.Sub(r.now))
	}
	d.Change = r.change(d.Status)
	if d.Change != StatusSame {
		// Finished operations leave the list with this write as well, so the next plan needs a view that shows them finished.
		d.Status.Observed = new(r.in.View)
	}
	return d
}

func (r report) status() hivev1.ClusterPoolStatus {
	out := *r.pool.Status.DeepCopy()
	out.ObservedGeneration = r.pool.Generation
	out.Size = count32(r.fleet.countUnclaimed())
	out.Standby = count32(r.fleet.count(standby))
	out.Ready = count32(r.fleet.count(ready))
	out.Installing = count32(r.fleet.count(installing))
	out.Broken = count32(r.fleet.count(broken))
	out.Claimed = count32(r.fleet.count(claimed))
	out.Deleting = count32(r.fleet.count(deleting))
	out.PendingClaims = count32(r.quota.pending)
	out.Selector = Selector(r.pool)
	out.Operations = r.ticket.ops
	out.ClusterNameUsage = r.inventory.status()
	out.Provisioning = r.health.status()
	out.RunningCountRecommendation = r.recommendation()
	r.setConditions(&out)
	return out
}

// Selector selects the ClusterDeployments of the pool by their labels, in the form that autoscalers read.
func Selector(pool *hivev1.ClusterPool) string {
	return labels.Set{hivev1.LabelClusterPoolNamespace: pool.Namespace, hivev1.LabelClusterPoolName: pool.Name}.String()
}

// change compares what the status is to be with what was read. New operations have to be written before they are carried out; a list that only got shorter can wait, since a
// longer one only makes later decisions more careful.
func (r report) change(next hivev1.ClusterPoolStatus) StatusChange {
	if r.ticket.recorded > 0 {
		return StatusTicket
	}
	// The recommendation moves with time and differs for a replica that saw other claims: it is updated when there is something else to write.
	next.RunningCountRecommendation = r.pool.Status.RunningCountRecommendation
	if equality.Semantic.DeepEqual(r.pool.Status, next) {
		return StatusSame
	}
	if equality.Semantic.DeepEqual(withoutCounts(r.pool.Status), withoutCounts(next)) {
		return StatusCounts
	}
	return StatusReport
}

// withoutCounts is the part of a status that does not move with every cluster.
func withoutCounts(status hivev1.ClusterPoolStatus) hivev1.ClusterPoolStatus {
	out := hivev1.ClusterPoolStatus{ObservedGeneration: status.ObservedGeneration, Provisioning: status.Provisioning, Selector: status.Selector}
	for _, c := range status.Conditions {
		if c.Type == hivev1.ClusterPoolReady {
			continue
		}
		out.Conditions = append(out.Conditions, hivev1.Condition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message})
	}
	return out
}

// count32 is a count as the API has it.
func count32(n int) int32 {
	return int32(min(n, math.MaxInt32)) //nolint:gosec // bounded in the same line
}
