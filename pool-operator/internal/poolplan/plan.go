// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"math"
	"slices"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// Plan decides what a pool does next. now has to be later than whatever the snapshot was made from.
func Plan(now time.Time, s Snapshot) Decision {
	switch {
	case paused(s.Pool):
		return Decision{Status: s.Pool.Status}
	case !s.Live && behind(s.View, s.Pool.Status.Observed):
		return Decision{Wait: true, Status: s.Pool.Status, RequeueAfter: behindRetry}
	}
	p := newPass(now, s)
	switch {
	case p.deleting():
		p.emptyPool()
	case !p.held():
		p.act(HoldPool{Why: WhyPoolCreated})
	default:
		p.keepPool()
	}
	return p.decision()
}

// keepPool brings the pool to what its spec asks for. The order is the one in which the budget is spent.
func (p *pass) keepPool() {
	p.settleOperations()
	p.syncNames()
	p.learnFromOutcomes()
	p.learnFromChanges()
	p.deleteReleased()
	p.addClusters()
	p.deleteBroken()
	p.deleteRemovedEntries()
	p.deleteSurplus()
	p.replaceStale()
	p.setPower()
	p.reapNamespaces()
}

// emptyPool deletes unclaimed clusters, and removes the pool's finalizer when nothing is left. Claimed clusters keep it until they are released.
func (p *pass) emptyPool() {
	p.settleOperations()
	p.syncNames()
	p.deleteReleased()
	p.deleteUnclaimed()
	p.reapNamespaces()
	if p.held() && len(p.members) == 0 && len(p.ops) == 0 && p.namespacesGone() {
		p.act(ReleasePool{Why: WhyPoolDeleted})
	}
}

// pass is one planning in progress.
type pass struct {
	now  time.Time
	in   Snapshot
	pool *hivev1.ClusterPool
	spec hivev1.ClusterPoolSpec

	version string
	limits  poolview.Limits
	members []member
	pending int

	ops      []hivev1.ClusterPoolOperation
	recorded int
	// contested is how many clusters are named by claims and may be deleted nevertheless.
	contested int
	// kept are clusters that should be deleted and may not be.
	kept []member
	// refusedByBudget says that maxConcurrent keeps something from being done.
	refusedByBudget bool

	slugs   []string
	names   map[string]string
	health  hivev1.ClusterPoolProvisioning
	actions []Action
	wake    time.Time
}

func newPass(now time.Time, s Snapshot) *pass {
	p := &pass{now: now, in: s, pool: s.Pool, spec: s.Pool.Spec, version: Version(s.Pool.Spec), limits: poolview.LimitsOf(&s.Pool.Spec), slugs: s.Slugs}
	if s.Pool.Status.Provisioning != nil {
		p.health = *s.Pool.Status.Provisioning.DeepCopy()
	}
	p.takeCensus()
	return p
}

func paused(pool *hivev1.ClusterPool) bool {
	return poolview.IsTrue(pool.Annotations, hivev1.AnnotationReconcilePause)
}

func (p *pass) deleting() bool { return !p.pool.DeletionTimestamp.IsZero() }

func (p *pass) held() bool {
	return slices.Contains(p.pool.Finalizers, hivev1.FinalizerClusterPool)
}

func (p *pass) act(a Action) { p.actions = append(p.actions, a) }

// wakeAt asks for another pass at t, or earlier.
func (p *pass) wakeAt(t time.Time) {
	if p.wake.IsZero() || t.Before(p.wake) {
		p.wake = t
	}
}

// target is how many unclaimed clusters there should be: size, and one for each claim that waits.
func (p *pass) target() int { return int(p.spec.Size) + p.pending }

// budget is how many more clusters may be installing or deleting.
func (p *pass) budget() int {
	if p.spec.MaxConcurrent == nil {
		return math.MaxInt
	}
	return max(0, int(*p.spec.MaxConcurrent)-p.count(installing)-p.count(deleting)-p.contested)
}

// slice is how many more operations this pass may record.
func (p *pass) slice() int {
	return max(0, min(SliceOfPass-p.recorded, MaxOperations-len(p.ops)))
}
