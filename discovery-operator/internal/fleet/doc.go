// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet keeps a mirror of the machines that each Ironic knows: one poller per endpoint, shared by all resources that
// ask it.
//
// News cost two requests at any size of the fleet: nodes and ports after the last one seen. A slow, jittered reading of
// everything sees what news cannot show. Inventories are read only for machines that a resource selects.
package fleet
