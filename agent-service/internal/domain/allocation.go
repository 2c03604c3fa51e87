// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/muster-io/muster/agent-service/internal/machineplan"
)

// DefaultReservation is how long an allocation reserves hosts that it does not bind, unless the request says otherwise.
const DefaultReservation = 15 * time.Minute

// NewAllocation is a request for free hosts: all of them or none.
type NewAllocation struct {
	// Count is how many hosts, at least 1.
	Count int
	// ClusterID is the cluster that the hosts are bound to at once, empty to reserve them.
	ClusterID string
	// InfraEnvID limits the hosts to those of an InfraEnv, empty for all of the principal.
	InfraEnvID string
	// Selector is of the labels of hosts.
	Selector labels.Selector
	// Minimum is what a host has at least.
	Minimum machineplan.Size
	// SpreadBy is the key of a label: the next host comes from the value of which the allocation, and its cluster, have the fewest. Empty for no spread.
	SpreadBy string
	// Reserve is for how long the hosts are reserved; 0 is DefaultReservation.
	Reserve time.Duration
}

// Allocation is what a request for hosts was answered with.
type Allocation struct {
	ID string
	// ClusterID is the cluster that the hosts are bound to, empty where they are reserved.
	ClusterID string
	// Until is when the reservation ends, zero where the hosts are bound.
	Until time.Time
	// Hosts are in the order of their keys.
	Hosts []Host
}

// Reservation holds a free host for the principal that allocated it. It ends by its time, or when the host is bound.
type Reservation struct {
	// ID is of the allocation.
	ID    string
	By    Owner
	Until time.Time
}

// Holds is true until the reservation ends.
func (r Reservation) Holds(now time.Time) bool { return now.Before(r.Until) }

// Admits is true for the principal that reserved the host, and for all once the reservation has ended.
func (r Reservation) Admits(by Principal, now time.Time) bool {
	return !r.Holds(now) || by.Owner() == r.By
}
