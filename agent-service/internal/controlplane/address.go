// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"time"
)

const (
	// tryTimeout bounds an attempt to renew the Lease, so that there is time for another one before the holder gives up, and the last one ends before others take the address.
	tryTimeout = 4 * time.Second
	// announceInterval is how often the holder of the address announces it: a switch or a router may have missed it, and another program may have removed it.
	announceInterval = 10 * time.Second
	// announcements follow each other at once when the address moves.
	announcements = 3
)

// holdAddress gives this machine the address of the API while it holds the Lease, until ctx is done. An API server of this machine that does not answer costs it the address.
func (m Machine) holdAddress(ctx context.Context) error {
	if err := m.Interfaces.Remove(m.apiAddress()); err != nil {
		return err
	}
	h := holder{machine: m}
	ticker := time.NewTicker(leaseRetry)
	defer ticker.Stop()
	for {
		if err := h.pass(ctx); err != nil {
			return errors.Join(err, h.finish(context.WithoutCancel(ctx))) // another machine may be able to have it
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return h.finish(context.WithoutCancel(ctx))
		}
	}
}

// holder is this machine as a candidate for the address.
type holder struct {
	machine Machine
	lease   lease
	// has is true while the machine has the address. It was announced announced times, last at announcedAt.
	has         bool
	announced   int
	announcedAt time.Time
	// silent is true while the API server of this machine does not answer.
	silent bool
}

// pass tries to hold the Lease, and gives the machine the address or takes it away.
func (h *holder) pass(ctx context.Context) error {
	api, err := h.machine.client() // its certificate is renewed
	if err != nil {
		return err
	}
	defer api.close()
	h.lease.api, h.lease.identity = api, h.machine.Group.Name
	attempt, cancel := context.WithTimeout(ctx, tryTimeout)
	err = h.lease.try(attempt, time.Now())
	cancel()
	if err != nil && !h.silent && ctx.Err() == nil {
		h.machine.Say("the address of the API cannot be renewed: %v", err)
	}
	h.silent = err != nil
	if !h.lease.held(time.Now()) {
		return h.drop()
	}
	return h.take()
}

// take gives the machine the address, and announces it.
func (h *holder) take() error {
	now := time.Now()
	if h.has && h.announced >= announcements && now.Before(h.announcedAt.Add(announceInterval)) {
		return nil
	}
	if !h.has {
		h.machine.Say("this machine takes the address %s of the API", h.machine.apiAddress())
		h.has, h.announced = true, 0
	}
	h.announced, h.announcedAt = h.announced+1, now
	return h.machine.Interfaces.Add(h.machine.apiAddress(), h.machine.Group.Own().Address)
}

// drop takes the address from the machine.
func (h *holder) drop() error {
	if !h.has {
		return nil
	}
	if err := h.machine.Interfaces.Remove(h.machine.apiAddress()); err != nil {
		return err
	}
	h.has = false
	h.machine.Say("this machine has no longer the address %s of the API", h.machine.apiAddress())
	return nil
}

// finish lets another machine have the address at once.
func (h *holder) finish(ctx context.Context) error {
	if err := h.drop(); err != nil {
		return err
	}
	api, err := h.machine.client()
	if err != nil {
		return err
	}
	defer api.close()
	h.lease.api = api
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	return h.lease.release(ctx)
}
