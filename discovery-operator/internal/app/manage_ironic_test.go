// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
	"github.com/muster-io/muster/discovery-operator/internal/redfishmock"
)

// TestALifeInARealIronic takes an unknown machine in, and manages it through a management controller that checks its credentials.
func TestALifeInARealIronic(t *testing.T) {
	i := ironictest.Start(t, "life", "IRONIC_DRIVERS=fake-hardware,ipmi,redfish")
	w := newTestEnv(t)
	direct := i.Client(t)
	bmc := redfishmock.Start(t, "admin", "right")
	uuid := i.Enrol(t, 1, 1)[0]
	w.operate(asking(i), managing)
	w.discover("all", seldom)
	h := w.host("node-00001")

	t.Run("an unknown machine is available with its hardware", func(t *testing.T) {
		w.reaches(h, metal3v1.StateAvailable)
		assert.Equal(t, uuid, h.Status.Provisioning.ID)
		assert.Equal(t, "SN00000001", h.Status.HardwareDetails.SystemVendor.SerialNumber)
		w.says(h, metal3v1.ConditionPowerControl, metal3v1.ReasonNoCredentials)
	})
	secret := w.secret(h, "wrong-password")
	w.patch(h, `{"spec":{"online":false,"bmc":{"address":"`+bmc.Address()+`","credentialsName":"node-00001-bmc"}}}`)
	t.Run("a wrong password is reported, as one clear condition", func(t *testing.T) {
		c := w.says(h, metal3v1.ConditionReady, metal3v1.ReasonBMCCredentialsRefused)
		assert.NotContains(t, c.Message, "wrong-password")
		assert.Equal(t, metal3v1.RegistrationError, h.Status.ErrorType)
		assert.Equal(t, c.Message, h.Status.ErrorMessage)
		_, refused := bmc.Asked()
		assert.Positive(t, refused, "the management controller itself has refused")
	})
	t.Run("the right one is accepted; the node is updated and not doubled", func(t *testing.T) {
		w.patch(secret, `{"stringData":{"password":"right"}}`)
		w.reaches(h, metal3v1.StateAvailable)
		assert.Empty(t, h.Status.ErrorMessage)
		nodes, err := direct.Nodes(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, nodes, 1)
		assert.Equal(t, uuid, nodes[0].UUID)
		assert.Equal(t, "redfish", nodes[0].Driver)
		assert.Equal(t, inventory.NodeManageable, nodes[0].State)
		_, err = direct.Report(t.Context(), uuid)
		require.NoError(t, err, "the inventory stays")
		accepted, _ := bmc.Asked()
		assert.Positive(t, accepted)
		assert.False(t, h.Status.PoweredOn)
	})
	t.Run("the machine is switched on and rebooted", func(t *testing.T) {
		w.patch(h, `{"spec":{"online":true}}`)
		w.is(h, "the machine is on", func() bool { return h.Status.PoweredOn && bmc.Power() == "On" })
		resets := len(bmc.Resets())
		w.patch(h, `{"metadata":{"annotations":{"reboot.metal3.io":"{\"mode\":\"hard\"}"}}}`)
		w.is(h, "the machine was off and is on again", func() bool {
			_, asked := h.Annotations[metal3v1.RebootAnnotation]
			return !asked && bmc.Power() == "On" && len(bmc.Resets()) >= resets+2
		})
	})
	t.Run("a node that a client deleted is made anew", func(t *testing.T) {
		require.Eventually(t, func() bool { return direct.DeleteNode(t.Context(), uuid) == nil }, patience, ironictest.Beat)
		w.patch(h, `{"spec":{"description":"look again"}}`)
		w.is(h, "the host has another node", func() bool {
			id := h.Status.Provisioning.ID
			return id != "" && id != uuid && h.Status.Provisioning.State == metal3v1.StateAvailable
		})
	})
	t.Run("while Ironic is down a condition says so, and afterwards all goes on", func(t *testing.T) {
		i.Down(t, false)
		w.patch(h, `{"spec":{"online":false}}`)
		w.says(h, metal3v1.ConditionReady, metal3v1.ReasonEndpointUnreachable)
		assert.Equal(t, metal3v1.StateAvailable, h.Status.Provisioning.State)
		assert.Empty(t, h.Status.ErrorMessage, "it is not the host's fault")
		i.Up(t)
		w.is(h, "the machine is off", func() bool { return !h.Status.PoweredOn && bmc.Power() == "Off" })
		w.says(h, metal3v1.ConditionReady, "Available")
	})
	t.Run("deleting the host leaves nothing in Ironic", func(t *testing.T) {
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		nodes, err := direct.Nodes(t.Context(), "")
		require.NoError(t, err)
		assert.Empty(t, nodes)
	})
}

// TestAHandOverInARealIronic hands a host over, and then does what the operator that takes over does: with the driver that the hand-over
// has set, the management controller is really asked.
func TestAHandOverInARealIronic(t *testing.T) {
	i := ironictest.Start(t, "handover", "IRONIC_DRIVERS=fake-hardware,ipmi,redfish")
	w := newTestEnv(t)
	direct := i.Client(t)
	bmc := redfishmock.Start(t, "admin", "right")
	uuid := i.Enrol(t, 1, 1)[0]
	w.operate(asking(i))
	w.discover("all", seldom)
	h := w.host("node-00001")
	w.credentials(h, bmc.Address(), true)
	w.released(h)
	node := func() hoststate.Node {
		n, err := direct.Managed(t.Context(), uuid)
		require.NoError(t, err)
		return n
	}
	n := node()
	assert.Equal(t, "redfish", n.Driver)
	assert.Equal(t, inventory.NodeEnroll, n.State)
	accepted, refused := bmc.Asked()
	assert.Zero(t, accepted+refused, "the hand-over sends no credentials anywhere")

	for _, c := range []struct {
		password string
		want     hoststate.Move
	}{{"wrong", hoststate.Refuse}, {"right", hoststate.Accept}} {
		access, err := hoststate.AccessTo(*h.Spec.BMC, "admin", c.password)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return direct.Write(t.Context(), node(), w.ns+"~node-00001", access) == nil }, patience, ironictest.Beat)
		require.Eventually(t, func() bool { return direct.SetProvision(t.Context(), uuid, "manage") == nil }, patience, ironictest.Beat)
		require.Eventually(t, func() bool { n = node(); return !n.Busy() }, patience, ironictest.Beat)
		assert.Equal(t, c.want, hoststate.Registration(n, hoststate.AskedManage), n.LastError)
	}
	_, err := direct.Report(t.Context(), uuid)
	require.NoError(t, err, "no ramdisk has to boot")
}
