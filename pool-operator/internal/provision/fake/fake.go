// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fake runs hosted clusters in memory, for tests of those who use a runtime. It passes the same contract as the real ones.
package fake

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/changes"
)

// Backend is what survives an operator: the clusters. A test moves them by hand, as nature would.
type Backend struct {
	mu       sync.Mutex
	clusters map[provision.ClusterRef]*cluster
	// Now tells the time of failures; time.Now unless set before the first use.
	Now func() time.Time
	// Slow leaves clusters starting, stopping and being deleted until the test calls Finish.
	Slow bool
	// Kubeconfig is that of all clusters, where what they answer matters; else each has a text of its own.
	Kubeconfig []byte
	// runtimes are woken; only the newest is alive.
	newest *Runtime
}

type cluster struct {
	state    provision.State
	id       string
	password string
	since    time.Time
	failures int32
	problem  *provision.Problem
	refusal  *provision.Problem
	starts   int
	started  bool
	// edition of the credentials; outdated asks for the next one.
	edition  int
	outdated bool
}

// NewBackend returns a backend without clusters.
func NewBackend() *Backend {
	return &Backend{clusters: map[provision.ClusterRef]*cluster{}, Now: time.Now}
}

// Runtime implements the port of package controller/clusterdeployment.
type Runtime struct {
	backend *Backend
	changes *changes.Changes
}

// Open returns a runtime over the backend, as an operator that starts does. The one before it gets no more wake-ups.
func (w *Backend) Open() *Runtime {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.newest = &Runtime{backend: w, changes: changes.New()}
	for ref := range w.clusters {
		w.newest.changes.Add(ref)
	}
	return w.newest
}

// Finish completes what is under way for a cluster of a slow backend: starting, stopping or deleting.
func (w *Backend) Finish(ref provision.ClusterRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clusters[ref]; c != nil {
		w.finish(ref, c)
	}
}

// Outdate makes the certificates of a cluster end soon.
func (w *Backend) Outdate(ref provision.ClusterRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clusters[ref].outdated = true
}

// Fail makes a cluster fail for the given reason, as when a process of it dies.
func (w *Backend) Fail(ref provision.ClusterRef, problem provision.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clusters[ref]
	c.failures++
	c.problem = &problem
	w.move(ref, c, provision.StateFailed)
}

// Refuse makes every start of a cluster fail at once, until it is called with nil.
func (w *Backend) Refuse(ref provision.ClusterRef, problem *provision.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clusters[ref] == nil {
		w.clusters[ref] = &cluster{state: provision.StateAbsent}
	}
	w.clusters[ref].refusal = problem
}

// Set puts a cluster into a state, as when nature does something that no method has a name for.
func (w *Backend) Set(ref provision.ClusterRef, state provision.State, problem *provision.Problem) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clusters[ref].problem = problem
	w.move(ref, w.clusters[ref], state)
}

// Lose removes a cluster without notice.
func (w *Backend) Lose(ref provision.ClusterRef) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.clusters, ref)
}

// Has says whether there is anything of a cluster.
func (w *Backend) Has(ref provision.ClusterRef) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clusters[ref] != nil
}

// Starts says how often a cluster went from not running to starting.
func (w *Backend) Starts(ref provision.ClusterRef) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.clusters[ref] == nil {
		return 0
	}
	return w.clusters[ref].starts
}

// Check says whether the credentials are those of a cluster that is ready.
func (w *Backend) Check(access provision.Access) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clusters {
		if c.state == provision.StateReady && c.id != "" && strings.Contains(string(access.Kubeconfig), c.id) && access.Password == c.password {
			return nil
		}
	}
	return fmt.Errorf("no cluster answers")
}

func (w *Backend) move(ref provision.ClusterRef, c *cluster, state provision.State) {
	c.state, c.since = state, w.Now()
	if w.newest != nil {
		w.newest.changes.Add(ref)
	}
}

func (w *Backend) finish(ref provision.ClusterRef, c *cluster) {
	switch c.state {
	case provision.StateStarting:
		c.failures, c.problem = 0, nil
		w.move(ref, c, provision.StateReady)
	case provision.StateStopping:
		w.move(ref, c, provision.StateStopped)
	case provision.StateDeleting:
		delete(w.clusters, ref)
		w.newest.changes.Add(ref)
	case provision.StateAbsent, provision.StateStopped, provision.StateReady, provision.StateUnreachable, provision.StateFailed:
	}
}

// Observe implements the port.
func (r *Runtime) Observe(ctx context.Context, ref provision.ClusterRef) (provision.Observation, error) {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	c := r.backend.clusters[ref]
	if c == nil {
		return provision.Observation{State: provision.StateAbsent}, ctx.Err()
	}
	o := provision.Observation{State: c.state, ID: c.id, Since: c.since, Failures: c.failures, Problem: c.problem, Started: c.started}
	if c.id != "" {
		o.Outdated, o.AccessID = c.outdated, r.backend.access(c).ID()
		o.URL = "https://" + c.id + ".invalid:6443"
	}
	if c.state == provision.StateReady {
		o.Version = "v1.36.3"
	}
	return o, ctx.Err()
}

// Access implements the port.
func (r *Runtime) Access(_ context.Context, ref provision.ClusterRef) (provision.Access, error) {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	c := r.backend.clusters[ref]
	if c == nil || c.id == "" {
		return provision.Access{}, fmt.Errorf("there is no cluster %s", ref)
	}
	return r.backend.access(c), nil
}

func (w *Backend) access(c *cluster) provision.Access {
	if w.Kubeconfig != nil {
		return provision.Access{Kubeconfig: w.Kubeconfig, NodeManager: w.Kubeconfig, Password: c.password}
	}
	return provision.Access{Kubeconfig: fmt.Appendf(nil, "kubeconfig %d of %s", c.edition, c.id), Password: c.password}
}

// Start implements the port.
func (r *Runtime) Start(ctx context.Context, ref provision.ClusterRef, _ provision.Spec) error {
	w := r.backend
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clusters[ref]
	if c == nil {
		c = &cluster{state: provision.StateAbsent}
		w.clusters[ref] = c
	}
	if !slices.Contains([]provision.State{provision.StateAbsent, provision.StateStopped, provision.StateFailed}, c.state) {
		return ctx.Err()
	}
	if c.refusal != nil {
		c.failures++
		c.problem, c.since = c.refusal, w.Now()
		return c.refusal
	}
	if c.id == "" {
		c.id, c.password = uuid.NewString(), uuid.NewString()
	}
	c.starts++
	c.started = true
	w.move(ref, c, provision.StateStarting)
	w.finishUnlessSlow(ref, c)
	return ctx.Err()
}

// Renew implements the port.
func (r *Runtime) Renew(_ context.Context, ref provision.ClusterRef, _ provision.Spec) error {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	if c := r.backend.clusters[ref]; c != nil && c.outdated {
		c.edition, c.outdated = c.edition+1, false
	}
	return nil
}

// Stop implements the port.
func (r *Runtime) Stop(ctx context.Context, ref provision.ClusterRef) error {
	w := r.backend
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.clusters[ref]
	if c == nil || slices.Contains([]provision.State{provision.StateAbsent, provision.StateStopped, provision.StateDeleting}, c.state) {
		return ctx.Err()
	}
	c.failures, c.problem, c.started = 0, nil, false
	w.move(ref, c, provision.StateStopping)
	w.finishUnlessSlow(ref, c)
	return ctx.Err()
}

// Delete implements the port.
func (r *Runtime) Delete(ctx context.Context, ref provision.ClusterRef) error {
	w := r.backend
	w.mu.Lock()
	defer w.mu.Unlock()
	if c := w.clusters[ref]; c != nil {
		w.move(ref, c, provision.StateDeleting)
		w.finishUnlessSlow(ref, c)
	}
	return ctx.Err()
}

func (w *Backend) finishUnlessSlow(ref provision.ClusterRef, c *cluster) {
	if !w.Slow {
		w.finish(ref, c)
	}
}

// List implements the port.
func (r *Runtime) List(ctx context.Context) ([]provision.ClusterRef, error) {
	r.backend.mu.Lock()
	defer r.backend.mu.Unlock()
	refs := make([]provision.ClusterRef, 0, len(r.backend.clusters))
	for ref := range r.backend.clusters {
		refs = append(refs, ref)
	}
	return refs, ctx.Err()
}

// Changes implements the port.
func (r *Runtime) Changes() *changes.Changes { return r.changes }
