// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package networkprobe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
)

// Prober probes all addresses, round by round.
type Prober struct {
	// Known takes what answers.
	Known *Known
	// Answers reports whether a machine has an address. It ends within a second or two.
	Answers func(ctx context.Context, addr netip.Addr) bool
	// Rate is how many addresses are probed in a second.
	Rate int
	// Parallel is how many addresses are probed at once.
	Parallel int
	// Interval is the time between two rounds.
	Interval time.Duration
	// Clock tells the time.
	Clock clock.WithTicker
	// Log gets a line for each round.
	Log logr.Logger
}

// Run probes until ctx ends.
func (p *Prober) Run(ctx context.Context) {
	for {
		p.round(ctx)
		pause := p.Clock.NewTimer(p.Interval)
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C():
		}
	}
}

// round probes every address once.
func (p *Prober) round(ctx context.Context) {
	started := p.Clock.Now()
	ticker := p.Clock.NewTicker(time.Second / time.Duration(p.Rate))
	defer ticker.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	free := make(chan struct{}, p.Parallel)
	addresses := p.Known.toProbe()
	for _, addr := range addresses {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		free <- struct{}{}
		group.Go(func() {
			defer func() { <-free }()
			if p.Answers(ctx, addr) {
				p.Known.answer(addr, p.Clock.Now())
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return
	}
	p.Known.endRound(started, p.Clock.Now())
	p.Log.V(1).Info("Probed the subnets", "addresses", len(addresses))
}

// TCP asks for connections.
type TCP struct {
	// Ports to connect to, one after the other.
	Ports []int
	// Timeout for all ports together.
	Timeout time.Duration
	// CountRefused says that a refused connection is an answer. Behind a firewall that refuses in place of machines, it is none.
	CountRefused bool
}

// Answers reports whether a machine accepts a connection to an address, or refuses one.
func (t TCP) Answers(ctx context.Context, addr netip.Addr) bool {
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	results := make(chan bool, len(t.Ports))
	for _, port := range t.Ports {
		go func() {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(addr.String(), strconv.Itoa(port)))
			if err == nil {
				_ = conn.Close()
			}
			results <- err == nil || t.CountRefused && isRefused(err)
		}()
	}
	for range t.Ports {
		if <-results {
			return true
		}
	}
	return false
}

// isRefused reports whether a machine has refused a connection: it has the address.
func isRefused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}
