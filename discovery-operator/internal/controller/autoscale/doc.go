// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package autoscale makes MachineDeployments and MachineSets of Cluster API follow the number of hosts that they can have,
// where their users asked for it by an annotation. It knows Cluster API by name only, and waits where that is not installed.
package autoscale
