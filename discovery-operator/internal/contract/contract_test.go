// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package contract holds what every Ironic must do for discovery, and runs it on the rack in memory and on a real Ironic.
package contract

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/fleet"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// rig is an Ironic under test.
type rig struct {
	fleet.Source
	changer
	// enrol makes machine number i report, and returns the node.
	enrol func(t *testing.T, i int) string
}

type changer interface {
	SetDriver(ctx context.Context, uuid, driver string, boot ...string) error
	DeleteNode(ctx context.Context, uuid string) error
}

func TestDemo(t *testing.T) {
	rack := demo.New()
	contract(t, rig{rack, rack, func(t *testing.T, i int) string {
		uuid, err := rack.Enrol(demo.Machine(i))
		require.NoError(t, err)
		return uuid
	}})
}

func TestIronic(t *testing.T) {
	real := ironictest.Start(t, "contract")
	client := real.Client(t)
	contract(t, rig{client, client, func(t *testing.T, i int) string { return real.Enrol(t, 1, i)[0] }})
}

func contract(t *testing.T, r rig) {
	ctx := t.Context()
	before, err := r.Nodes(ctx, "")
	require.NoError(t, err)
	marker := ""
	if len(before) > 0 {
		marker = before[len(before)-1].UUID
	}
	uuids := []string{r.enrol(t, 1), r.enrol(t, 2), r.enrol(t, 3)}

	t.Run("nodes are listed in the order of discovery, unnamed and in enroll", func(t *testing.T) {
		nodes, err := r.Nodes(ctx, marker)
		require.NoError(t, err)
		require.Len(t, nodes, 3)
		for i, n := range nodes {
			assert.Equal(t, inventory.Node{UUID: uuids[i], Driver: "fake-hardware", State: inventory.NodeEnroll}, n)
		}
	})
	t.Run("valid credentials are accepted", func(t *testing.T) {
		require.NoError(t, r.Enter(ctx))
	})
	t.Run("a list begins after its marker", func(t *testing.T) {
		nodes, err := r.Nodes(ctx, uuids[1])
		require.NoError(t, err)
		require.Len(t, nodes, 1)
		assert.Equal(t, uuids[2], nodes[0].UUID)
		nodes, err = r.Nodes(ctx, uuids[2])
		require.NoError(t, err)
		assert.Empty(t, nodes)
	})
	t.Run("each interface has a port, and the boot interface is marked", func(t *testing.T) {
		ports, err := r.PortsOf(ctx, uuids[0])
		require.NoError(t, err)
		require.Len(t, ports, 2)
		byMAC := map[string]bool{}
		for _, p := range ports {
			byMAC[p.MAC] = p.PXE
			assert.Equal(t, uuids[0], p.Node)
		}
		assert.Equal(t, map[string]bool{demo.MAC(1, 0): true, demo.MAC(1, 1): false}, byMAC)
	})
	t.Run("ports are listed after a marker, too", func(t *testing.T) {
		all, err := r.Ports(ctx, "")
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(all), 6)
		rest, err := r.Ports(ctx, all[len(all)-3].UUID)
		require.NoError(t, err)
		assert.Equal(t, all[len(all)-2:], rest)
	})
	t.Run("the report has the hardware", func(t *testing.T) { checkReport(t, r, uuids[1], 2) })
	t.Run("an unknown node is not found", func(t *testing.T) {
		const nowhere = "6a9cd1f2-0000-4000-8000-000000000000"
		for name, call := range map[string]func() error{
			"node":        func() error { _, err := r.Node(ctx, nowhere); return err },
			"report":      func() error { _, err := r.Report(ctx, nowhere); return err },
			"nodes after": func() error { _, err := r.Nodes(ctx, nowhere); return err },
			"ports after": func() error { _, err := r.Ports(ctx, nowhere); return err },
			"driver":      func() error { return r.SetDriver(ctx, nowhere, "fake-hardware") },
			"delete":      func() error { return r.DeleteNode(ctx, nowhere) },
		} {
			assert.ErrorIs(t, call(), inventory.ErrNotFound, name)
		}
	})
	t.Run("the driver is switched, and only to one that is enabled", func(t *testing.T) {
		require.NoError(t, r.SetDriver(ctx, uuids[0], "ipmi"))
		n, err := r.Node(ctx, uuids[0])
		require.NoError(t, err)
		assert.Equal(t, "ipmi", n.Driver)
		assert.Equal(t, inventory.NodeEnroll, n.State)
		require.ErrorIs(t, r.SetDriver(ctx, uuids[0], "no-such-driver"), inventory.ErrRefused)
		_, err = r.Report(ctx, uuids[0])
		require.NoError(t, err, "the inventory stays")
	})
	t.Run("a deleted node is gone with its ports, and a marker on it is refused", func(t *testing.T) {
		require.NoError(t, r.DeleteNode(ctx, uuids[2]))
		_, err := r.Node(ctx, uuids[2])
		require.ErrorIs(t, err, inventory.ErrNotFound)
		_, err = r.Nodes(ctx, uuids[2])
		require.ErrorIs(t, err, inventory.ErrNotFound)
		ports, err := r.Ports(ctx, "")
		require.NoError(t, err)
		for _, p := range ports {
			assert.NotEqual(t, uuids[2], p.Node)
		}
	})
	t.Run("a deleted machine that reports again is a new node", func(t *testing.T) {
		assert.NotEqual(t, uuids[2], r.enrol(t, 3))
	})
}

func checkReport(t *testing.T, r rig, uuid string, i int) {
	report, err := r.Report(t.Context(), uuid)
	require.NoError(t, err)
	assert.Equal(t, demo.MAC(i, 0), report.BootMAC)
	assert.Equal(t, []string{demo.MAC(i, 0), demo.MAC(i, 1)}, report.MACs)
	assert.True(t, report.AutoDiscovered)
	assert.Equal(t, "172.0.0."+strconv.Itoa(i), report.BMCAddress)
	hw := report.Hardware
	assert.Equal(t, "node-0000"+strconv.Itoa(i), hw.Hostname)
	assert.Equal(t, 64<<10, hw.RAMMebibytes)
	assert.Equal(t, metal3v1.HardwareSystemVendor{
		Manufacturer: "Example Corp", ProductName: "Server 1U", SerialNumber: "SN0000000" + strconv.Itoa(i),
	}, hw.SystemVendor)
	assert.Equal(t, 16, hw.CPU.Count)
	assert.InDelta(t, 2000, hw.CPU.ClockMegahertz, 0)
	require.Len(t, hw.NIC, 2)
	chassis, name, port := demo.Switch(i)
	assert.Equal(t, metal3v1.NIC{
		Name: "eno1", Model: "0x15b3 0x1017", MAC: demo.MAC(i, 0), PCIAddress: "0000:3b:00.0", IP: "10.0.0." + strconv.Itoa(i),
		SpeedGbps: 25, PXE: hw.NIC[0].PXE, LLDP: &metal3v1.LLDP{SwitchID: chassis, PortID: port, SwitchSystemName: name}, VLANID: 101,
	}, hw.NIC[0])
	assert.Nil(t, hw.NIC[1].LLDP, "no switch is at the other end")
	require.Len(t, hw.Storage, 2)
	assert.Equal(t, metal3v1.DiskNVME, hw.Storage[0].Type)
	assert.Equal(t, "/dev/disk/by-path/pci-0000:31:00.0-nvme-1", hw.Storage[0].Name)
}
