// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func life(t *testing.T, h Harness) {
	s := newSubject(t, h)
	first := s.ready()
	assert.NotEmpty(t, first.ID)
	assert.NotEmpty(t, first.URL)
	assert.NotEmpty(t, first.Version)
	assert.Nil(t, first.Problem)
	assert.True(t, first.Started)
	assert.Zero(t, first.Failures)
	access := s.access()
	s.use()
	require.NoError(t, h.Remember(t.Context(), access, first.ID))

	s.stop()
	stopped := s.await(provision.StateStopped)
	assert.Equal(t, first.ID, stopped.ID)
	assert.False(t, stopped.Started)
	assert.Equal(t, access, s.access(), "credentials can be read while the cluster is stopped")
	require.Error(t, h.Use(t.Context(), access), "a stopped cluster does not answer")

	again := s.ready()
	assert.Equal(t, first.ID, again.ID)
	assert.Equal(t, first.URL, again.URL)
	assert.Equal(t, access, s.access())
	require.NoError(t, h.Use(t.Context(), access), "the first kubeconfig still works")
	mark, err := h.Recall(t.Context(), access)
	require.NoError(t, err)
	assert.Equal(t, first.ID, mark, "data written before the stop is still there")
	s.remove(s.ref)
}

func unknown(t *testing.T, h Harness) {
	s := newSubject(t, h)
	assert.Equal(t, provision.Observation{State: provision.StateAbsent}, s.observe())
	s.stop()
	require.NoError(t, s.runtime.Delete(t.Context(), s.ref))
	assert.Equal(t, provision.StateAbsent, s.observe().State)
	_, err := s.runtime.Access(t.Context(), s.ref)
	require.Error(t, err)
	refs, err := s.runtime.List(t.Context())
	require.NoError(t, err)
	assert.NotContains(t, refs, s.ref, "asking about a cluster does not make it")
}

func idempotent(t *testing.T, h Harness) {
	s := newSubject(t, h)
	s.start()
	s.start()
	first := s.await(provision.StateReady)
	access := s.access()
	s.start()
	again := s.await(provision.StateReady)
	assert.Equal(t, first.Since, again.Since, "starting a ready cluster does not disturb it")
	assert.Equal(t, first.ID, again.ID)
	assert.Equal(t, access, s.access())
	s.stop()
	s.stop()
	s.await(provision.StateStopped)
	s.stop()
	assert.Equal(t, provision.StateStopped, s.observe().State)
	require.NoError(t, s.runtime.Delete(t.Context(), s.ref))
	require.NoError(t, s.runtime.Delete(t.Context(), s.ref))
	s.await(provision.StateAbsent)
}

func concurrent(t *testing.T, h Harness) {
	s := newSubject(t, h)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			assert.NoError(t, s.runtime.Start(t.Context(), s.ref, provision.Spec{ClusterName: s.ref.Name}))
		})
	}
	group.Wait()
	ready := s.await(provision.StateReady)
	assert.Zero(t, ready.Failures, "those who came second did not break the first one's start")
	s.use()
}

func namesake(t *testing.T, h Harness) {
	s := newSubject(t, h)
	first := s.ready()
	other := s.ref
	other.UID = s.newRef().UID
	o, err := s.runtime.Observe(t.Context(), other)
	require.NoError(t, err)
	assert.NotEqual(t, first.ID, o.ID)
	assert.Equal(t, provision.StateAbsent, o.State)
	require.NoError(t, s.runtime.Delete(t.Context(), other))
	assert.Equal(t, first.Since, s.await(provision.StateReady).Since, "deleting the namesake leaves the cluster alone")
}

func listed(t *testing.T, h Harness) {
	s := newSubject(t, h)
	isListed := func() bool {
		refs, err := s.runtime.List(t.Context())
		require.NoError(t, err)
		return slices.Contains(refs, s.ref)
	}
	s.start()
	assert.True(t, isListed(), "starting")
	s.await(provision.StateReady)
	assert.True(t, isListed(), "ready")
	s.stop()
	s.await(provision.StateStopped)
	assert.True(t, isListed(), "stopped")
	s.restart()
	assert.True(t, isListed(), "after a restart of the operator")
	s.remove(s.ref)
	assert.False(t, isListed(), "gone")
}

func announced(t *testing.T, h Harness) {
	s := newSubject(t, h)
	awaken := func(state provision.State) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), h.Timeout)
		defer cancel()
		for s.observe().State != state {
			_, err := s.runtime.Changes().Wait(ctx)
			require.NoErrorf(t, err, "no change was announced on the way to %s", state)
		}
	}
	s.start()
	awaken(provision.StateReady)
	s.stop()
	awaken(provision.StateStopped)
	require.NoError(t, s.runtime.Delete(t.Context(), s.ref))
	awaken(provision.StateAbsent)
}

func restarts(t *testing.T, h Harness) {
	s := newSubject(t, h)
	s.start()
	s.restart()
	s.start() // the operator asks for what it wants, whatever became of the first attempt
	first := s.await(provision.StateReady)
	access := s.access()

	s.restart()
	assert.True(t, s.observe().Started, "nothing has stopped it")
	// A cluster may have ended with the operator; the observation must not say that it runs unless it does, and Start starts it again.
	if s.observe().State != provision.StateReady {
		s.start()
	}
	assert.Equal(t, first.ID, s.await(provision.StateReady).ID)
	assert.Equal(t, access, s.access())
	s.use()

	s.stop()
	s.restart()
	s.stop()
	s.await(provision.StateStopped)
	s.restart()
	assert.Equal(t, provision.StateStopped, s.observe().State, "a stopped cluster stays stopped")
	assert.False(t, s.observe().Started)
	assert.Equal(t, access, s.access())

	require.NoError(t, s.runtime.Delete(t.Context(), s.ref))
	s.restart()
	s.remove(s.ref)
}

func dies(t *testing.T, h Harness) {
	if h.Kill == nil {
		t.Skip("this test cannot kill a process of this runtime")
	}
	s := newSubject(t, h)
	first := s.ready()
	h.Kill(t, s.ref)
	failed := s.await(provision.StateFailed)
	require.NotNil(t, failed.Problem)
	assert.Equal(t, provision.ReasonProcessDied, failed.Problem.Reason)
	assert.NotEmpty(t, failed.Problem.Component)
	assert.Contains(t, failed.Problem.Message, failed.Problem.Component, "the sentence names what died")
	assert.EqualValues(t, 1, failed.Failures)
	assert.False(t, failed.Since.IsZero())
	for range 6 {
		<-time.After(50 * time.Millisecond)
		assert.Equal(t, provision.StateFailed, s.observe().State, "it is for the caller to say when to try again")
	}
	again := s.ready()
	assert.Equal(t, first.ID, again.ID)
	assert.Zero(t, again.Failures)
	assert.Nil(t, again.Problem)
}
