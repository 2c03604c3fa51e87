// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Bounds of a poller's work.
const (
	// fetchers is how many inventories are read at once.
	fetchers = 8
	// maxBackoff is the longest wait after an error.
	maxBackoff = 2 * time.Minute
	// settle is how long news are collected before they are reported.
	settle = 100 * time.Millisecond
	// confirmations is how many missing nodes one reading of everything asks for by name.
	confirmations = 50
)

// Pace is how often a poller reads.
type Pace struct {
	// News is the time between two readings of what is new.
	News time.Duration
	// Full is the time between two readings of everything; up to a tenth is added at random.
	Full time.Duration
}

// Health is how the last readings went.
type Health struct {
	// Err is nil while Ironic answers. Before the first reading, Polled is false.
	Err    error
	Polled bool
	// Partial says that the first reading is not at its end: what the mirror lacks may be there all the same.
	Partial bool
	// Version of the API.
	Version string
	// Changed is when a reading last changed something or read everything; Full says that it read everything, Requests how
	// many lists that took.
	Changed  time.Time
	Full     bool
	Requests int
	// Success is when Ironic last answered, FullSuccess when everything was last read.
	Success, FullSuccess time.Time
}

// Poller mirrors one Ironic, for all sessions. Its methods are safe for concurrent use.
type Poller struct {
	notify  func()
	observe func(kind string, took time.Duration, err error)
	queue   workqueue.TypedRateLimitingInterface[string]
	kick    chan struct{}

	mu       sync.Mutex
	sessions map[string]*session
	// through is the session in which was read last.
	through *session
	// vouched says that all of the mirror came from sessions that verify the certificate; epoch counts the mirrors that were begun.
	vouched  bool
	epoch    int
	health   Health
	machines map[string]*inventory.Machine
	order    []string
	ports    map[string]bool
	// wanted are the machines whose report a resource asked for, false for those whose report could not be had. doubted are those whose node is asked for.
	wanted, doubted map[string]bool
	// lastNode and lastPort are the markers.
	lastNode, lastPort string
	nextFull           time.Time
	failures           int
	telling            *time.Timer
	closed             bool
}

// NewPoller makes a poller without sessions; Run starts it. notify is called, never concurrently with itself being pending, when the mirror,
// the health or a session changed. observe is called for each reading and may be nil.
func NewPoller(notify func(), observe func(kind string, took time.Duration, err error)) *Poller {
	return &Poller{
		notify: notify, observe: observe, kick: make(chan struct{}, 1), sessions: map[string]*session{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[string](500*time.Millisecond, time.Minute)),
		machines: map[string]*inventory.Machine{}, ports: map[string]bool{},
		wanted: map[string]bool{}, doubted: map[string]bool{},
	}
}

// Run polls until the context ends.
func (p *Poller) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for range fetchers {
		wg.Go(func() { p.fetchLoop(ctx) })
	}
	for ctx.Err() == nil {
		p.rest(ctx, p.Poll(ctx))
	}
	p.stop()
	wg.Wait()
}

func (p *Poller) stop() {
	p.queue.ShutDown()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.telling != nil {
		p.telling.Stop()
	}
}

// Kick makes the next reading happen now.
func (p *Poller) Kick() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// list is the mirror, in the order in which Ironic made the nodes. The lock is held.
func (p *Poller) list() []*inventory.Machine {
	out := make([]*inventory.Machine, 0, len(p.order))
	for _, uuid := range p.order {
		if m := p.machines[uuid]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// Poll reads once and returns when to read again.
func (p *Poller) Poll(ctx context.Context) time.Duration {
	began := time.Now()
	p.mu.Lock()
	full := !began.Before(p.nextFull) // the first one is full
	p.mu.Unlock()
	kind := "news"
	if full {
		kind = "full"
	}
	err := p.enter(ctx, full)
	if errors.Is(err, inventory.ErrNotFound) { // the marker is gone: the one of the last reading, or that of a page
		kind, full = "full", true
		err = p.enter(ctx, true)
	}
	if ctx.Err() != nil {
		return 0
	}
	if p.observe != nil {
		p.observe(kind, time.Since(began), err)
	}
	if err == nil {
		p.trySessions(ctx, full)
	}
	return p.settleHealth(err)
}

// settleHealth records how a reading went and returns when to read again.
func (p *Poller) settleHealth(err error) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := !p.health.Polled || (err == nil) != (p.health.Err == nil) || err != nil && problem(err) != problem(p.health.Err)
	p.health.Err, p.health.Polled = err, true
	if changed {
		p.tell()
	}
	if err == nil {
		p.failures = 0
		p.health.Success = time.Now()
		return p.pace().News
	}
	p.failures++
	return backoff(p.pace().News, p.failures)
}

// backoff is how long to wait after so many failures.
func backoff(first time.Duration, failures int) time.Duration {
	wait := min(first<<min(failures-1, 10), maxBackoff)
	return wait + rand.N(wait/10+1) //nolint:gosec // jitter is no secret
}

// reading is when the last readings succeeded.
func (p *Poller) reading() Reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Reading{News: p.health.Success, Full: p.health.FullSuccess, Pace: p.pace()}
}

func problem(err error) inventory.Problem {
	if e, ok := errors.AsType[*inventory.EndpointError](err); ok {
		return e.Problem
	}
	return ""
}

// tell calls notify soon; changes until then are part of that call. The lock is held.
func (p *Poller) tell() {
	if p.telling != nil || p.closed {
		return
	}
	p.telling = time.AfterFunc(settle, func() {
		p.mu.Lock()
		p.telling = nil
		p.mu.Unlock()
		p.notify()
	})
}
