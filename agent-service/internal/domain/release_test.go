// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"testing"

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
