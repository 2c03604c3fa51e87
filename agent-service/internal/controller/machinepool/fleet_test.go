// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !race

package machinepool

// fleetPools pools take fleetAgents machines: as many as all of them want.
const fleetPools, fleetAgents = 200, 500
