// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// errStopped ends a start during which a stop was asked for.
var errStopped = errors.New("the control plane was stopped while it started")

// run is one life of the processes: from a Start to the end of all of them. One that ends by itself takes the others
// with it; what to do then is the caller's decision.
type run struct {
	// stopping is closed when the end is wanted or has begun; no process is started after that.
	stopping chan struct{}
	// done is closed when every process has ended.
	done chan struct{}

	mu        sync.Mutex
	processes []*process
	// err is why the run ended, nil after a wanted end.
	err error
}

func newRun() *run {
	r := &run{stopping: make(chan struct{}), done: make(chan struct{})}
	go func() {
		<-r.stopping
		for _, p := range r.list() {
			<-p.ended
		}
		close(r.done)
	}()
	return r
}

// add starts a process and watches it.
func (r *run) add(start func() (*process, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending() {
		return errors.Join(errStopped, r.err)
	}
	p, err := start()
	if err != nil {
		return err
	}
	r.processes = append(r.processes, p)
	go func() {
		<-p.ended
		if r.end(p.died) {
			r.killAll()
		}
	}()
	return nil
}

// end begins the end, with the reason that why returns, and reports whether this call was the first to do so.
func (r *run) end(why func() error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending() {
		return false
	}
	r.err = why()
	close(r.stopping)
	return true
}

func (r *run) ending() bool {
	select {
	case <-r.stopping:
		return true
	default:
		return false
	}
}

// reason is why the run ended.
func (r *run) reason() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *run) list() []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.processes
}

// until polls a condition until it holds, a process dies, or the context ends.
func (r *run) until(ctx context.Context, interval time.Duration, holds func() bool) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-r.stopping:
			if err := r.reason(); err != nil {
				return err
			}
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
	return nil
}

// stop ends the processes gracefully: clients of etcd first, then etcd. It returns when all are gone.
func (r *run) stop(ctx context.Context) {
	if !r.end(func() error { return nil }) {
		<-r.done
		return
	}
	processes := r.list()
	for _, wave := range [][]*process{without(processes, etcdName), processes} {
		for _, p := range wave {
			_ = p.cmd.Process.Signal(unix.SIGTERM)
		}
		grace, cancel := context.WithTimeout(ctx, stopGrace)
		for _, p := range wave {
			p.waitOrKill(grace)
		}
		cancel()
	}
	<-r.done
}

// killAll ends every process at once and returns when all are gone.
func (r *run) killAll() {
	for _, p := range r.list() {
		_ = p.cmd.Process.Kill()
	}
	<-r.done
}

func without(processes []*process, name string) []*process {
	var rest []*process
	for _, p := range processes {
		if p.name != name {
			rest = append(rest, p)
		}
	}
	return rest
}
