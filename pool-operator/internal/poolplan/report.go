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

// decision puts together what the pass found.
func (p *pass) decision() Decision {
	d := Decision{Actions: p.actions, Status: p.status()}
	if len(p.ops) > 0 {
		p.wakeAt(p.now.Add(lookAgain))
	}
	if !p.wake.IsZero() {
		d.RequeueAfter = max(time.Second, p.wake.Sub(p.now))
	}
	d.Change = p.change(d.Status)
	if d.Change != StatusSame {
		// Finished operations leave the list with this write as well, so the next plan needs a view that shows them finished.
		d.Status.Observed = new(p.in.View)
	}
	return d
}

func (p *pass) status() hivev1.ClusterPoolStatus {
	out := *p.pool.Status.DeepCopy()
	out.ObservedGeneration = p.pool.Generation
	out.Size = count32(p.countUnclaimed())
	out.Standby = count32(p.count(standby))
	out.Ready = count32(p.count(ready))
	out.Installing = count32(p.count(installing))
	out.Broken = count32(p.count(broken))
	out.Claimed = count32(p.count(claimed))
	out.Deleting = count32(p.count(deleting))
	out.PendingClaims = count32(p.pending)
	out.Selector = Selector(p.pool)
	out.Operations = p.ops
	out.ClusterNameUsage = p.usage()
	out.Provisioning = p.provisioning()
	out.RunningCountRecommendation = p.recommendation()
	p.setConditions(&out)
	return out
}

// usage is the usage of inventory names; nil when there are none.
func (p *pass) usage() map[string]string {
	if p.names == nil {
		return p.pool.Status.ClusterNameUsage
	}
	if len(p.names) == 0 {
		return nil
	}
	return p.names
}

// Selector selects the ClusterDeployments of the pool by their labels, in the form that autoscalers read.
func Selector(pool *hivev1.ClusterPool) string {
	return labels.Set{hivev1.LabelClusterPoolNamespace: pool.Namespace, hivev1.LabelClusterPoolName: pool.Name}.String()
}

// change compares what the status is to be with what was read. New operations have to be written before they are carried out; a list that only got shorter can wait, since a
// longer one only makes later decisions more careful.
func (p *pass) change(next hivev1.ClusterPoolStatus) StatusChange {
	if p.recorded > 0 {
		return StatusTicket
	}
	// The recommendation moves with time and differs for a replica that saw other claims: it is updated when there is something else to write.
	next.RunningCountRecommendation = p.pool.Status.RunningCountRecommendation
	if equality.Semantic.DeepEqual(p.pool.Status, next) {
		return StatusSame
	}
	if equality.Semantic.DeepEqual(withoutCounts(p.pool.Status), withoutCounts(next)) {
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
