// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package supervise keeps programs running: it starts them in the order of their dependencies, restarts those that end with
// a back-off, bounds their logs, and stops them in reverse order.
package supervise

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// firstDelay is before the first restart; it doubles with every further one up to maxDelay.
	firstDelay = time.Second
	maxDelay   = 30 * time.Second
	// healthyAfter is how long a program runs until its next end counts as the first.
	healthyAfter = time.Minute
	// readyInterval is between two questions whether a program is ready.
	readyInterval = 200 * time.Millisecond
)

// Program is supervised.
type Program struct {
	Name string
	// After are the names of programs that are ready before this one starts for the first time. It is stopped before them.
	After []string
	// Run runs the program until it ends or ctx is done; it returns after the end of the program.
	Run func(ctx context.Context) error
	// Ready returns nil when the program can be used. It is asked until then, once. A nil Ready means from its start on.
	Ready func(ctx context.Context) error
	// Once is true for a program that is done, and ready, when Run returns nil.
	Once bool
}

// Supervisor runs programs.
type Supervisor struct {
	Programs []Program
	// Say gets a line for each event. It is called by several goroutines.
	Say func(format string, values ...any)
}

// supervised is a program with its state.
type supervised struct {
	Program
	needs      []*supervised
	dependents []*supervised
	// ready is closed when the program is ready for the first time, done when it has ended for good.
	ready, done chan struct{}
}

// Run starts the programs and supervises them until ctx is done. It returns when all of them have ended.
func (s Supervisor) Run(ctx context.Context) error {
	programs, err := resolve(s.Programs)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for _, p := range programs {
		own, stop := context.WithCancel(context.WithoutCancel(ctx))
		all.Go(func() {
			defer stop()
			<-ctx.Done()
			for _, d := range p.dependents {
				<-d.done
			}
		})
		all.Go(func() {
			defer close(p.done)
			s.supervise(ctx, own, p)
		})
	}
	all.Wait()
	return nil
}

// resolve finds what programs need. It refuses names that are unknown or double, and cycles.
func resolve(programs []Program) ([]*supervised, error) {
	byName := map[string]*supervised{}
	var all []*supervised
	for _, program := range programs {
		if byName[program.Name] != nil {
			return nil, fmt.Errorf("there are two programs %q", program.Name)
		}
		p := &supervised{Program: program, ready: make(chan struct{}), done: make(chan struct{})}
		// A program needs only those before it in the list, so there are no cycles.
		for _, name := range program.After {
			needed := byName[name]
			if needed == nil {
				return nil, fmt.Errorf("%q is after %q, which is not before it in the list", program.Name, name)
			}
			p.needs = append(p.needs, needed)
			needed.dependents = append(needed.dependents, p)
		}
		byName[program.Name] = p
		all = append(all, p)
	}
	return all, nil
}

// supervise runs one program. Own is done when the program is to end, ctx when the supervisor is.
func (s Supervisor) supervise(ctx, own context.Context, p *supervised) {
	for _, needed := range p.needs {
		select {
		case <-needed.ready:
		case <-ctx.Done():
			return
		}
	}
	if p.Ready == nil && !p.Once {
		close(p.ready)
	}
	watched, stopWatching := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	if p.Ready != nil {
		watcher.Go(func() { s.watch(watched, p) })
	}
	s.restart(ctx, own, p)
	stopWatching()
	watcher.Wait()
}

// restart runs the program again and again.
func (s Supervisor) restart(ctx, own context.Context, p *supervised) {
	var b backoff
	for ctx.Err() == nil {
		s.Say("%s starts", p.Name)
		started := time.Now()
		err := p.Run(own)
		if ctx.Err() != nil {
			s.Say("%s has stopped", p.Name)
			return
		}
		if p.Once && err == nil {
			s.Say("%s is done", p.Name)
			close(p.ready)
			return
		}
		delay := b.next(time.Since(started))
		s.Say("%s ended (%s) and starts again in %s", p.Name, reason(err), delay)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
	}
}

func reason(err error) string {
	if err == nil {
		return "without an error"
	}
	return err.Error()
}

// watch asks whether a program is ready until it is.
func (s Supervisor) watch(ctx context.Context, p *supervised) {
	started := time.Now()
	for p.Ready(ctx) != nil {
		select {
		case <-time.After(readyInterval):
		case <-ctx.Done():
			return
		}
	}
	s.Say("%s is ready after %s", p.Name, time.Since(started).Round(100*time.Millisecond))
	close(p.ready)
}

// backoff counts ends of a program that follow each other.
type backoff struct{ ends int }

// next is the delay before the next start of a program that has run for a time.
func (b *backoff) next(ran time.Duration) time.Duration {
	if ran >= healthyAfter {
		b.ends = 0
	}
	delay := min(firstDelay<<min(b.ends, 10), maxDelay)
	b.ends++
	return delay
}
