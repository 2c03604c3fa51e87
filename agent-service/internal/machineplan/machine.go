// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machineplan

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"time"
)

// Machine is an Agent whose labels match the selector of a pool, or that the pool has already.
type Machine struct {
	// Name of the Agent.
	Name string
	// Mine says that the Agent has the labels of the pool, Bound that a cluster has it, Ours that this is the pool's cluster.
	Mine, Bound, Ours bool
	// Reserved says that the machine is held for a cluster that is not known yet, or by another machine manager.
	Reserved bool
	// Deleting says that the Agent is being deleted.
	Deleting bool
	// Free says that the host is in no cluster, and was released from the last one.
	Free bool
	// Left says that the machine was released, and that its cluster is rid of it: only the machine's own way back is left, which a dead machine never ends.
	Left bool
	// Forbidden is why the InfraEnv does not give the machine to the pool's cluster; empty where it does.
	Forbidden string
	// Approved says that the owner of the machine consents to an installation.
	Approved bool
	// Worker says that the role that is stated for the machine lets it be a worker.
	Worker bool
	// SilentSince is when the machine was last in contact; zero while it is.
	SilentSince time.Time
	// Valid says that the host passes its validations.
	Valid bool
	// NoAddress names the pool of addresses that has none for the machine; empty where it needs none, or gets one.
	NoAddress string
	// Size is what the machine has.
	Size Size
	// Spread is the value of the label that the pool spreads over.
	Spread string
	// Phase is how far a machine of the pool is.
	Phase Phase
	// Node is the name of its Node, Message what it does or waits for.
	Node, Message string
	// DeleteFirst says that a user marked the machine to be released first.
	DeleteFirst bool
	// BoundAt is when the pool took the machine.
	BoundAt time.Time
}

// Phase is how far a machine of a pool is.
type Phase int

// Phases, in the order in which machines are given up.
const (
	Failed Phase = iota
	Binding
	Installing
	Joining
	Lost
	Ready
	Releasing
)

// Has says that the machine is one of the pool's: it is bound to the pool's cluster, for the pool.
func (m *Machine) Has() bool { return m.Mine && m.Ours }

// Counts says that the machine is one of the replicas that the pool has: its Agent stays.
func (m *Machine) Counts() bool { return m.Has() && !m.Deleting }

// Size of a machine, and the least that a pool wants of one: logical processors, memory in bytes, and the largest disk that can be installed to in bytes.
type Size struct {
	CPUs, Memory, Disk int64
}

const (
	gib = 1 << 30
	gb  = 1_000_000_000
)

// MinimumOf makes a size of what a user states.
func MinimumOf(cpus, memoryGiB, diskGB int64) Size {
	return Size{CPUs: cpus, Memory: memoryGiB * gib, Disk: diskGB * gb}
}

// rounded is the size in the units in which users think: machines of one model differ by some MiB.
func (s Size) rounded() Size {
	return Size{CPUs: s.CPUs, Memory: (s.Memory + gib/2) / gib, Disk: (s.Disk + gb/2) / gb}
}

func (s Size) compare(other Size) int {
	return cmp.Or(cmp.Compare(s.Memory, other.Memory), cmp.Compare(s.CPUs, other.CPUs), cmp.Compare(s.Disk, other.Disk))
}

// lacks says what is missing, such as "8 of 32 GiB"; empty where nothing is. Machines report a little less memory than is built in, so the nearest GiB counts.
func (s Size) lacks(minimum Size) string {
	have, want := s.rounded(), minimum.rounded()
	switch {
	case have.CPUs < want.CPUs:
		return fmt.Sprintf("%d of %d processors", have.CPUs, want.CPUs)
	case have.Memory < want.Memory:
		return fmt.Sprintf("%d of %d GiB", have.Memory, want.Memory)
	case have.Disk < want.Disk:
		return fmt.Sprintf("disk of %d of %d GB", have.Disk, want.Disk)
	}
	return ""
}

// Pool is what a pool wants.
type Pool struct {
	// Name tells pools apart that want the same machines: each tries machines of one size in an order of its own. By name where it is empty.
	Name string
	// Noun is what the reason calls a machine, in the singular; Agent where it is empty.
	Noun string
	// Replicas is how many machines are wanted; 0 while the pool binds none.
	Replicas int
	// Blocked says that no machine may be taken at the moment, such as while the cluster is stopped. Machines are released nevertheless.
	Blocked bool
	// Minimum is what a machine has at least.
	Minimum Size
	// Refused says that there are machines which the pool's cluster may not have; empty where there are none. It is not told of them.
	Refused string
	// Spread says that machines are spread over values of Machine.Spread.
	Spread bool
}

// Decision says which Agents to take and to release.
type Decision struct {
	// Candidates can be taken, the best first. Take is how many of them are missing: the next one stands in for one that is lost to another.
	Candidates []Machine
	Take       int
	// Release are machines that the pool gives up.
	Release []Machine
	// Forget are Agents with the pool's labels that are not its machines any more.
	Forget []Machine
	// Why says why machines are missing, with numbers; empty where none are.
	Why string
}

// Missing is how many machines a pool lacks, negative where it has too many: the machines that it has are enough to tell.
func Missing(pool Pool, machines []Machine) int {
	missing := pool.Replicas
	for i := range machines {
		if m := &machines[i]; m.Counts() {
			missing--
		}
	}
	return missing
}

// Plan decides for a pool with these machines. Where none is missing, those that the pool does not have make no difference.
func Plan(pool Pool, machines []Machine, now time.Time) Decision {
	var d Decision
	var has []Machine
	leaving := 0
	for i := range machines {
		m := machines[i]
		switch {
		case m.Counts():
			has = append(has, m)
		case m.Mine && (m.Bound || m.Free || m.Deleting) && !m.Has():
			d.Forget = append(d.Forget, m)
		case m.Mine && !m.Has() && !m.Left:
			leaving++
		}
	}
	switch missing := pool.Replicas - len(has); {
	case missing < 0:
		d.Release = surplus(has, pool.Replicas, leaving)
	case missing > 0:
		d.Take = missing
		if !pool.Blocked {
			d.Candidates = candidates(pool, machines, has)
		}
		if len(d.Candidates) < missing {
			d.Why = reason(pool, machines, now)
		}
	}
	return d
}

// candidates are the machines that can be taken: spread over the values of a label where that is asked for, then those that fit most tightly, then in the order of
// the pool.
func candidates(pool Pool, machines, has []Machine) []Machine {
	type place struct {
		size Size
		turn uint64
		of   *Machine
	}
	var places []place
	for i := range machines {
		if m := &machines[i]; ofMachine(pool, m) == eligible {
			places = append(places, place{size: m.Size.rounded(), turn: pool.turn(m), of: m})
		}
	}
	slices.SortFunc(places, func(a, b place) int {
		return cmp.Or(a.size.compare(b.size), cmp.Compare(a.turn, b.turn), cmp.Compare(a.of.Name, b.of.Name))
	})
	free := make([]Machine, len(places))
	for i := range places {
		free[i] = *places[i].of
	}
	if !pool.Spread {
		return free
	}
	count := map[string]int{}
	for i := range has {
		count[has[i].Spread]++
	}
	return spread(free, count)
}

// turn is the place of a machine among those of its size. Pools that act at the same time would otherwise all try the same machine first, and all but one lose.
func (p *Pool) turn(m *Machine) uint64 {
	if p.Name == "" {
		return 0
	}
	sum := fnv.New64a()
	_, _ = io.WriteString(sum, p.Name+"/"+m.Name)
	return sum.Sum64()
}

// spread takes one machine after the other from the value of which there are the fewest; among equals, the order stays.
func spread(free []Machine, count map[string]int) []Machine {
	var values []string
	waiting := map[string][]Machine{}
	for i := range free {
		value := free[i].Spread
		if waiting[value] == nil {
			values = append(values, value)
		}
		waiting[value] = append(waiting[value], free[i])
	}
	order := make([]Machine, 0, len(free))
	for len(order) < len(free) {
		best := ""
		found := false
		for _, value := range values {
			if len(waiting[value]) > 0 && (!found || count[value] < count[best]) {
				best, found = value, true
			}
		}
		order = append(order, waiting[best][0])
		waiting[best] = waiting[best][1:]
		count[best]++
	}
	return order
}

// surplus are the machines to give up: those that a user marked, then by phase, then the newest. While fewer than wanted are Ready, one leaves the cluster at a time.
func surplus(has []Machine, wanted, leaving int) []Machine {
	order := slices.Clone(has)
	slices.SortFunc(order, func(a, b Machine) int {
		return cmp.Or(first(a.DeleteFirst, b.DeleteFirst), cmp.Compare(a.Phase, b.Phase), b.BoundAt.Compare(a.BoundAt), cmp.Compare(a.Name, b.Name))
	})
	ready := 0
	for i := range has {
		if has[i].Phase == Ready {
			ready++
		}
	}
	number := len(has) - wanted
	if wanted > 0 && ready < wanted {
		number = min(number, max(0, 1-leaving))
	}
	return order[:number]
}

// first orders true before false.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
