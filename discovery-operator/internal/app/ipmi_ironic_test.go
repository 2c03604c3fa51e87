// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/machinetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// TestMachinesBehindIPMI discovers, approves and manages three machines through the driver ipmi of a real Ironic. The machines are emulated, and real
// management controllers start and stop them; what their ramdisks would report is posted by ironictest.
func TestMachinesBehindIPMI(t *testing.T) {
	machinetest.NeedCores(t, "MUSTER_IPMI_TESTS")
	const count = 3
	i := ironictest.Start(t, "ipmi", "IRONIC_DRIVERS=fake-hardware,ipmi")
	w := newTestEnv(t)
	direct := i.Client(t)
	var machines [count]*ironictest.Machine
	for n := range machines {
		machines[n] = ironictest.StartMachine(t)
	}
	i.Enrol(t, count, 1)
	w.operate(asking(i), managing)
	w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Approval = metal3v1.ApprovalManual })
	var hosts [count]*metal3v1.BareMetalHost
	for n, m := range machines {
		hosts[n] = w.machine(n + 1)
		w.secret(hosts[n], "right")
		w.patch(hosts[n], `{"spec":{"bmc":{"address":"`+m.Address+`","credentialsName":"`+hosts[n].Name+`-bmc"}}}`)
		w.says(hosts[n], metal3v1.ConditionReady, metal3v1.ReasonWaitingForApproval)
	}
	for n, m := range machines {
		assert.False(t, m.On(), "no machine is switched before it is approved")
		w.patch(hosts[n], `{"metadata":{"annotations":{"discovery.metal3.io/approved":"true"}}}`)
	}
	for n, m := range machines {
		w.is(hosts[n], "the machine is on and its system has booted", func() bool {
			return hosts[n].Status.PoweredOn && hosts[n].Status.Provisioning.State == metal3v1.StateAvailable && m.On() && m.Boots() == 1
		})
		assert.Empty(t, hosts[n].Status.ErrorMessage)
	}
	nodes, err := direct.Nodes(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, nodes, count)
	for _, n := range nodes {
		assert.Equal(t, "ipmi", n.Driver)
	}
	t.Run("a reboot boots the system again", func(t *testing.T) {
		w.patch(hosts[0], `{"metadata":{"annotations":{"reboot.metal3.io":"{\"mode\":\"hard\"}"}}}`)
		w.is(hosts[0], "it is on again", func() bool {
			_, asked := hosts[0].Annotations[metal3v1.RebootAnnotation]
			return !asked && hosts[0].Status.PoweredOn && machines[0].On() && machines[0].Boots() == 2
		})
		assert.Equal(t, 1, machines[1].Boots(), "and no other")
	})
	t.Run("a host that is offline has its machine off", func(t *testing.T) {
		w.patch(hosts[1], `{"spec":{"online":false}}`)
		w.is(hosts[1], "the machine is off", func() bool { return !hosts[1].Status.PoweredOn && !machines[1].On() })
		assert.True(t, machines[0].On())
	})
	t.Run("a host that is deleted has its machine off, and leaves nothing in Ironic", func(t *testing.T) {
		for _, h := range hosts[:2] { // the one is on, the other one is off
			require.NoError(t, w.Delete(t.Context(), h))
		}
		for n, h := range hosts[:2] {
			w.gone(h)
			assert.False(t, machines[n].On())
		}
		left, err := direct.Nodes(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, left, 1)
		assert.Equal(t, hosts[2].Status.Provisioning.ID, left[0].UUID)
		assert.True(t, machines[2].On())
		assert.Equal(t, 1, machines[2].Boots(), "and is left alone")
	})
}
