// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

const (
	// startTimeout is for how long a start may take. It is generous: on a machine where many start at once each is
	// slow, and one that is given up begins again from nothing.
	startTimeout = 3 * time.Minute
	// stopGrace is for how long processes may take to end by themselves.
	stopGrace = 10 * time.Second
	// probeInterval is how often a starting API server is asked whether it is ready.
	probeInterval = 20 * time.Millisecond
)

// Start runs the control plane and returns when the API server is ready and controllers work. After an error nothing
// runs. It does nothing when the control plane runs already. Errors: ProcessDiedError, NotReadyError, DiskFullError, or
// the context's.
func (p *Plane) Start(ctx context.Context) error {
	p.life.Lock()
	defer p.life.Unlock()
	if p.closed {
		return errStopped
	}
	if p.Running() {
		return nil
	}
	if err := p.configuration().write(); err != nil {
		return err
	}
	if err := p.beginAnew(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	r := newRun()
	p.setCurrent(r)
	if err := p.bringUp(ctx, r); err != nil {
		r.end(func() error { return err })
		r.killAll()
		return err
	}
	return nil
}

// beginAnew removes the data of a first start that did not end well. An API server that was killed while it laid down its own first objects may refuse to
// start on them for ever, and no client could add any yet.
func (p *Plane) beginAnew() error {
	recorded, err := p.dir.readRecord()
	if err != nil || recorded.Served {
		return err
	}
	if !p.dir.hasData() {
		return p.dir.writeRecord(record{Port: p.reserved.port, Begun: true})
	}
	if !recorded.Begun {
		return nil
	}
	if err := os.RemoveAll(p.dir.etcdData()); err != nil {
		return fmt.Errorf("removing the data of a start that did not end: %w", err)
	}
	return nil
}

// bringUp starts the programs in the order of their needs. The API server is started as soon as etcd listens, before
// etcd serves: the two prepare side by side, and a refused connection would cost a second of back-off.
func (p *Plane) bringUp(ctx context.Context, r *run) error {
	if err := os.Remove(p.dir.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := p.launch(r, etcdName, p.options.Binaries.Etcd, p.configuration().etcd()); err != nil {
		return err
	}
	if err := r.until(ctx, time.Millisecond, p.etcdListens); err != nil {
		return p.notReady(err, etcdName, "etcd does not listen")
	}
	if err := p.launch(r, apiServerName, p.options.Binaries.APIServer, p.configuration().apiServer()); err != nil {
		return err
	}
	probe, err := p.newProbe()
	if err != nil {
		return err
	}
	defer probe.close()
	if err := p.untilAnswered(ctx, r, probe, "/readyz", apiServerName); err != nil {
		return err
	}
	if err := p.launch(r, controllerManagerName, p.options.Binaries.ControllerManager, p.configuration().controllerManager()); err != nil {
		return err
	}
	if err := p.launchScheduler(r); err != nil {
		return err
	}
	// The account is what makes a namespace usable, and its presence shows that controllers work.
	const account = "/api/v1/namespaces/default/serviceaccounts/default"
	if err := p.untilAnswered(ctx, r, probe, account, controllerManagerName); err != nil {
		return err
	}
	return p.recordServed()
}

// launchScheduler runs the scheduler of a control plane that takes nodes.
func (p *Plane) launchScheduler(r *run) error {
	if !p.options.takesNodes() {
		return nil
	}
	if p.options.Binaries.Scheduler == "" {
		return &MissingBinaryError{Name: schedulerName, Looked: searchPath("")}
	}
	return p.launch(r, schedulerName, p.options.Binaries.Scheduler, p.configuration().scheduler())
}

// untilAnswered asks for a path until the answer is good. The process is the one that is waited for.
func (p *Plane) untilAnswered(ctx context.Context, r *run, asked *probe, path, process string) error {
	var last error
	err := r.until(ctx, probeInterval, func() bool {
		_, last = asked.get(ctx, path)
		return last == nil
	})
	if err == nil {
		return nil
	}
	return p.notReady(err, process, fmt.Sprint(last))
}

func (p *Plane) launch(r *run, name, path string, args []string) error {
	return r.add(func() (*process, error) { return startProcess(p.dir, p.lock, name, path, args) })
}

// etcdListens reports whether etcd has made its socket; a client waits there until etcd serves.
func (p *Plane) etcdListens() bool {
	_, err := os.Stat(p.dir.socket())
	return err == nil
}

// notReady explains a wait that the deadline ended.
func (p *Plane) notReady(err error, process, last string) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &NotReadyError{Waited: startTimeout.String(), Last: last, LogTail: logTail(p.dir.log(process))}
}

// recordServed notes that clients may know the port from now on.
func (p *Plane) recordServed() error {
	recorded, err := p.dir.readRecord()
	if err != nil || recorded.Served {
		return err
	}
	return p.dir.writeRecord(record{Port: p.reserved.port, Served: true})
}

// Running reports whether processes of the control plane run; they may still be starting or stopping.
func (p *Plane) Running() bool {
	r := p.getCurrent()
	if r == nil {
		return false
	}
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// Done is closed when the control plane that was started last has ended, also by itself; Err then says
// why. Before the first Start it is nil.
func (p *Plane) Done() <-chan struct{} {
	if r := p.getCurrent(); r != nil {
		return r.done
	}
	return nil
}

// Err is why the control plane ended: nil while it runs and after Stop, else for example a ProcessDiedError.
func (p *Plane) Err() error {
	if r := p.getCurrent(); r != nil {
		return r.reason()
	}
	return nil
}

// Stop ends the processes gracefully, and forcefully when that takes too long or the context ends. Data stay, and
// Start runs the control plane again. It returns when every process is gone.
func (p *Plane) Stop(ctx context.Context) {
	p.life.Lock()
	defer p.life.Unlock()
	if r := p.getCurrent(); r != nil {
		r.stop(ctx)
	}
}

// Kill ends the processes at once, a start that is under way too. Data stay: etcd survives it.
func (p *Plane) Kill() { p.kill(false) }

// end kills as Kill does, and lets no later Start run anything.
func (p *Plane) end() { p.kill(true) }

func (p *Plane) kill(forGood bool) {
	p.killCurrent()
	// A Start that had not begun to run processes may do so until it gives the life lock back.
	p.life.Lock()
	defer p.life.Unlock()
	p.closed = p.closed || forGood
	p.killCurrent()
}

func (p *Plane) killCurrent() {
	if r := p.getCurrent(); r != nil {
		r.end(func() error { return nil })
		r.killAll()
	}
}

func (p *Plane) getCurrent() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *Plane) setCurrent(r *run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = r
}
