// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poolplan decides what a pool does next. It is pure: what is known goes in as a Snapshot, what to do comes out as a Decision.
//
// A pool keeps size unclaimed clusters, and one more for each claim that waits. It never has more than maxSize clusters, nor more than its inventory has
// names. At most maxConcurrent clusters are installing or being deleted at a time, and what that allows is spent in this order: clusters that were released are deleted,
// clusters are added, broken ones are deleted, then those of which there are too many, then stale ones.
//
// Creations and deletions are recorded in the pool's status before they are carried out (Decision.Status, the ticket). The caller writes the status with the
// resourceVersion that it read as precondition, and carries out the actions only when that write succeeded.
//
// A pass (plan.go) applies its rules in order: operations.go settles what earlier passes recorded, create.go, remove.go and rollout.go record creations and deletions, power.go lets
// clusters run. The rules ask the fleet (what there is), the quota (what the spec asks for and allows), the inventory (names) and the health (failures), and write a ticket. The report
// says in the status what came of it.
package poolplan
