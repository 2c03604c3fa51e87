// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func key(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: "ns", Name: fmt.Sprint(i)}
}

// at is an Ironic, asked with one set of credentials.
func at(ironic string, session ...string) inventory.Address {
	return inventory.Address{Ironic: ironic, View: ironic, Session: fmt.Sprint(session)}
}

// answering is an Ironic that answered.
func answering(t *testing.T, s *endpoints, now time.Time) {
	t.Helper()
	e, probe, err := s.enter(at("a"), key(0), now)
	require.NoError(t, err)
	require.True(t, probe, "it is unknown whether it answers")
	s.leave(e, probe, nil, now)
}

func TestAnIronicTakesSoManyHostsAndWakesTheOthers(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	var inside []*endpoint
	for i := range atOnce {
		e, probe, err := s.enter(at("a"), key(i), now)
		require.NoError(t, err)
		require.False(t, probe)
		inside = append(inside, e)
	}
	_, _, err := s.enter(at("a"), key(100), now)
	require.ErrorIs(t, err, hoststate.ErrLater)
	_, probe, err := s.enter(at("b"), key(101), now)
	require.NoError(t, err, "another Ironic is not concerned")
	assert.True(t, probe)
	s.leave(inside[0], false, nil, now)
	assert.Equal(t, "100", (<-s.wake).Object.Name)
	_, _, err = s.enter(at("a"), key(100), now)
	require.NoError(t, err)
}

// TestAnIronicLeavesWorkersToOthersWhateverCredentialsItIsAskedWith has an Ironic that answers slowly, and whose hosts have more sets of credentials between them than
// there are workers for.
func TestAnIronicLeavesWorkersToOthersWhateverCredentialsItIsAskedWith(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	const sessions = 2 * workers / atOnce
	var inside []*endpoint
	visited := map[int]bool{}
	visit := func(i int) {
		slow := at("slow", fmt.Sprint(i%sessions))
		e, probe, err := s.enter(slow, key(i), now)
		if probe {
			s.leave(e, probe, nil, now)
			e, _, err = s.enter(slow, key(i), now)
		}
		if err != nil {
			require.ErrorIs(t, err, hoststate.ErrLater)
			return
		}
		inside, visited[i] = append(inside, e), true
	}
	const hosts = sessions * atOnce
	for i := range hosts {
		visit(i)
	}
	assert.Len(t, inside, atOnce, "the other workers are for other Ironics")
	e, probe, err := s.enter(at("fast"), key(hosts), now)
	require.NoError(t, err)
	s.leave(e, probe, nil, now)
	for range hosts {
		if len(inside) == 0 {
			break
		}
		s.leave(inside[0], false, nil, now)
		inside = inside[1:]
		for range len(s.wake) {
			i, err := strconv.Atoi((<-s.wake).Object.Name)
			require.NoError(t, err)
			visit(i)
		}
		require.LessOrEqual(t, len(inside), atOnce)
	}
	assert.Len(t, visited, hosts, "each host has its turn")
}

func TestOneHostAsksAnIronicThatIsAway(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	e, probe, err := s.enter(at("a"), key(1), now)
	require.NoError(t, err)
	require.True(t, probe)
	_, _, err = s.enter(at("a"), key(2), now)
	require.ErrorIs(t, err, hoststate.ErrLater, "one asks")
	down := inventory.Failf(inventory.ProblemTimedOut, "no answer")
	s.leave(e, probe, down, now)
	assert.Equal(t, "2", (<-s.wake).Object.Name, "it can say now why it waits")
	_, _, err = s.enter(at("a"), key(2), now)
	require.ErrorIs(t, err, down)
	for range 10 {
		e, probe, err = s.enter(at("a"), key(1), now.Add(maxAway))
		require.NoError(t, err)
		require.True(t, probe)
		now = now.Add(maxAway)
		s.leave(e, probe, down, now)
	}
	e, probe, err = s.enter(at("a"), key(1), now.Add(maxAway))
	require.NoError(t, err, "it is asked again after %s at most", maxAway)
	s.leave(e, probe, nil, now)
	assert.Equal(t, "2", (<-s.wake).Object.Name, "it is back")
}

func TestAnErrorOfOneNodeClosesNoIronic(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	for _, err := range []error{inventory.ErrNotFound, inventory.ErrBusy, inventory.ErrRefused, errors.New("the API server is away")} {
		e, probe, entered := s.enter(at("a"), key(1), now)
		require.NoError(t, entered)
		require.False(t, probe, "after %v", err)
		s.leave(e, probe, err, now)
	}
}

// TestIronicsThatNoHostNamesAreForgotten has a host whose user names one Ironic after another, each of which is away, and one that is deleted while it waits.
func TestIronicsThatNoHostNamesAreForgotten(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	down := inventory.Failf(inventory.ProblemTimedOut, "no answer")
	for i := range 100 {
		ironic := fmt.Sprint("away-", i)
		e, probe, err := s.enter(at(ironic), key(1), now)
		require.NoError(t, err)
		s.leave(e, probe, down, now)
		_, _, err = s.enter(at(ironic), key(2), now)
		require.ErrorIs(t, err, down)
	}
	assert.Len(t, s.parked, 1, "a host waits for the Ironic that it names now")
	s.forget(key(2))
	assert.Empty(t, s.parked)
	for _, e := range s.list {
		assert.Empty(t, e.parked)
	}
	busy, probe, err := s.enter(at("busy"), key(3), now)
	require.NoError(t, err)
	now = now.Add(idleTime)
	_, again, err := s.enter(at("a"), key(0), now)
	require.NoError(t, err)
	assert.True(t, again, "it is unknown again whether it answers")
	assert.Len(t, s.list, 2, "the one that is asked now, and the one that is visited for a long time")
	s.leave(busy, probe, nil, now)
}
