// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Door is a way into an Ironic: with one set of credentials. Who comes with another set has a door of his own, and sees the mirror while
// Ironic itself opens that door.
type Door struct {
	// Key tells the doors of one poller apart.
	Key string
	// Unverified says that the certificate is not verified. What was read through such a door is not shown behind the others.
	Unverified bool
	Connect    Connect
}

// door is a Door, and what Ironic said to who came that way.
type door struct {
	Door
	pace Pace
	// tried says whether there was an answer, err what it was: nil if the door opened.
	tried bool
	err   error
	// admitted says that Ironic accepted these credentials and has not refused them since.
	admitted bool
	// source is what was behind the door when it opened.
	source Source
	// again is when a door that did not open is tried again.
	again    time.Time
	failures int
}

func (d *door) open() bool { return d.tried && d.err == nil }

// View is what is seen through one door.
type View struct {
	poller *Poller
	door   string
}

// Open makes a door, or sets the pace of the door that there is, and returns what is seen through it.
func (p *Poller) Open(to Door, pace Pace) *View {
	p.mu.Lock()
	before := p.pace()
	d := p.doors[to.Key]
	fresh := d == nil && len(p.doors) > 0
	if d == nil {
		d = &door{Door: to}
		p.doors[to.Key] = d
	}
	d.pace = pace
	now := p.pace()
	if soon := time.Now().Add(now.Full); p.nextFull.After(soon) {
		p.nextFull = soon
	}
	changed := before != (Pace{}) && before != now
	p.mu.Unlock()
	if fresh || changed {
		p.Kick()
	}
	return &View{p, to.Key}
}

// shut takes a door away.
func (p *Poller) shut(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.doors, key)
}

// pace is the fastest that anybody wants whose door is open, and while none is, the fastest that anybody wants. The lock is held.
func (p *Poller) pace() Pace {
	var fastest Pace
	for _, open := range []bool{true, false} {
		for _, d := range p.doors {
			switch {
			case open && !d.open():
			case fastest == (Pace{}):
				fastest = d.pace
			default:
				fastest.News, fastest.Full = min(fastest.News, d.pace.News), min(fastest.Full, d.pace.Full)
			}
		}
		if fastest != (Pace{}) {
			break
		}
	}
	return fastest
}

// Health returns how the last readings went, as far as it concerns who looks: a door that does not open hides all but why.
func (v *View) Health() Health {
	p := v.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.doors[v.door]
	switch {
	case d == nil, !p.health.Polled:
		return Health{}
	case d.err != nil:
		return Health{Polled: true, Err: d.err}
	case p.shows(d):
		return p.health
	case p.health.Err != nil: // nobody comes in
		return Health{Polled: true, Err: p.health.Err}
	default:
		return Health{}
	}
}

// Machines returns the mirror, in the order in which Ironic made the nodes; nothing to those whom Ironic has not let in.
func (v *View) Machines() []*inventory.Machine {
	p := v.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.doors[v.door]; d == nil || !p.shows(d) {
		return nil
	}
	return p.list()
}

// shows reports whether the mirror is for those behind a door. The lock is held.
func (p *Poller) shows(d *door) bool { return d.admitted && (d.Unverified || p.vouched) }

// Want asks for the report of a machine; it is in the mirror some time later. Asking again costs nothing.
func (v *View) Want(uuid string) { v.poller.want(uuid) }

// Confirm asks whether Ironic still has a node. The machine of one that is gone leaves the mirror; of one that is there, Seen becomes young.
func (v *View) Confirm(uuid string) { v.poller.confirm(uuid) }

// Drop forgets the report of a machine.
func (v *View) Drop(uuid string) { v.poller.drop(uuid) }

// row is the doors in the order in which they are tried: those that opened last time first, and those that verify whom they lead to.
func (p *Poller) row() []*door {
	p.mu.Lock()
	defer p.mu.Unlock()
	row := make([]*door, 0, len(p.doors))
	for _, d := range p.doors {
		row = append(row, d)
	}
	rank := func(d *door) (n int) {
		if !d.open() {
			n += 2
		}
		if d.Unverified {
			n++
		}
		return n
	}
	slices.SortFunc(row, func(a, b *door) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Key, b.Key))
	})
	return row
}

// enter reads through the first door that opens.
func (p *Poller) enter(ctx context.Context, full bool) error {
	var first error
	for _, d := range p.row() {
		source, err := d.Connect(ctx)
		if err == nil {
			err = p.read(ctx, d, source, full)
		} else {
			err = fmt.Errorf("connecting to Ironic: %w", err)
		}
		p.answered(d, source, err)
		if err == nil || !ofDoor(err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// tryDoors asks, in one request each, whether those doors open that are due: new ones, those whose credentials changed, those that did not
// open for some time, and with each reading of everything, all.
func (p *Poller) tryDoors(ctx context.Context, all bool) {
	p.mu.Lock()
	through := p.through
	all = all || p.failures > 0
	p.mu.Unlock()
	for _, d := range p.row() {
		if d == through || !all && d.err != nil && time.Now().Before(d.again) {
			continue
		}
		source, err := d.Connect(ctx)
		if err == nil {
			if !all && d.open() && source == d.source {
				continue
			}
			err = source.Enter(ctx)
		}
		p.answered(d, source, err)
		if err != nil && !ofDoor(err) { // the others would hear the same
			return
		}
	}
}

// ofDoor reports whether an error can concern one door alone: its credentials, or whom it takes for Ironic.
func ofDoor(err error) bool {
	switch problem(err) {
	case inventory.ProblemCredentials, inventory.ProblemNoSecret, inventory.ProblemUnreachable, inventory.ProblemNotShared, inventory.ProblemNoEndpoint:
		return true
	default:
		return false
	}
}

// answered notes whether a door opened. Only this goroutine, which polls, changes that.
func (p *Poller) answered(d *door, source Source, err error) {
	if err != nil && !ofDoor(err) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if changed := !d.tried || problem(d.err) != problem(err); changed {
		p.tell()
	}
	d.tried, d.err, d.source = true, err, source
	if err == nil {
		d.admitted, d.failures = true, 0
		return
	}
	d.admitted = d.admitted && problem(err) == inventory.ProblemUnreachable
	d.failures++
	d.again = time.Now().Add(backoff(d.pace.News, d.failures))
}
