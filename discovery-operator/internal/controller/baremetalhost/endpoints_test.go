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
	e, err := s.enter(at("a"), key(0), now)
	require.NoError(t, err)
	require.True(t, e.probe, "it is unknown whether it answers")
	s.leave(e, nil, now)
}

func TestAnIronicTakesSoManyHostsAndWakesTheOthers(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	var inside []*admission
	for i := range atOnce {
		e, err := s.enter(at("a"), key(i), now)
		require.NoError(t, err)
		require.False(t, e.probe)
		inside = append(inside, e)
	}
	_, err := s.enter(at("a"), key(100), now)
	require.ErrorIs(t, err, hoststate.ErrLater)
	e, err := s.enter(at("b"), key(101), now)
	require.NoError(t, err, "another Ironic is not concerned")
	assert.True(t, e.probe)
	s.leave(inside[0], nil, now)
	assert.Equal(t, "100", (<-s.wake).Object.Name)
	_, err = s.enter(at("a"), key(100), now)
	require.NoError(t, err)
}

// visits are hosts that ask Ironics, of which all answer slowly.
type visits struct {
	*endpoints
	*testing.T
	now    time.Time
	inside []*admission
	// done are the hosts that had their turn.
	done map[string]bool
}

func newVisits(t *testing.T) *visits {
	return &visits{endpoints: newEndpoints(), T: t, now: time.Now(), done: map[string]bool{}}
}

// begin lets a host ask an Ironic, and reports whether it has its turn.
func (v *visits) begin(a inventory.Address, host types.NamespacedName) bool {
	e, err := v.enter(a, host, v.now)
	if err == nil && e.probe {
		v.leave(e, nil, v.now)
		e, err = v.enter(a, host, v.now)
	}
	if err != nil {
		require.ErrorIs(v, err, hoststate.ErrLater)
		return false
	}
	v.inside, v.done[host.Name] = append(v.inside, e), true
	return true
}

// end ends one visit after the other, and begins those of hosts that are woken.
func (v *visits) end(of func(i int) (inventory.Address, types.NamespacedName)) {
	for len(v.inside) > 0 {
		v.leave(v.inside[0], nil, v.now)
		v.inside = v.inside[1:]
		for range len(v.wake) {
			i, err := strconv.Atoi((<-v.wake).Object.Name)
			require.NoError(v, err)
			v.begin(of(i))
		}
	}
}

// TestAnIronicLeavesWorkersToOthersWhateverCredentialsItIsAskedWith has an Ironic that answers slowly, and whose hosts have more sets of credentials between them than
// there are workers for.
func TestAnIronicLeavesWorkersToOthersWhateverCredentialsItIsAskedWith(t *testing.T) {
	v := newVisits(t)
	const sessions = 2 * workers / atOnce
	slow := func(i int) (inventory.Address, types.NamespacedName) {
		return at("slow", fmt.Sprint(i%sessions)), key(i)
	}
	const hosts = sessions * atOnce
	for i := range hosts {
		v.begin(slow(i))
	}
	assert.Len(t, v.inside, atOnce, "the other workers are for other Ironics")
	e, err := v.enter(at("fast"), key(hosts), v.now)
	require.NoError(t, err)
	v.leave(e, nil, v.now)
	v.end(slow)
	assert.Len(t, v.done, hosts, "each host has its turn")
}

// TestANamespaceLeavesWorkersToOthersWhateverIronicsItsHostsName has users of two namespaces whose hosts name one slow Ironic each.
func TestANamespaceLeavesWorkersToOthersWhateverIronicsItsHostsName(t *testing.T) {
	v := newVisits(t)
	const hosts = 4 * workers
	of := func(i int) (inventory.Address, types.NamespacedName) {
		host := key(i)
		host.Namespace = fmt.Sprint("ns", i%2)
		return at(fmt.Sprint("slow", i)), host
	}
	for i := 0; i < hosts; i += 2 {
		v.begin(of(i))
	}
	assert.Len(t, v.inside, workers/2)
	for i := 1; i < hosts; i += 2 {
		v.begin(of(i))
	}
	assert.Len(t, v.inside, workers*3/4)
	assert.True(t, v.begin(at("fast"), types.NamespacedName{Namespace: "other", Name: fmt.Sprint(hosts)}), "a worker is free for a third one")
	v.end(of)
	assert.Len(t, v.done, hosts+1, "each host has its turn")
}

func TestOneHostAsksAnIronicThatIsAway(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	e, err := s.enter(at("a"), key(1), now)
	require.NoError(t, err)
	require.True(t, e.probe)
	_, err = s.enter(at("a"), key(2), now)
	require.ErrorIs(t, err, hoststate.ErrLater, "one asks")
	down := inventory.Failf(inventory.ProblemTimedOut, "no answer")
	s.leave(e, down, now)
	assert.Equal(t, "2", (<-s.wake).Object.Name, "it can say now why it waits")
	_, err = s.enter(at("a"), key(2), now)
	require.ErrorIs(t, err, down)
	for range 10 {
		e, err = s.enter(at("a"), key(1), now.Add(maxAway))
		require.NoError(t, err)
		require.True(t, e.probe)
		now = now.Add(maxAway)
		s.leave(e, down, now)
	}
	e, err = s.enter(at("a"), key(1), now.Add(maxAway))
	require.NoError(t, err, "it is asked again after %s at most", maxAway)
	s.leave(e, nil, now)
	assert.Equal(t, "2", (<-s.wake).Object.Name, "it is back")
}

func TestAnErrorOfOneNodeClosesNoIronic(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	for _, err := range []error{inventory.ErrNotFound, inventory.ErrBusy, inventory.ErrFull, inventory.ErrRefused, errors.New("the API server is away")} {
		e, entered := s.enter(at("a"), key(1), now)
		require.NoError(t, entered)
		require.False(t, e.probe, "after %v", err)
		s.leave(e, err, now)
	}
}

// TestARequestThatIsForbiddenPausesNoOtherHost has an Ironic whose policy forbids one request, and then one that takes the credentials no more.
func TestARequestThatIsForbiddenPausesNoOtherHost(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	var inside []*admission
	for i := range atOnce {
		e, err := s.enter(at("a"), key(i), now)
		require.NoError(t, err)
		inside = append(inside, e)
	}
	_, err := s.enter(at("a"), key(100), now)
	require.ErrorIs(t, err, hoststate.ErrLater)
	forbidden := inventory.Failf(inventory.ProblemCredentials, "HTTP 403")
	s.leave(inside[0], forbidden, now)
	require.Equal(t, "100", (<-s.wake).Object.Name)
	e, err := s.enter(at("a"), key(100), now)
	require.NoError(t, err, "it is asked at once")
	require.True(t, e.probe)
	_, err = s.enter(at("a"), key(101), now)
	require.ErrorIs(t, err, hoststate.ErrLater, "others say nothing meanwhile")
	s.leave(e, nil, now)
	assert.Equal(t, "101", (<-s.wake).Object.Name)
	e, err = s.enter(at("a"), key(101), now)
	require.NoError(t, err)
	require.False(t, e.probe)

	s.leave(inside[1], forbidden, now)
	s.leave(e, forbidden, now)
	e, err = s.enter(at("a"), key(100), now)
	require.NoError(t, err)
	require.True(t, e.probe)
	s.leave(e, forbidden, now)
	s.leave(inside[2], forbidden, now)
	_, err = s.enter(at("a"), key(101), now)
	require.ErrorIs(t, err, forbidden, "the credentials are refused to all")
}

// TestIronicsThatNoHostNamesAreForgotten has a host whose user names one Ironic after another, each of which is away, and one that is deleted while it waits.
func TestIronicsThatNoHostNamesAreForgotten(t *testing.T) {
	s, now := newEndpoints(), time.Now()
	answering(t, s, now)
	down := inventory.Failf(inventory.ProblemTimedOut, "no answer")
	for i := range 100 {
		ironic := fmt.Sprint("away-", i)
		e, err := s.enter(at(ironic), key(1), now)
		require.NoError(t, err)
		s.leave(e, down, now)
		_, err = s.enter(at(ironic), key(2), now)
		require.ErrorIs(t, err, down)
	}
	assert.Len(t, s.parked, 1, "a host waits for the Ironic that it names now")
	s.forget(key(2))
	assert.Empty(t, s.parked)
	for _, e := range s.list {
		assert.Empty(t, e.parked)
	}
	busy, err := s.enter(at("busy"), key(3), now)
	require.NoError(t, err)
	now = now.Add(idleTime)
	again, err := s.enter(at("a"), key(0), now)
	require.NoError(t, err)
	assert.True(t, again.probe, "it is unknown again whether it answers")
	assert.Len(t, s.list, 2, "the one that is asked now, and the one that is visited for a long time")
	s.leave(busy, nil, now)
	s.leave(again, nil, now)
	assert.Empty(t, s.ironics)
	assert.Empty(t, s.namespaces)
}
