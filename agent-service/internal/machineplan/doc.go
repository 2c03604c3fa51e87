// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machineplan decides which machines a MachinePool takes and which it releases, and says why it has not what it wants. It is pure: the caller reads, and
// the API server refuses what was decided from old data.
package machineplan
