// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// read lists nodes and ports, all of them or those after the markers, and takes them into the mirror.
func (p *Poller) read(ctx context.Context, d *session, source Source, full bool) error {
	anew := p.begins(d)
	full = full || anew
	p.mu.Lock()
	afterNode, afterPort, unread := p.lastNode, p.lastPort, p.health.FullSuccess.IsZero()
	p.mu.Unlock()
	if full {
		afterNode, afterPort = "", ""
	}
	asked := time.Now()
	var nodes []inventory.Node
	var ports []inventory.Port
	var err error
	if pager, pages := source.(Pager); pages && unread && !anew {
		nodes, ports, err = firstReading{p, d, source, pager}.read(ctx)
	} else {
		nodes, ports, err = lists(ctx, source, afterNode, afterPort)
	}
	if err != nil {
		return err
	}
	version, err := source.Version(ctx)
	if err != nil {
		return fmt.Errorf("asking for the version: %w", err)
	}
	var gone map[string]bool
	if full && !anew {
		gone = p.confirmGone(ctx, source, nodes)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if anew {
		p.epoch++
		p.machines, p.order, p.ports = map[string]*inventory.Machine{}, nil, map[string]bool{}
		p.wanted, p.doubted = map[string]bool{}, map[string]bool{}
	}
	p.through, p.vouched = d, !d.Unverified
	p.health.Version = version
	p.take(asked, nodes, ports, full, gone)
	return nil
}

// lists reads the lists of nodes and ports after the markers.
func lists(ctx context.Context, source Source, afterNode, afterPort string) ([]inventory.Node, []inventory.Port, error) {
	nodes, err := source.Nodes(ctx, afterNode)
	if err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	ports, err := source.Ports(ctx, afterPort)
	if err != nil {
		return nil, nil, fmt.Errorf("listing ports: %w", err)
	}
	return nodes, ports, nil
}

// begins reports whether a reading in a session begins a new mirror: no session vouches for what was read so far, and those of this session
// want that.
func (p *Poller) begins(d *session) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.through != nil && !p.vouched && !d.Unverified
}

// confirmGone asks by name for nodes that a list of everything lacks: lists have been known to leave nodes out.
func (p *Poller) confirmGone(ctx context.Context, source Source, listed []inventory.Node) map[string]bool {
	present := make(map[string]bool, len(listed))
	for i := range listed {
		present[listed[i].UUID] = true
	}
	p.mu.Lock()
	var missing []string
	for _, uuid := range p.order {
		if p.machines[uuid] != nil && !present[uuid] {
			missing = append(missing, uuid)
		}
	}
	p.mu.Unlock()
	gone := map[string]bool{}
	for _, uuid := range missing[:min(len(missing), confirmations)] {
		if _, err := source.Node(ctx, uuid); errors.Is(err, inventory.ErrNotFound) {
			gone[uuid] = true
		}
	}
	if len(gone) == confirmations { // so many at once are believed for the rest, too: nothing is deleted because of it
		for _, uuid := range missing {
			gone[uuid] = true
		}
	}
	return gone
}

// take puts what was listed into the mirror, as of when it was asked for: a node may go while a list is on its way. The lock is held.
func (p *Poller) take(asked time.Time, nodes []inventory.Node, ports []inventory.Port, full bool, gone map[string]bool) {
	changed := len(gone) > 0
	for uuid := range gone {
		delete(p.machines, uuid)
		delete(p.wanted, uuid)
		delete(p.doubted, uuid)
	}
	if full {
		p.order = slices.DeleteFunc(p.order, func(uuid string) bool { return p.machines[uuid] == nil })
		p.ports = make(map[string]bool, len(ports))
	}
	byNode := map[string][]inventory.Port{}
	for _, port := range ports {
		if !p.ports[port.UUID] {
			p.ports[port.UUID] = true
			byNode[port.Node] = append(byNode[port.Node], port)
		}
		p.lastPort = port.UUID
	}
	if full && len(ports) == 0 {
		p.lastPort = ""
	}
	for i := range nodes {
		changed = p.takeNode(asked, nodes[i]) || changed
		p.lastNode = nodes[i].UUID
	}
	if full && len(nodes) == 0 {
		p.lastNode = ""
	}
	if full {
		maps.DeleteFunc(p.wanted, func(_ string, asks bool) bool { return !asks }) // what could not be had is asked for again
		for uuid := range p.machines {
			changed = p.takePorts(uuid, byNode[uuid], true) || changed
		}
	} else {
		for uuid, list := range byNode {
			changed = p.takePorts(uuid, list, false) || changed
		}
	}
	p.finish(time.Now(), full, changed)
}

// finish records a reading that went well. The lock is held.
func (p *Poller) finish(now time.Time, full, changed bool) {
	if full {
		p.health.FullSuccess, p.health.Partial = now, false
		pace := p.pace().Full
		p.nextFull = now.Add(pace + rand.N(pace/10+1)) //nolint:gosec // jitter is no secret
	}
	if full || changed {
		p.health.Changed, p.health.Full = now, full
		p.health.Requests = 2
		if full {
			p.health.Requests = len(p.machines)/1000 + len(p.ports)/1000 + 2
		}
	}
	if changed || full {
		p.tell()
	}
}

func (p *Poller) takeNode(asked time.Time, n inventory.Node) bool {
	old := p.machines[n.UUID]
	if old == nil {
		p.machines[n.UUID] = &inventory.Machine{Node: n, FirstSeen: asked, PortsRead: asked, Seen: asked, NodeSeen: asked}
		p.order = append(p.order, n.UUID)
		return true
	}
	changed := old.Node != n
	if changed || old.Report != nil { // others need not be young: their reports are read before they become hosts
		next := *old
		p.renew(&next, n, asked)
		p.machines[n.UUID] = &next
	}
	return changed
}

// renew writes Ironic's current node into a machine. It drops the report of an earlier inspection. The lock is held.
func (p *Poller) renew(m *inventory.Machine, n inventory.Node, asked time.Time) {
	if m.Node.Inspected != n.Inspected {
		m.Report, m.BootMAC, m.Unreadable, m.Missing, m.MissingLast = nil, "", "", time.Time{}, time.Time{}
		delete(p.wanted, n.UUID)
	}
	m.Node = n
	for _, at := range []*time.Time{&m.Seen, &m.NodeSeen} {
		if asked.After(*at) { // a list may have been asked for before an answer that came while it was read
			*at = asked
		}
	}
}

// takePorts adds ports to a machine, or replaces them when the list is whole.
func (p *Poller) takePorts(uuid string, list []inventory.Port, whole bool) bool {
	old := p.machines[uuid]
	if old == nil {
		return false
	}
	if !whole {
		list = append(slices.Clone(old.Ports), list...)
	}
	if slices.Equal(old.Ports, list) {
		return false
	}
	next := *old
	next.Ports, next.BootMAC = list, ""
	p.machines[uuid] = &next
	return true
}
