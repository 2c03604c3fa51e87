// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane is about control planes that machines of the rack run themselves.
//
//   - New makes the authority of a cluster and the credentials that agent-service keeps of it.
//   - Machine is what the machine that runs the control plane does with join.ControlPlane, its part of the first-boot data: it signs the certificates of the programs, runs them,
//     and applies the objects that the cluster begins with.
package controlplane
