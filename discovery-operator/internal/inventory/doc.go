// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package inventory decides which machines become hosts. It compares the nodes and ports that Ironic knows with the
// BareMetalHosts of the cluster and says, for each machine, what is to be done or why nothing is.
//
// The package is pure: everything it needs is in a Snapshot, and equal snapshots give equal decisions.
package inventory
