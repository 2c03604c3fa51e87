// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const (
	// returnCheck is how often an Ironic that is away is asked whether it is back: often enough for hosts to go on within 15 s of its return. answerTime bounds the request,
	// as any other, so that an Ironic that is slow counts as one that is back.
	returnCheck = 8 * time.Second
	answerTime  = 30 * time.Second
)

// rest waits until the next reading is due: some time later, or when the poller is kicked. An Ironic that is away is asked in one short request from time to
// time, and read as soon as it answers one. One that answers at the end of the reading, which it failed all the same, is overloaded: it is left alone for the whole time.
func (p *Poller) rest(ctx context.Context, due time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := time.NewTimer(due)
	defer timer.Stop()
	read := timer.C
	check := time.NewTicker(returnCheck)
	defer check.Stop()
	asked, answered := make(chan struct{}), make(chan struct{})
	if p.away() {
		read = nil
		p.ask(ctx, asked)
	} else {
		check.Stop()
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
			return
		case <-read:
			return
		case <-answered:
			return
		case <-asked:
			check.Stop()
			read, answered = timer.C, nil
		case <-check.C:
			p.ask(ctx, answered)
		}
	}
}

// ask asks whether Ironic answers, and tells when it does. A later request does not wait for that.
func (p *Poller) ask(ctx context.Context, tell chan<- struct{}) {
	go func() {
		if p.answers(ctx) {
			select {
			case tell <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
}

// away reports whether Ironic did not answer the last reading at all.
func (p *Poller) away() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch problem(p.health.Err) {
	case inventory.ProblemUnreachable, inventory.ProblemTimedOut:
		return true
	default:
		return false
	}
}

// answers asks whether Ironic answers in any session, if only that it refuses the credentials.
func (p *Poller) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for _, d := range p.ordered() {
		source, err := d.Connect(ctx)
		if err == nil {
			err = source.Enter(ctx)
		}
		switch problem(err) {
		case inventory.ProblemUnreachable, inventory.ProblemTimedOut, inventory.ProblemNoSecret, inventory.ProblemNoEndpoint, inventory.ProblemNotShared:
		default:
			if _, answer := errors.AsType[*inventory.EndpointError](err); answer || err == nil {
				return true
			}
		}
	}
	return false
}
