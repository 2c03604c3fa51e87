// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contract holds the cases that every runtime of hosted clusters passes: in memory, as processes, as pods.
package contract

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// Harness is how the cases get at one kind of runtime. All functions but Kill are required.
type Harness struct {
	// Open starts a runtime as an operator does that starts, over whatever earlier ones of this harness left.
	Open func(t *testing.T) clusterdeployment.Runtime
	// Crash ends a runtime as kill -9 ends an operator: without notice and without clean-up.
	Crash func(t *testing.T, runtime clusterdeployment.Runtime)
	// Kill makes something that runs for a ready cluster die. nil where nothing can.
	Kill func(t *testing.T, ref provision.ClusterRef)
	// Namespace returns a namespace in which a cluster may be made.
	Namespace func(t *testing.T) string
	// Use does with the credentials what a user does, reading and writing; nil unless it works.
	Use func(ctx context.Context, access provision.Access) error
	// Remember writes a mark into a cluster and Recall reads it back: data that must survive.
	Remember func(ctx context.Context, access provision.Access, mark string) error
	Recall   func(ctx context.Context, access provision.Access) (string, error)
	// Leftovers names whatever is left of a cluster: files, processes, objects.
	Leftovers func(ctx context.Context, ref provision.ClusterRef) ([]string, error)
	// Timeout is how long a cluster may take to start, stop or go.
	Timeout time.Duration
	// Parallel says that cases may run side by side.
	Parallel bool
}

// Run runs all cases, each with clusters of its own.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"a cluster starts, is used, stops with its data, starts again with the same credentials, and goes without a trace", life},
		{"a cluster that was never started is absent, and stopping and deleting it has no effect", unknown},
		{"asking for the same again changes nothing", idempotent},
		{"two who start a cluster at once start one", concurrent},
		{"a namesake of another identity is another cluster", namesake},
		{"every cluster is listed, whatever its state, until it is gone", listed},
		{"changes are announced", announced},
		{"an operator that starts finds each cluster as it was left", restarts},
		{"a cluster of which something dies is said to have failed, why, and starts again", dies},
	} {
		t.Run(c.name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			c.run(t, h)
		})
	}
}

// subject is one cluster of one case.
type subject struct {
	*testing.T
	h       Harness
	runtime clusterdeployment.Runtime
	ref     provision.ClusterRef
}

func newSubject(t *testing.T, h Harness) *subject {
	t.Helper()
	s := &subject{T: t, h: h, runtime: h.Open(t)}
	s.ref = s.newRef()
	t.Cleanup(func() { s.remove(s.ref) })
	return s
}

func (s *subject) newRef() provision.ClusterRef {
	id := uuid.NewString()
	return provision.ClusterRef{Namespace: s.h.Namespace(s.T), Name: "c-" + id[:8], UID: types.UID(id)}
}

func (s *subject) start() {
	s.Helper()
	require.NoError(s, s.runtime.Start(s.Context(), s.ref, provision.Spec{ClusterName: s.ref.Name, BaseDomain: "example.org"}))
}

func (s *subject) stop() {
	s.Helper()
	require.NoError(s, s.runtime.Stop(s.Context(), s.ref))
}

func (s *subject) observe() provision.Observation {
	s.Helper()
	o, err := s.runtime.Observe(s.Context(), s.ref)
	require.NoError(s, err)
	return o
}

// await observes until the cluster is in the state, and returns the observation.
func (s *subject) await(want provision.State) provision.Observation {
	s.Helper()
	var last provision.Observation
	require.Eventuallyf(s, func() bool {
		o, err := s.runtime.Observe(s.Context(), s.ref)
		last = o
		return err == nil && o.State == want
	}, s.h.Timeout, 20*time.Millisecond, "waiting for %s", want)
	return last
}

func (s *subject) ready() provision.Observation {
	s.Helper()
	s.start()
	return s.await(provision.StateReady)
}

func (s *subject) access() provision.Access {
	s.Helper()
	access, err := s.runtime.Access(s.Context(), s.ref)
	require.NoError(s, err)
	return access
}

func (s *subject) use() {
	s.Helper()
	require.NoError(s, s.h.Use(s.Context(), s.access()))
}

// restart is what happens when an operator is killed and another one starts.
func (s *subject) restart() {
	s.Helper()
	s.h.Crash(s.T, s.runtime)
	s.runtime = s.h.Open(s.T)
}

// remove leaves nothing of a cluster, whatever the case did.
func (s *subject) remove(ref provision.ClusterRef) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), s.h.Timeout)
	defer cancel()
	require.NoError(s, s.runtime.Delete(ctx, ref))
	require.Eventually(s, func() bool {
		o, err := s.runtime.Observe(ctx, ref)
		return err == nil && o.State == provision.StateAbsent
	}, s.h.Timeout, 20*time.Millisecond, "waiting for a deleted cluster to be gone")
	left, err := s.h.Leftovers(ctx, ref)
	require.NoError(s, err)
	require.Empty(s, left, "a deleted cluster leaves nothing")
}
