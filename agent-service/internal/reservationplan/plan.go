// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package reservationplan decides what is next for an AgentReservation. It is pure.
//
// The service reserves hosts in one transaction, but Agents are bound by writes to the API server, which knows nothing of it. So a reservation counts only when each Agent says that it is
// reserved and is in no cluster: that statement changed the Agent, and a client that wants to bind it as it was before is refused by the API server. Where one of them was bound
// before, none is kept.
package reservationplan

import (
	"fmt"
	"strings"
	"time"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// Machine is one that was reserved.
type Machine struct {
	// Bound: the Agent names a cluster, or the host is in one.
	Bound bool
	// Held: the service reserves the host.
	Held bool
	// Shown: the Agent says that it is reserved.
	Shown bool
}

// Snapshot is all that a decision depends on.
type Snapshot struct {
	// Until is when the reservation ends, zero where none is recorded.
	Until time.Time
	// Machines are those that were reserved together.
	Machines []Machine
	// Confirmed: the reservation counted before.
	Confirmed bool
}

// Action is what is done next.
type Action int

// Actions.
const (
	// Wait changes nothing.
	Wait Action = iota
	// Reserve chooses and reserves machines.
	Reserve
	// Release frees what is reserved, to choose others.
	Release
)

// Decision is what is done next, and what is said.
type Decision struct {
	Action Action
	// Ready, Reason and Message are of the condition Ready; empty for Reserve.
	Ready           bool
	Reason, Message string
	// Reserved is how many machines are reserved.
	Reserved int
	// After is when the reservation is looked at again, 0 for only when something changes.
	After time.Duration
}

// Plan decides.
func Plan(s Snapshot, now time.Time) Decision {
	if s.Until.IsZero() {
		return Decision{Action: Reserve}
	}
	var bound, held, shown int
	for _, m := range s.Machines {
		switch {
		case m.Bound:
			bound++
		case m.Held && m.Shown:
			held, shown = held+1, shown+1
		case m.Held:
			held++
		}
	}
	all, left := len(s.Machines), s.Until.Sub(now)
	if !s.Confirmed {
		return confirm(all, held, shown, left, s.Until)
	}
	until := s.Until.UTC().Format(time.RFC3339)
	switch {
	case bound == all:
		return Decision{Ready: true, Reason: agentv1.ReasonMachinesBound, Message: "All machines that were reserved are bound: " + machines(all)}
	case left <= 0:
		return Decision{Reason: agentv1.ReasonReservationExpired, Message: fmt.Sprintf("The reservation of %s ended at %s%s: create another AgentReservation", machines(all), until, others(bound, 0))}
	case held == 0:
		return Decision{Reason: agentv1.ReasonReservationEnded, Message: fmt.Sprintf("No machine is reserved any more%s: the reservation was ended over REST, or the machines or the data of the service are gone", others(bound, all-bound))}
	}
	return Decision{
		Ready: true, Reason: agentv1.ReasonMachinesReserved, Reserved: held, After: left,
		Message: fmt.Sprintf("%d of %d machines are reserved until %s%s", held, all, until, others(bound, all-bound-held)),
	}
}

// confirm decides of a reservation that does not count yet.
func confirm(all, held, shown int, left time.Duration, until time.Time) Decision {
	switch {
	case held < all || left <= 0:
		return Decision{Action: Release, Reason: agentv1.ReasonReserving, Message: fmt.Sprintf("%d of %d machines were bound, or went, before the reservation counted: others are chosen", all-held, all)}
	case shown < all:
		return Decision{Reason: agentv1.ReasonReserving, Message: fmt.Sprintf("%d of %d machines say that they are reserved", shown, all), Reserved: held, After: left}
	}
	return Decision{
		Ready: true, Reason: agentv1.ReasonMachinesReserved, Reserved: held, After: left,
		Message: fmt.Sprintf("%d of %d machines are reserved until %s", held, all, until.UTC().Format(time.RFC3339)),
	}
}

// others names machines that are not reserved any more.
func others(bound, gone int) string {
	var parts []string
	if bound > 0 {
		parts = append(parts, fmt.Sprintf("%d bound", bound))
	}
	if gone > 0 {
		parts = append(parts, fmt.Sprintf("%d gone", gone))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func machines(n int) string {
	if n == 1 {
		return "1 machine"
	}
	return fmt.Sprintf("%d machines", n)
}
