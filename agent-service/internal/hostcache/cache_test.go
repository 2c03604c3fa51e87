// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// A MAC finds the hosts of one InfraEnv that report it now, and the indexes are empty when the hosts are gone.
func TestHostsAreFoundByMAC(t *testing.T) {
	now := time.Now()
	c := New(NewUpClock(now), func() time.Time { return now }, time.Minute)
	put := func(infraEnv, id string, revision int64, macs ...string) {
		c.Put(&domain.Host{HostKey: domain.HostKey{InfraEnvID: infraEnv, HostID: id}, Revision: revision, Summary: hardware.Summary{MACAddresses: macs}}, 0)
	}
	found := func(infraEnv, mac string) []string {
		var ids []string
		for _, h := range c.OfMAC(infraEnv, mac) {
			ids = append(ids, h.HostID)
		}
		return ids
	}
	put("rack", "one", 1, "52:54:00:00:00:0a", "52:54:00:00:00:0b")
	put("rack", "two", 1, "52:54:00:00:00:0b")
	put("other", "three", 1, "52:54:00:00:00:0a")
	assert.Equal(t, []string{"one"}, found("rack", "52:54:00:00:00:0A"), "in any case of letters")
	assert.ElementsMatch(t, []string{"one", "two"}, found("rack", "52:54:00:00:00:0b"))
	assert.Empty(t, found("rack", ""))
	put("rack", "one", 2, "52:54:00:00:00:0c")
	assert.Empty(t, found("rack", "52:54:00:00:00:0a"), "it reports another interface now")
	assert.Equal(t, []string{"two"}, found("rack", "52:54:00:00:00:0b"))
	for _, key := range c.Keys() {
		c.Remove(key)
	}
	assert.Empty(t, c.byMAC)
	assert.Empty(t, c.byCluster)
}

// A drain is no part of the time that a machine has for its way back.
func TestTheTimeInAStateBeginsAgainWhenTheHostLeftItsCluster(t *testing.T) {
	now := time.Now()
	up := NewUpClock(now)
	c := New(up, func() time.Time { return now }, time.Minute)
	h := domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "1"}, State: lifecycle.Reclaiming, Release: domain.Release{NodeName: "n", StartedAt: now}}
	age := func(pass time.Duration) time.Duration {
		t.Helper()
		now = now.Add(pass)
		h.Revision++
		changed := h
		_, age := c.Put(&changed, 0).Age(up.Advance(now, pass, false))
		return age.InState
	}
	age(0)
	assert.Equal(t, 3*time.Hour, age(3*time.Hour))
	h.Release.Note = "still there"
	assert.Equal(t, 4*time.Hour, age(time.Hour))
	h.Release.LeftAt = now
	age(0)
	assert.Equal(t, time.Hour, age(time.Hour))
}

func TestAHostThatWasReadBeforeItWasDeletedIsReadAgain(t *testing.T) {
	now := time.Now()
	c := New(NewUpClock(now), func() time.Time { return now }, time.Minute)
	h := &domain.Host{HostKey: domain.HostKey{InfraEnvID: "rack", HostID: "one"}, Revision: 1}
	before := c.Epoch()
	c.Put(h, before)
	c.Remove(h.HostKey)
	assert.True(t, c.Put(h, before).Stale())
	assert.Nil(t, c.Known(h.HostKey))
	assert.False(t, c.Put(h, c.Epoch()).Stale())
}
