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
	// returnCheck is how often an Ironic that is away is asked whether it is back, answerTime bounds the request. Together they are less than the 15 s within
	// which hosts go on after its return.
	returnCheck = 8 * time.Second
	answerTime  = 5 * time.Second
)

// rest waits until the next reading is due: some time later, or when the poller is kicked. An Ironic that is away is asked in one short request from time to
// time, and read as soon as it answers. One that answers and failed the reading all the same is overloaded: it is left alone for the whole time.
func (p *Poller) rest(ctx context.Context, due time.Duration) {
	if !p.away() || p.answers(ctx) {
		timer := time.NewTimer(due)
		defer timer.Stop()
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-p.kick:
		}
		return
	}
	check := time.NewTicker(returnCheck)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
			return
		case <-check.C:
			if p.answers(ctx) {
				return
			}
		}
	}
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
