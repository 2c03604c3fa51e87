// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package poolview reads what pools and claims decide from: a ClusterDeployment as [Cluster], a ClusterClaim as [Claim], a ClusterPool as [Pool]. It answers the questions that
// more than one planner asks, such as which claims wait, which clusters are free and since when a cluster resumes, so that a pool and its claims never differ about them.
// Wake-ups compare these values: a change of an object that changes its value is a reason to plan again, any other is none.
package poolview
