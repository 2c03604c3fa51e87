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
	_, asked := p.wanted[uuid]
	asks := m != nil && m.Report == nil && !asked
	if asks {
		p.wanted[uuid] = true
	}
	p.mu.Unlock()
	if asks {
		p.queue.Add(uuid)
	}
}

// confirm asks whether Ironic still has a node. One that it has not goes out of the mirror.
func (p *Poller) confirm(uuid string) {
	p.mu.Lock()
	asks := p.machines[uuid] != nil && !p.doubted[uuid]
	if asks {
		p.doubted[uuid] = true
	}
	p.mu.Unlock()
	if asks {
		p.queue.Add(uuid)
	}
}

// drop forgets the report of a machine.
func (p *Poller) drop(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.wanted, uuid)
	if m := p.machines[uuid]; m != nil && m.Read() {
		p.machines[uuid] = m.WithoutReport()
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

// fetch asks what is wanted of a machine. It returns false to be called again.
func (p *Poller) fetch(ctx context.Context, uuid string) (done bool) {
	p.mu.Lock()
	m, through, epoch, wanted, doubted := p.machines[uuid], p.through, p.epoch, p.wanted[uuid], p.doubted[uuid]
	p.mu.Unlock()
	if m == nil || !wanted && !doubted {
		return true
	}
	source, err := through.Connect(ctx)
	if err != nil {
		return false
	}
	asked := time.Now()
	if doubted {
		switch node, err := source.Node(ctx, uuid); {
		case errors.Is(err, inventory.ErrNotFound):
			p.remove(uuid)
			return true
		case err != nil:
			return false
		default:
			p.seen(uuid, node, asked)
		}
	}
	return !wanted || p.fetchReport(ctx, source, m, epoch)
}

// fetchReport reads the report of a machine, and its ports again when some were missing. It returns false to be called again.
func (p *Poller) fetchReport(ctx context.Context, source Source, m *inventory.Machine, epoch int) (done bool) {
	uuid, report, asked := m.Node.UUID, m.Report, time.Now()
	if report == nil {
		var err error
		report, err = source.Report(ctx, uuid)
		switch {
		case errors.Is(err, inventory.ErrRefused):
			p.answer(uuid, func(m *inventory.Machine) { m.Unreadable, p.wanted[uuid] = err.Error(), false })
			return true
		case errors.Is(err, inventory.ErrNotFound):
			if p.gone(ctx, source, uuid) {
				return true
			}
			return p.missing(uuid)
		case err != nil:
			return false
		}
	}
	var ports []inventory.Port
	if missingPorts(m, report) {
		var err error
		if ports, err = source.PortsOf(ctx, uuid); err != nil {
			return p.keep(epoch, asked, uuid, report, nil, false)
		}
		return p.keep(epoch, asked, uuid, report, ports, true)
	}
	return p.keep(epoch, asked, uuid, report, nil, false)
}

// gone takes a node out of the mirror that Ironic does not know any more: it went with its host, or by hand.
func (p *Poller) gone(ctx context.Context, source Source, uuid string) bool {
	if _, err := source.Node(ctx, uuid); !errors.Is(err, inventory.ErrNotFound) {
		return false
	}
	p.remove(uuid)
	return true
}

func (p *Poller) remove(uuid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.machines, uuid)
	delete(p.wanted, uuid)
	delete(p.doubted, uuid)
	p.tell()
}

// answer changes what is known of a machine.
func (p *Poller) answer(uuid string, change func(*inventory.Machine)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.machines[uuid]; m != nil {
		next := *m
		change(&next)
		p.machines[uuid] = &next
		p.tell()
	}
}

// seen notes that Ironic still has a node, and how it is.
func (p *Poller) seen(uuid string, node inventory.Node, asked time.Time) {
	p.answer(uuid, func(m *inventory.Machine) {
		if m.Seen, m.NodeSeen = asked, asked; node.UUID == uuid {
			p.renew(m, node, asked)
		}
		delete(p.doubted, uuid)
	})
}

// missing notes that Ironic has no report of a machine. It returns whether that has been so for long enough; then the report is asked for again after
// the next reading of everything.
func (p *Poller) missing(uuid string) (late bool) {
	p.answer(uuid, func(m *inventory.Machine) {
		m.MissingLast = time.Now()
		if m.Missing.IsZero() {
			m.Missing = m.MissingLast
		}
		late = m.MissingLast.Sub(m.Missing) >= inventory.PatienceTime
		p.wanted[uuid] = !late
	})
	return late
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

// keep puts a report, withPorts with all ports, into the mirror of the epoch for which they were read; Ironic was asked at since. It returns whether the machine is whole.
func (p *Poller) keep(epoch int, since time.Time, uuid string, r *inventory.Report, ports []inventory.Port, withPorts bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.machines[uuid]
	if m == nil || p.epoch != epoch || !p.wanted[uuid] {
		return true
	}
	next := *m
	next.Report, next.BootMAC, next.Unreadable, next.Missing, next.MissingLast = r, "", "", time.Time{}, time.Time{}
	if since.After(next.Seen) {
		next.Seen = since
	}
	if withPorts {
		next.PortsRead = since
	}
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
