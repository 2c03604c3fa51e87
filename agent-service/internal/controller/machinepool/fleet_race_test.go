// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build race

package machinepool

// The race detector makes everything several times slower; it finds the same races among fewer objects.
const fleetPools, fleetAgents = 40, 100
