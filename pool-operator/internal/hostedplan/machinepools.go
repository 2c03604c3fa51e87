// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// MachinePool is what a plan knows of a MachinePool of a cluster.
type MachinePool struct {
	Name     string
	Deleting bool
	// Awaited says that the cluster does not count as running before the machines of the pool are Ready nodes.
	Awaited bool
	// WaitsForClaim says that the pool gets its machines when the cluster is claimed, and it is not.
	WaitsForClaim bool
	// Message says how far the pool is.
	Message string
}

// releaseTimeout is how long the machines of a cluster that is being deleted may take to leave it.
const releaseTimeout = 15 * time.Minute

// planRelease has the machines of a cluster that is being deleted released first, while there is an API in which their nodes can be deleted. It is nil when nothing is left to wait for.
func planRelease(now time.Time, s Snapshot) *Decision {
	left := s.Cluster.DeletionTimestamp.Add(releaseTimeout).Sub(now)
	if len(s.MachinePools) == 0 || left <= 0 {
		return nil
	}
	d := &Decision{Status: statusReleasing(now, s), RequeueAfter: min(checkUnready, left)}
	var names []string
	for _, pool := range s.MachinePools {
		if !pool.Deleting {
			names = append(names, pool.Name)
		}
	}
	if len(names) > 0 {
		d.Actions = []Action{DeleteMachinePools{Why: WhyDeleted, Names: names}}
	}
	return d
}

// statusReleasing says that the machines of the cluster go before it does.
func statusReleasing(now time.Time, s Snapshot) *hivev1.ClusterDeploymentStatus {
	var names []string
	for _, pool := range s.MachinePools {
		names = append(names, pool.Name)
	}
	return statusGoing(now, s, hivev1.ReasonDeprovisioning, "Machines are released first; MachinePools that are left: "+strings.Join(names, ", ")+".")
}

// awaited says which MachinePool the cluster waits for before it counts as running; empty for none.
func awaited(s Snapshot) string {
	for _, pool := range s.MachinePools {
		if pool.Awaited && !pool.Deleting {
			return fmt.Sprintf("The API of the cluster answers. MachinePool %s: %s (step 2 of 2).", pool.Name, pool.Message)
		}
	}
	return ""
}

// waitsForClaim says whether the cluster runs as far as it can before it is claimed: the machines of a MachinePool are bound by the claim.
func waitsForClaim(s Snapshot) bool {
	return slices.ContainsFunc(s.MachinePools, func(pool MachinePool) bool { return pool.WaitsForClaim && !pool.Deleting })
}
