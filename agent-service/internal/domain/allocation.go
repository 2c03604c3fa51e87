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
	// ID is that of the allocation, empty for a new one. One that has reserved its hosts already is answered with them.
	ID string
	// Kube is the AgentReservation that asks, zero for requests over REST. Hosts of other namespaces are not taken.
	Kube KubeRef
	// Among are the hosts to choose from; nil for all of the principal.
	Among map[HostKey]Candidate
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

// Candidate is what the Agent of a host says.
type Candidate struct {
	// Labels take the place of those that the service knows.
	Labels labels.Set
	// Bound: the Agent names a cluster. Reserved: another controller holds it.
	Bound, Reserved bool
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
	// Kube is the AgentReservation that asked, zero for requests over REST.
	Kube KubeRef `json:",omitzero"`
}

// Sentence says who holds the host and until when. It does not name a user, who may be of another namespace.
func (r Reservation) Sentence() string {
	until := r.Until.UTC().Format(time.RFC3339)
	if r.Kube != (KubeRef{}) {
		return "The machine is reserved by AgentReservation " + r.Kube.Name + " until " + until + ": only its Agent binds it before"
	}
	return "The machine was allocated over REST and is reserved until " + until + ": only the user who reserved it can bind it before"
}

// Holds is true until the reservation ends.
func (r Reservation) Holds(now time.Time) bool { return now.Before(r.Until) }

// Admits is true for the principal that reserved the host, and for all once the reservation has ended.
func (r Reservation) Admits(by Principal, now time.Time) bool {
	return !r.Holds(now) || by.Owner() == r.By
}
