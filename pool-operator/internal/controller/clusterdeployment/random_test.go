// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// TestAnythingMayHappen lets users, nature and crashes do what they like to one cluster in a random order, and checks after every step what must
// always be true, and at the end that the cluster is what its spec asks for and leaves nothing.
func TestAnythingMayHappen(t *testing.T) {
	seeds, err := strconv.ParseUint(cmp.Or(os.Getenv("MUSTER_SEEDS"), "25"), 10, 64)
	require.NoError(t, err, "MUSTER_SEEDS is how many random histories run")
	for seed := range seeds {
		s := newShell(t)
		story := &story{shell: s, random: rand.New(rand.NewPCG(seed, 1))}
		s.backend.Slow = true
		for range 30 {
			story.step()
			require.Empty(t, story.broken(), "seed %d, after %v", seed, story.events)
		}
		story.rest()
		require.Empty(t, story.broken(), "seed %d, after %v", seed, story.events)
		want := s.cluster().Spec.PowerState
		if want == "" {
			want = hivev1.PowerStateRunning
		}
		require.Equal(t, want, s.cluster().Status.PowerState, "seed %d, after %v", seed, story.events)
		require.True(t, s.cluster().Spec.Installed)
		s.requireOwnSecrets()
		s.delete()
		story.rest()
		require.True(t, s.gone(), "seed %d, after %v", seed, story.events)
		require.False(t, s.backend.Has(s.ref()), "seed %d, after %v", seed, story.events)
	}
}

// story is one random run.
type story struct {
	*shell
	random *rand.Rand
	events []string
	id     string
}

// step lets one thing happen, and then the controller make one pass, which may be cut short.
func (s *story) step() {
	happenings := []struct {
		name string
		do   func()
	}{
		{"nothing", func() {}},
		{"time", func() { s.clock.now = s.clock.now.Add(time.Duration(s.random.IntN(120)) * time.Second) }},
		{"finish", func() { s.backend.Finish(s.ref()) }},
		{"finish", func() { s.backend.Finish(s.ref()) }},
		{"sleep", func() { s.edit(asleep) }},
		{"wake", func() { s.edit(func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = hivev1.PowerStateRunning }) }},
		{"restart", s.restart},
		{"crash", func() { s.writes.failAt, s.writes.after = len(s.writes.log)+1+s.random.IntN(3), s.random.IntN(2) == 0 }},
		{"death", s.die},
		{"refuse", func() {
			if s.backend.Has(s.ref()) {
				s.backend.Refuse(s.ref(), &provision.Problem{Reason: provision.ReasonPortsTaken, Message: "the port is taken"})
			}
		}},
		{"allow", s.allow},
		{"lose a secret", func() {
			if secrets := s.secrets(); len(secrets) > 0 {
				require.NoError(s, s.client.Delete(s.Context(), &secrets[s.random.IntN(len(secrets))]))
			}
		}},
	}
	happening := happenings[s.random.IntN(len(happenings))]
	s.events = append(s.events, happening.name)
	happening.do()
	if _, err := s.pass(); err != nil {
		require.ErrorIs(s, err, errCrash)
		s.restart()
	}
}

// die kills the cluster if it runs.
func (s *story) die() {
	o, err := s.backend.Open().Observe(s.Context(), s.ref())
	require.NoError(s, err)
	if o.State == provision.StateReady || o.State == provision.StateStarting {
		s.backend.Fail(s.ref(), provision.Problem{Reason: provision.ReasonProcessDied, Component: "etcd", Message: "etcd ended"})
	}
	s.restart()
}

func (s *story) allow() {
	if s.backend.Has(s.ref()) {
		s.backend.Refuse(s.ref(), nil)
	}
}

// broken names what is not as it must always be.
func (s *story) broken() string {
	cluster := s.cluster()
	o, err := s.backend.Open().Observe(s.Context(), s.ref())
	require.NoError(s, err)
	s.restart()
	switch metadata := cluster.Spec.ClusterMetadata; {
	case o.ID != "" && len(cluster.Finalizers) == 0:
		return "there is data and no finalizer"
	case cluster.Spec.Installed && (metadata == nil || metadata.ClusterID != o.ID):
		return "the recorded cluster is another one"
	case s.id != "" && o.ID != s.id:
		return "the data was made anew"
	case cluster.Spec.Installed && cluster.Status.InstalledTimestamp == nil && len(cluster.Status.Conditions) > 0 && cluster.Status.PowerState == hivev1.PowerStateRunning:
		return "it runs and does not say since when it is installed"
	}
	s.id = o.ID
	return ""
}

// rest lets everything calm down.
func (s *story) rest() {
	s.writes.failAt = 0
	s.allow()
	for range 12 {
		s.backend.Finish(s.ref())
		if _, err := s.pass(); err != nil {
			require.ErrorIs(s, err, errCrash)
			s.restart()
		}
		s.clock.now = s.clock.now.Add(2 * time.Minute)
	}
}
