// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

func TestTheStricterPolicyIsCarriedOut(t *testing.T) {
	for sentence, c := range map[string]struct{ infraEnv, pool, want Wipe }{
		"bound by hand, and nothing is said":    {"", "", WipeNone},
		"bound by hand, as the InfraEnv says":   {WipeAllDisks, "", WipeAllDisks},
		"the default of a MachinePool":          {"", WipeInstalledDisk, WipeInstalledDisk},
		"not less than the MachinePool says":    {WipeNone, WipeInstalledDisk, WipeInstalledDisk},
		"not less than the InfraEnv says":       {WipeInstalledDisk, WipeNone, WipeInstalledDisk},
		"all disks, as the InfraEnv says":       {WipeAllDisks, WipeInstalledDisk, WipeAllDisks},
		"all disks, as the MachinePool says":    {WipeInstalledDisk, WipeAllDisks, WipeAllDisks},
		"nothing where both say so":             {WipeNone, WipeNone, WipeNone},
		"not where the InfraEnv says nothing":   {"", WipeNone, WipeInstalledDisk},
		"all disks, and the other says nothing": {"", WipeAllDisks, WipeAllDisks},
	} {
		t.Run(sentence, func(t *testing.T) {
			assert.Equal(t, c.want, WipeOf(c.infraEnv, c.pool))
			h := &Host{ClusterID: "c", State: lifecycle.Known, HostSettings: HostSettings{Wipe: c.pool}}
			e := &InfraEnv{InfraEnvSettings: InfraEnvSettings{Wipe: c.infraEnv}}
			assert.Equal(t, WipeNone, h.WipePolicy(e), "it was not written to")
			h.Written = []hardware.DiskIdentity{{Serial: "s"}}
			assert.Equal(t, c.want, h.WipePolicy(e))
			h.Leave(h.UpdatedAt)
			assert.Empty(t, h.Wipe, "it was of the binding")
			assert.Equal(t, c.want, h.WipePolicy(e), "the release has what the binding had")
		})
	}
}

func TestWhichMachinesComeBack(t *testing.T) {
	now := time.Unix(1800000000, 0)
	for name, c := range map[string]struct {
		state   lifecycle.State
		release Release
		given   int
		moved   bool
		age     time.Duration
		want    bool
	}{
		"never released":                             {state: lifecycle.KnownUnbound},
		"its release ended":                          {state: lifecycle.KnownUnbound, release: Release{Wipe: WipeInstalledDisk, EndedAt: now}},
		"it owes nothing":                            {state: lifecycle.UnbindingPendingUserAction, release: Release{Wipe: WipeNone}},
		"its Node is there":                          {state: lifecycle.UnbindingPendingUserAction, release: Release{NodeName: "n"}, want: true},
		"its disk is to be wiped":                    {state: lifecycle.InsufficientUnbound, release: Release{Wipe: WipeInstalledDisk}, want: true},
		"it has an address of a pool":                {state: lifecycle.UnbindingPendingUserAction, given: 1, want: true},
		"it has been gone for an hour":               {state: lifecycle.UnbindingPendingUserAction, release: Release{Wipe: WipeInstalledDisk}, age: time.Hour},
		"it takes the rest along":                    {state: lifecycle.DisconnectedUnbound, given: 1, moved: true, want: true},
		"it took the rest along an hour ago":         {state: lifecycle.DisconnectedUnbound, given: 1, moved: true, age: time.Hour},
		"it took the rest along, and has no address": {state: lifecycle.DisconnectedUnbound, moved: true},
		"it restarts, and was a node":                {state: lifecycle.Reclaiming, release: Release{NodeName: "n", LeftAt: now}, age: 2 * time.Hour, want: true},
		"it restarts, was none, and owes nothing":    {state: lifecycle.Reclaiming},
		"it restarts, and is to be wiped for hours":  {state: lifecycle.ReclaimingRebooting, release: Release{Wipe: WipeAllDisks}, age: 2 * time.Hour, want: true},
	} {
		h := Host{State: c.state, Release: c.release}
		if name != "never released" {
			h.Release.StartedAt = now.Add(-c.age)
		}
		if c.moved {
			h.Release, h.ReleaseMovedAt = Release{}, now.Add(-c.age)
		}
		h.Addressing.Given = make([]NodeAddress, c.given)
		assert.Equal(t, c.want, h.Returns(now), name)
	}
}
