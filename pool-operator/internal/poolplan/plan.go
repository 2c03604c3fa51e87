// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan

import (
	"slices"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
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
		p.ticket.act(HoldPool{Why: WhyPoolCreated})
	default:
		p.keepPool()
	}
	return report{p}.decision()
}

// keepPool brings the pool to what its spec asks for. The order is the one in which the budget is spent.
func (p *pass) keepPool() {
	p.settleOperations()
	p.inventory.sync(p.fleet.members)
	p.health.learnFromOutcomes(p.fleet.members)
	p.health.learnFromChanges(p.in)
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
	p.inventory.sync(p.fleet.members)
	p.deleteReleased()
	p.deleteUnclaimed()
	p.reapNamespaces()
	if p.held() && len(p.fleet.members) == 0 && len(p.ticket.ops) == 0 && p.namespacesGone() {
		p.ticket.act(ReleasePool{Why: WhyPoolDeleted})
	}
}

// pass is one planning in progress: what the pool has, how much its spec allows, and what was decided so far. Its methods are the rules that decide.
type pass struct {
	timer
	in   Snapshot
	pool *hivev1.ClusterPool
	spec hivev1.ClusterPoolSpec

	fleet     fleet
	inventory inventory
	health    health
	quota     quota
	ticket    ticket

	// kept are clusters that should be deleted and may not be.
	kept []member
	// refusedByBudget says that maxConcurrent keeps something from being done.
	refusedByBudget bool
	// slugs are those that no name is made of yet.
	slugs []string
}

func newPass(now time.Time, s Snapshot) *pass {
	p := &pass{timer: timer{now: now}, in: s, pool: s.Pool, spec: s.Pool.Spec, slugs: s.Slugs}
	p.health = healthOf(s, &p.timer)
	p.inventory = inventoryOf(s.Pool, &p.ticket, &p.health)
	p.fleet = takeCensus(s, &p.timer)
	p.quota = quota{spec: &p.spec, fleet: &p.fleet, inventory: &p.inventory, pending: countPending(s, &p.timer)}
	return p
}

func paused(pool *hivev1.ClusterPool) bool {
	return hivev1.IsTrue(pool.Annotations, hivev1.AnnotationReconcilePause)
}

func (p *pass) deleting() bool { return !p.pool.DeletionTimestamp.IsZero() }

func (p *pass) held() bool {
	return slices.Contains(p.pool.Finalizers, hivev1.FinalizerClusterPool)
}
