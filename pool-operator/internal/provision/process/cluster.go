// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// cluster is one hosted cluster. Its methods change what is wanted and return; at most one goroutine, work, brings it
// about.
type cluster struct {
	runtime *Runtime
	ref     provision.ClusterRef
	dir     string

	mu sync.Mutex
	// plane is nil until the first start by this runtime.
	plane *controlplane.Plane
	// id identifies the data, "" until it was read.
	id string
	// state is StateReady for as long as everything runs; whether it answers is asked by observe.
	state    provision.State
	since    time.Time
	failures int32
	// before is how many failures there were when the cluster last became ready. One that dies soon again goes on counting from there.
	before  int32
	problem *provision.Problem
	// want is what work drives to: StateReady, StateStopped or StateAbsent.
	want    provision.State
	working bool
	// cancel ends the start that is under way.
	cancel context.CancelFunc
	// closed is set when the runtime has given the cluster up, forgotten when another object may stand for the cluster.
	closed, forgotten bool
}

// start makes the cluster run, whatever it does now.
func (c *cluster) start(spec provision.Spec) (problem *provision.Problem, forgotten bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forgotten {
		return nil, true
	}
	if c.closed {
		return &provision.Problem{Reason: provision.ReasonOther, Message: "the operator is ending"}, false
	}
	switch c.state {
	case provision.StateStarting, provision.StateReady, provision.StateUnreachable:
		return nil, false
	case provision.StateDeleting:
		return &provision.Problem{Reason: provision.ReasonOther, Message: "the cluster is being removed"}, false
	case provision.StateStopping:
		if err := setStarted(c.dir, true); err != nil {
			return explain(fmt.Errorf("recording the start: %w", err)), false
		}
		c.want = provision.StateReady
		return nil, false
	case provision.StateAbsent, provision.StateStopped, provision.StateFailed:
	}
	if err := c.prepare(spec); err != nil {
		problem := explain(err)
		c.fail(problem)
		return problem, false
	}
	if err := setStarted(c.dir, true); err != nil {
		problem := explain(fmt.Errorf("recording the start: %w", err))
		c.fail(problem)
		return problem, false
	}
	c.problem = nil
	c.move(provision.StateStarting)
	c.drive(provision.StateReady)
	return nil, false
}

// stop ends what runs.
func (c *cluster) stop() *provision.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if problem := c.elsewhere(); problem != nil {
		return problem
	}
	if err := setStarted(c.dir, false); err != nil {
		return explain(fmt.Errorf("recording the stop: %w", err))
	}
	switch c.state {
	case provision.StateStarting, provision.StateReady, provision.StateUnreachable:
		c.move(provision.StateStopping)
		c.drive(provision.StateStopped)
	case provision.StateStopping:
		c.want = provision.StateStopped
	case provision.StateFailed:
		// After a failure nothing runs.
		c.failures, c.problem = 0, nil
		c.move(provision.StateStopped)
	case provision.StateAbsent, provision.StateStopped, provision.StateDeleting:
	}
	return nil
}

// renew replaces the certificates of a running cluster that near their end.
func (c *cluster) renew() *provision.Problem {
	c.mu.Lock()
	plane := c.plane
	running := c.state == provision.StateReady || c.state == provision.StateUnreachable
	c.mu.Unlock()
	if plane == nil || !running {
		return nil
	}
	if err := plane.Renew(); err != nil {
		return explain(fmt.Errorf("renewing certificates: %w", err))
	}
	return nil
}

// elsewhere says that another living operator on the same root runs the cluster, as while one replaces the other. c.mu
// is held.
func (c *cluster) elsewhere() *provision.Problem {
	if c.plane != nil {
		return nil
	}
	pid, owned := controlplane.Owned(c.dir)
	if !owned || pid == os.Getpid() {
		return nil
	}
	return &provision.Problem{
		Reason: provision.ReasonNotHere, Message: fmt.Sprintf("another operator, process %d, runs the cluster in %s", pid, c.dir),
	}
}

// delete ends what runs and removes the data. The rename is the decision: later reads find no cluster.
func (c *cluster) delete() *provision.Problem {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == provision.StateAbsent {
		c.failures, c.problem = 0, nil
		c.runtime.forget(c)
		return nil
	}
	if problem := c.elsewhere(); problem != nil {
		return problem
	}
	err := os.Rename(c.dir, c.runtime.gone(c.ref))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		problem := explain(fmt.Errorf("removing the cluster: %w", err))
		c.failures++
		c.problem = problem
		c.move(provision.StateDeleting)
		return problem
	}
	if c.state != provision.StateDeleting {
		c.move(provision.StateDeleting)
	}
	c.drive(provision.StateAbsent)
	return nil
}

// prepare lays the cluster down if it is new, and takes its directory.
func (c *cluster) prepare(spec provision.Spec) error {
	programs, err := c.runtime.options.Binaries()
	if err != nil {
		return err
	}
	if spec.Nodes != nil && !c.runtime.reachedByNodes() {
		return &provision.Problem{
			Reason: provision.ReasonRefused, Message: "spec.platform.hosted.nodes is set, and nodes cannot reach hosted clusters at " + c.runtime.options.Host.String() +
				": start pool-operator with --hosted-listen-address, an address of this machine that nodes reach",
		}
	}
	if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
		if err := c.closePlane(); err != nil {
			return err
		}
		if err := c.runtime.layDown(c.ref, spec); err != nil {
			return err
		}
	}
	if c.plane != nil {
		c.plane.Reconfigure(programs, spec.Audit)
		return nil
	}
	record, err := readRecord(c.dir)
	if err != nil {
		return err
	}
	password, err := readPassword(c.dir)
	if err != nil {
		return fmt.Errorf("reading the password: %w", err)
	}
	o := c.runtime.options
	// The port of a stopped cluster stays reserved, also while this operator has not opened its directory.
	taken := c.runtime.recordedPorts()
	options := controlplane.Options{
		Dir: c.dir, Binaries: programs, Name: record.ClusterName, Host: o.Host, Ports: o.Ports, UnsafeNoFsync: o.UnsafeNoFsync,
		EncryptSecrets: true, Audit: spec.Audit,
		SkipPort: func(port int) bool { return taken[port] },
		Tokens:   []controlplane.Token{{Secret: password, User: "kube:admin", Groups: []string{"system:masters"}}},
	}
	if record.Nodes != nil {
		options.PodCIDR, options.ServiceClusterIPRange = record.Nodes.PodCIDR, record.Nodes.ServiceCIDR
	}
	c.plane, err = controlplane.Open(c.runtime.life, options)
	c.id = record.ID
	return err
}

func (c *cluster) closePlane() error {
	if c.plane == nil {
		return nil
	}
	err := c.plane.Close()
	c.plane = nil
	return err
}

// move enters a state and wakes the controller. c.mu is held.
func (c *cluster) move(state provision.State) {
	c.state, c.since = state, time.Now()
	c.runtime.changes.Add(c.ref)
}

// fail enters the state that follows a failure. c.mu is held.
func (c *cluster) fail(problem *provision.Problem) {
	c.failures++
	c.problem = problem
	state := provision.StateFailed
	if _, err := os.Stat(c.dir); errors.Is(err, os.ErrNotExist) {
		state = provision.StateAbsent
	}
	c.move(state)
}

// present reports whether there is anything to remove.
func (c *cluster) present() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state != provision.StateAbsent
}
