// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleplan

import (
	"fmt"

	"k8s.io/apimachinery/pkg/labels"
)

// Why is the reason of a decision.
type Why string

// The reasons for which a set is scaled, or is not.
const (
	// Following: the set has as many replicas as there are hosts for it.
	Following Why = "Following"
	// MoreHosts: the set grows.
	MoreHosts Why = "MoreHosts"
	// FewerHosts: the set shrinks.
	FewerHosts Why = "FewerHosts"
	// HealthyMachines: the set has too many replicas, but Cluster API might delete machines that have hosts.
	HealthyMachines Why = "HealthyMachines"
	// Paused: the set or its Cluster is paused.
	Paused Why = "Paused"
	// ClusterMissing: the Cluster of the set is not there.
	ClusterMissing Why = "ClusterMissing"
	// Deleting: the set goes.
	Deleting Why = "Deleting"
	// Owned: the set belongs to a MachineDeployment, which decides its size.
	Owned Why = "Owned"
	// OtherAutoscaler: the set is sized by Cluster API's autoscaler as well.
	OtherAutoscaler Why = "OtherAutoscaler"
	// TemplateMissing: the infrastructure template of the set is not there.
	TemplateMissing Why = "TemplateMissing"
	// OtherInfrastructure: the machines of the set are not made of hosts.
	OtherInfrastructure Why = "OtherInfrastructure"
	// SelectorInvalid: it cannot be decided which hosts match.
	SelectorInvalid Why = "SelectorInvalid"
)

// Order is when Cluster API deletes a machine of a set that shrinks, whatever the set's own order: those of a lower Order
// go first, among equals the set decides.
type Order int

// The orders of deletion.
const (
	// Going machines are being deleted.
	Going Order = iota
	// Marked machines have the annotation that asks for it.
	Marked
	// Failing machines have no node, or one that is not healthy.
	Failing
	// Healthy machines are all others.
	Healthy
)

// Machine is a machine of the set.
type Machine struct {
	// HasHost says that a host belongs to the machine, and stays.
	HasHost bool
	Order   Order
	// Set is the MachineSet of the machine.
	Set string
}

// Host is a host that no machine of the set has.
type Host struct {
	Labels map[string]string
	// Availability says whether the set can have it.
	Availability Availability
}

// Snapshot is what a decision rests on.
type Snapshot struct {
	// Replicas is how many the set asks for.
	Replicas int32
	// Hold says why the set is left alone; empty when it is not. Detail adds to the sentence.
	Hold   Why
	Detail string
	// Selector matches the hosts that machines of the set can have.
	Selector labels.Selector
	// Reuse is the value of ReuseLabel on the hosts that are kept for machines of the set; empty where none can be.
	Reuse string
	// Machines are those of the set.
	Machines []Machine
	// Free are the free hosts of the namespace.
	Free []Host
	// Unknown are the hosts that belong to machines which the cache does not show yet; they may be the set's.
	Unknown []Host
}

// Decision says how many replicas the set shall have.
type Decision struct {
	Replicas int32
	Why      Why
	// Note is a sentence for people; empty when there is nothing to tell.
	Note string
}

// Plan decides how many replicas a set has. It grows to the hosts that its machines have and those that they can have at
// once. It shrinks only below what it could have soon: a host that is being prepared, or returns from another life,
// neither adds a machine nor takes one away. And it shrinks only as far as the machines that go are none that have a host.
func Plan(s Snapshot) Decision {
	if s.Hold != "" {
		return Decision{Replicas: s.Replicas, Why: s.Hold, Note: holdNote(s.Hold, s.Detail)}
	}
	used, available, coming := count(s)
	now, soon := used+available, used+available+coming
	switch {
	case s.Replicas < now:
		return Decision{now, MoreHosts, fmt.Sprintf("Scaled from %d to %d: %s.", s.Replicas, now, hostsNote(used, available))}
	case s.Replicas <= soon:
		return Decision{Replicas: s.Replicas, Why: Following}
	}
	keep := int32(len(s.Machines)) - expendable(s.Machines) //nolint:gosec // as many as an API server can list
	switch to := max(soon, min(keep, s.Replicas)); {
	case to < s.Replicas:
		return Decision{to, FewerHosts, fmt.Sprintf("Scaled from %d to %d: %s.", s.Replicas, to, hostsNote(used, available))}
	default:
		return Decision{s.Replicas, HealthyMachines, fmt.Sprintf(
			"Stays at %d although %s: Cluster API might delete a machine that has a host. Delete the machine that has none, or give it the annotation %s.",
			s.Replicas, hostsNote(used, available), DeleteMachineAnnotation)}
	}
}

func count(s Snapshot) (used, available, coming int32) {
	for _, m := range s.Machines {
		if m.HasHost {
			used++
		}
	}
	for _, h := range s.Free {
		switch {
		case !s.Selector.Matches(labels.Set(h.Labels)), s.isKeptForOthers(h):
		case h.Availability == Available:
			available++
		case h.Availability == Coming:
			coming++
		}
	}
	for _, h := range s.Unknown {
		if s.Selector.Matches(labels.Set(h.Labels)) {
			coming++
		}
	}
	return used, available, coming
}

// isKeptForOthers reports whether only machines of another set can have a host: its label names that set.
func (s *Snapshot) isKeptForOthers(h Host) bool {
	keptFor, isKept := h.Labels[ReuseLabel]
	return isKept && (keptFor == "" || keptFor != s.Reuse)
}

// expendable is how many machines a set can lose without losing one that has a host, unless a user asked for just that.
// While a MachineDeployment replaces its machines it is unknown which of its MachineSets shrinks.
func expendable(machines []Machine) int32 {
	var wanted, failing int32
	for _, m := range machines {
		switch {
		case m.Set != machines[0].Set:
			return 0
		case m.Order < Failing:
			wanted++
		case m.Order == Failing:
			failing++
		}
	}
	for _, m := range machines {
		if m.Order == Failing && m.HasHost {
			return wanted
		}
	}
	return wanted + failing
}

func hostsNote(used, available int32) string {
	return fmt.Sprintf("its machines have %s, and %s", hosts(used), matching(available))
}

func hosts(n int32) string {
	if n == 1 {
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", n)
}

func matching(n int32) string {
	switch n {
	case 0:
		return "no other that matches is available"
	case 1:
		return "1 more that matches is available"
	default:
		return fmt.Sprintf("%d more that match are available", n)
	}
}

// holdNote says why a set is left alone, where a person has to do something about it.
func holdNote(why Why, detail string) string {
	switch why {
	case OtherAutoscaler:
		return "Not scaled to hosts: the annotation " + detail + " has Cluster API's autoscaler do it; remove that or this one."
	case TemplateMissing:
		return "Not scaled to hosts: there is no " + detail + " in this namespace."
	case OtherInfrastructure:
		return "Not scaled to hosts: its machines are made from a " + detail + ", not from a Metal3MachineTemplate."
	case SelectorInvalid:
		return "Not scaled to hosts: the host selector of its template is not valid: " + detail + "."
	default:
		return ""
	}
}
