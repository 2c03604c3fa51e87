// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// want asks for the report of a machine, which is in the mirror some time later. Asking again costs nothing.
func (p *Poller) want(uuid string) {
	p.mu.Lock()
	m := p.machines[uuid]
	wanted := m != nil && m.Report == nil && !m.Asked
	p.mu.Unlock()
	if wanted {
		p.queue.Add(uuid)
	}
}

// drop forgets the report of a machine.
func (p *Poller) drop(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.machines[uuid]; m != nil && (m.Report != nil || m.Asked) {
		next := *m
		next.Report, next.Asked = nil, false
		p.machines[uuid] = &next
	}
}

func (p *Poller) fetchLoop(ctx context.Context) {
	for {
		uuid, shut := p.queue.Get()
		if shut {
			return
		}
		if p.fetch(ctx, uuid) {
			p.queue.Forget(uuid)
		} else if ctx.Err() == nil {
			p.queue.AddRateLimited(uuid)
		}
		p.queue.Done(uuid)
	}
}

// fetch reads the report of a machine, and its ports again when some were missing. It returns false to be called again.
func (p *Poller) fetch(ctx context.Context, uuid string) (done bool) {
	p.mu.Lock()
	m, through, epoch := p.machines[uuid], p.through, p.epoch
	p.mu.Unlock()
	if m == nil {
		return true
	}
	source, err := through.Connect(ctx)
	if err != nil {
		return false
	}
	report := m.Report
	if report == nil {
		report, err = source.Report(ctx, uuid)
		if err != nil {
			if errors.Is(err, inventory.ErrNotFound) && p.gone(ctx, source, uuid) {
				return true
			}
			p.asked(uuid)
			// An inventory that cannot be read, or that does not come, is asked for again after the next reading of everything.
			late := time.Since(m.FirstSeen) > inventory.PatienceTime
			return errors.Is(err, inventory.ErrRefused) || late && errors.Is(err, inventory.ErrNotFound)
		}
	}
	var ports []inventory.Port
	if missingPorts(m, report) {
		if ports, err = source.PortsOf(ctx, uuid); err != nil {
			ports = nil
		}
	}
	return p.keep(epoch, uuid, report, ports)
}

// gone takes a node out of the mirror that Ironic does not know any more: it went with its host, or by hand.
func (p *Poller) gone(ctx context.Context, source Source, uuid string) bool {
	if _, err := source.Node(ctx, uuid); !errors.Is(err, inventory.ErrNotFound) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.machines, uuid)
	p.tell()
	return true
}

func missingPorts(m *inventory.Machine, r *inventory.Report) bool {
	have := map[string]bool{}
	for _, port := range m.Ports {
		have[port.MAC] = true
	}
	for _, mac := range r.MACs {
		if !have[mac] {
			return true
		}
	}
	return false
}

func (p *Poller) asked(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.machines[uuid]; m != nil && !m.Asked {
		next := *m
		next.Asked = true
		p.machines[uuid] = &next
	}
}

// keep puts a report, and ports if there are any, into the mirror for which they were read. It returns whether the machine is whole.
func (p *Poller) keep(epoch int, uuid string, r *inventory.Report, ports []inventory.Port) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machines[uuid]
	if m == nil || p.epoch != epoch {
		return true
	}
	next := *m
	next.Report = r
	if len(ports) > 0 {
		next.Ports = ports
		for _, port := range ports {
			p.ports[port.UUID] = true
		}
	}
	p.machines[uuid] = &next
	p.tell()
	return !missingPorts(&next, r)
}
