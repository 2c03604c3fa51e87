// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

func TestTheFirstHostOfEachSituationSaysSinceWhen(t *testing.T) {
	now := func() time.Time { return time.Unix(10_000, 0) }
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	c := New(NewUpClock(now()), now, time.Minute)
	for id, h := range map[string]domain.Host{
		"free":             {State: lifecycle.KnownUnbound, StateUpdatedAt: at(1)},
		"was released":     {State: lifecycle.KnownUnbound, StateUpdatedAt: at(1), Release: domain.Release{StartedAt: at(1), EndedAt: at(2)}},
		"is written":       {State: lifecycle.InstallingInProgress, StateUpdatedAt: at(300)},
		"is written first": {State: lifecycle.InstallingInProgress, StateUpdatedAt: at(200)},
		"joins":            {State: lifecycle.AddedToExistingCluster, StateUpdatedAt: at(400), Node: domain.Node{Name: "n"}},
		"is a node":        {State: lifecycle.AddedToExistingCluster, StateUpdatedAt: at(1), Node: domain.Node{Name: "n", Seen: true}},
		"is none":          {State: lifecycle.Installed, StateUpdatedAt: at(1)},
		"is drained":       {State: lifecycle.Reclaiming, StateUpdatedAt: at(600), Release: domain.Release{StartedAt: at(500)}},
		"is not wiped":     {State: lifecycle.InsufficientUnbound, StateUpdatedAt: at(800), Release: domain.Release{StartedAt: at(700)}},
	} {
		h.HostKey = domain.HostKey{InfraEnvID: "e", HostID: id}
		c.Put(&h, 0)
	}
	assert.Equal(t, map[domain.Situation]Wait{domain.Installing: {2, at(200)}, domain.Joining: {1, at(400)}, domain.Releasing: {2, at(500)}}, c.Waits())
}
