// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// TestANameReachesEverySituation names machines so that they come into each situation that a user may see.
func TestANameReachesEverySituation(t *testing.T) {
	now := time.Now()
	for name, want := range map[string]string{
		"plain":               metal3v1.WaitingForCreation,
		demo.MarkNoPorts:      metal3v1.WaitingForPorts,
		demo.MarkNoInventory:  metal3v1.WaitingForInventory,
		demo.MarkFailed:       metal3v1.RefusedDiscoveryFailed,
		demo.MarkInUse:        metal3v1.RefusedNodeInUse,
		"vm":                  metal3v1.WaitingForName,
		"a-" + demo.MarkBusy:  metal3v1.WaitingForCreation,
		"a-" + demo.MarkStuck: metal3v1.WaitingForCreation,
	} {
		t.Run(name, func(t *testing.T) {
			rack := demo.New()
			uuid, err := rack.Enrol(demo.Machine(1, func(m map[string]any) { m["hostname"] = name }))
			require.NoError(t, err)
			node, err := rack.Node(t.Context(), uuid)
			require.NoError(t, err)
			ports, err := rack.PortsOf(t.Context(), uuid)
			require.NoError(t, err)
			report, _ := rack.Report(t.Context(), uuid)
			r := inventory.Resource{
				Ref: inventory.Ref{Namespace: "ns", Name: "r"}, Template: metal3v1.ResourceNameTemplate{HardwareDetails: metal3v1.DetailHostname},
			}
			m := &inventory.Machine{Node: node, Ports: ports, Report: report, FirstSeen: now, PortsRead: now, Seen: now}
			if report == nil {
				m.Missing, m.MissingLast = now, now
			}
			d := inventory.Plan(inventory.Snapshot{
				Now: now, Self: r.Ref, Resources: []inventory.Resource{r}, Tokens: 1, Machines: []*inventory.Machine{m},
			})
			require.Len(t, d.Verdicts, 1)
			assert.Equal(t, want, d.Verdicts[0].Reason)
		})
	}
}

func TestABusyNodeIsFreeAtTheThirdTry(t *testing.T) {
	rack := demo.New()
	uuid, err := rack.Enrol(demo.Machine(1, func(m map[string]any) { m["hostname"] = demo.MarkBusy }))
	require.NoError(t, err)
	for range 2 {
		require.ErrorIs(t, rack.SetDriver(t.Context(), uuid, "redfish"), inventory.ErrBusy)
	}
	require.NoError(t, rack.SetDriver(t.Context(), uuid, "redfish"))
}

func TestAMachineReportsOnce(t *testing.T) {
	rack := demo.New()
	_, err := rack.Enrol(demo.Machine(1))
	require.NoError(t, err)
	_, err = rack.Enrol(demo.Machine(1))
	require.ErrorContains(t, err, demo.MAC(1, 0))
}

func TestARackPowersUpMachineByMachine(t *testing.T) {
	rack := demo.New()
	require.NoError(t, rack.PowerUp(t.Context(), 1, 3, time.Millisecond))
	nodes, err := rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.Len(t, nodes, 3)
	ended, end := context.WithCancel(t.Context())
	end()
	require.NoError(t, rack.PowerUp(ended, 4, 100, time.Hour))
}
