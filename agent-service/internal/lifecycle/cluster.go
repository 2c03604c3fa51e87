// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import "slices"

// Roster is what a cluster's state follows from.
type Roster struct {
	// Wanted is how many hosts an installation needs.
	Wanted int
	// Ready is how many bound hosts are known and approved. Bound is all of them.
	Ready int
	Bound int
	// Installing hosts take part in the installation; Prepared, Done and Failed are among them.
	Installing int
	Prepared   int
	Done       int
	Failed     int
	// Unjoined hosts are done, and are not Ready nodes of the control plane that the installation brings up.
	Unjoined int
	// Why names hosts that failed, and the causes.
	Why string
	// Unprepared hosts end the preparation.
	Unprepared int
	// Completed: the installed cluster said so.
	Completed bool
}

// Accepts is true for clusters that hosts can be bound to.
func Accepts(s ClusterState) bool {
	return slices.Contains([]ClusterState{ClusterInsufficient, ClusterReady, ClusterAddingHosts, ClusterInstalled}, s)
}

// ClusterBusy is true while a cluster installs.
func ClusterBusy(s ClusterState) bool {
	return slices.Contains([]ClusterState{ClusterPreparing, ClusterInstalling, ClusterFinalizing}, s)
}

// NextCluster is the state that follows from what the hosts are.
func NextCluster(s ClusterState, r Roster) (next ClusterState, info string) {
	switch s {
	case ClusterInsufficient, ClusterReady, "":
		if r.Ready >= r.Wanted && r.Wanted > 0 {
			return ClusterReady, "Cluster is ready to be installed"
		}
		return ClusterInsufficient, "Cluster is not ready for install: too few hosts are approved and valid"
	case ClusterPreparing:
		switch {
		case r.Unprepared > 0 || r.Installing == 0 || r.Installing < r.Wanted:
			return NextCluster(ClusterInsufficient, r)
		case r.Prepared == r.Installing:
			return ClusterInstalling, "Installation in progress"
		}
	case ClusterInstalling, ClusterFinalizing:
		switch {
		case r.Completed:
			return ClusterInstalled, "Cluster is installed"
		case r.Failed > 0:
			return ClusterFailed, "A host failed to install: " + r.Why
		case r.Installing == 0:
			return ClusterFailed, "No host is left in the installation"
		case r.Done == r.Installing && r.Unjoined == 0:
			return ClusterInstalled, "Cluster is installed"
		case r.Done > 0:
			return ClusterFinalizing, "Finalizing cluster installation"
		}
	case ClusterInstalled, ClusterAddingHosts, ClusterFailed, ClusterCancelled:
	}
	return s, ""
}
