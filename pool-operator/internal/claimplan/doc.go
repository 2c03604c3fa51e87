// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package claimplan decides what happens next to one ClusterClaim: which cluster it gets and when, what its subjects may do, when its life is over,
// how its cluster is given back, and what its status says meanwhile.
//
// [Plan] is a step function. It returns at most one action; the caller carries it out, puts the result into the snapshot and asks again, until there is
// no action left. A crash between two actions therefore leaves just another snapshot, and the next plan finishes the work.
package claimplan
