// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scaleplan decides how many replicas a set of machines has that follows the hosts it can have. A set is a
// MachineDeployment or a MachineSet of Cluster API.
//
// The package is pure: everything it needs is in a Snapshot, and equal snapshots give equal decisions.
package scaleplan
