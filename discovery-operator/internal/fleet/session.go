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

// Session reaches an Ironic with one set of credentials. Each set of credentials has a session of its own, and its users see the mirror while
// Ironic accepts the credentials.
type Session struct {
	// Key identifies the session among those of one poller.
	Key string
	// Unverified says that the certificate is not verified. The results of such a session are not shown to the others.
	Unverified bool
	Connect    Connect
}

// session is a Session, and how Ironic answered it.
type session struct {
	Session
	pace Pace
	// tried says whether there was an answer, err what it was: nil if Ironic accepted the credentials.
	tried bool
	err   error
	// admitted says that Ironic accepted these credentials and has not refused them since.
	admitted bool
	// source is what Ironic was read from when it accepted the credentials.
	source Source
	// again is when a session that was refused is tried again.
	again    time.Time
	failures int
}

func (d *session) open() bool { return d.tried && d.err == nil }

// View is the mirror as one session sees it.
type View struct {
	poller  *Poller
	session string
}

// Open begins a session, or sets the pace of the one that there is, and returns its view.
func (p *Poller) Open(to Session, pace Pace) *View {
	p.mu.Lock()
	before := p.pace()
	d := p.sessions[to.Key]
	fresh := d == nil && len(p.sessions) > 0
	if d == nil {
		d = &session{Session: to}
		p.sessions[to.Key] = d
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

// end ends a session.
func (p *Poller) end(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.sessions, key)
}

// pace is the fastest of all accepted sessions, and of all sessions while none is accepted. The lock is held.
func (p *Poller) pace() Pace {
	var fastest Pace
	for _, open := range []bool{true, false} {
		for _, d := range p.sessions {
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

// Health returns how the last readings went, as far as it concerns the session: one that is refused learns nothing but why.
func (v *View) Health() Health {
	p := v.poller
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.sessions[v.session]
	switch {
	case d == nil, !p.health.Polled:
		return Health{}
	case d.err != nil:
		return Health{Polled: true, Err: d.err, Partial: p.health.Partial}
	case p.shows(d):
		return p.health
	case p.health.Err != nil: // no session is accepted
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
	if d := p.sessions[v.session]; d == nil || !p.shows(d) {
		return nil
	}
	return p.list()
}

// shows reports whether a session may see the mirror. The lock is held.
func (p *Poller) shows(d *session) bool { return d.admitted && (d.Unverified || p.vouched) }

// Want asks for the report of a machine; it is in the mirror some time later. Asking again costs nothing.
func (v *View) Want(uuid string) { v.poller.want(uuid) }

// Confirm asks whether Ironic still has a node. The machine of one that is gone leaves the mirror; of one that is there, Seen becomes young.
func (v *View) Confirm(uuid string) { v.poller.confirm(uuid) }

// Drop forgets the report of a machine.
func (v *View) Drop(uuid string) { v.poller.drop(uuid) }

// ordered lists the sessions in the order in which they are tried: those that were accepted last time first, and those that verify the certificate.
func (p *Poller) ordered() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	row := make([]*session, 0, len(p.sessions))
	for _, d := range p.sessions {
		row = append(row, d)
	}
	rank := func(d *session) (n int) {
		if !d.open() {
			n += 2
		}
		if d.Unverified {
			n++
		}
		return n
	}
	slices.SortFunc(row, func(a, b *session) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Key, b.Key))
	})
	return row
}

// enter reads in the first session that Ironic accepts.
func (p *Poller) enter(ctx context.Context, full bool) error {
	var first error
	for _, d := range p.ordered() {
		source, err := d.Connect(ctx)
		if err == nil {
			err = p.read(ctx, d, source, full)
		} else {
			err = fmt.Errorf("connecting to Ironic: %w", err)
		}
		p.answered(d, source, err)
		if err == nil || !ofSession(err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// trySessions asks, in one request each, whether Ironic accepts the sessions that are due: new ones, those whose credentials changed, those that it did not
// open for some time, and with each reading of everything, all.
func (p *Poller) trySessions(ctx context.Context, all bool) {
	p.mu.Lock()
	through := p.through
	all = all || p.failures > 0
	p.mu.Unlock()
	for _, d := range p.ordered() {
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
		if err != nil && !ofSession(err) { // the others would get the same answer
			return
		}
	}
}

// ofSession reports whether an error can concern one session alone: its credentials, or the certificate that it accepts.
func ofSession(err error) bool {
	switch problem(err) {
	case inventory.ProblemCredentials, inventory.ProblemNoSecret, inventory.ProblemUnreachable, inventory.ProblemNotShared, inventory.ProblemNoEndpoint:
		return true
	default:
		return false
	}
}

// answered records whether Ironic accepted a session. Only this goroutine, which polls, changes that.
func (p *Poller) answered(d *session, source Source, err error) {
	if err != nil && !ofSession(err) {
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
