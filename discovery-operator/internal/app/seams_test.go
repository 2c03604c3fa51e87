// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func TestAHostThatLostItsLabelCanBeDeleted(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	w.patch(h, `{"metadata":{"labels":{"`+metal3v1.DiscoveredByLabel+`":null}}}`)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	_, err := w.node(uuid)
	require.ErrorIs(t, err, inventory.ErrNotFound, "its node goes with it")
}

func TestAnEmptyIronicCostsNoWrites(t *testing.T) {
	w := newTestEnv(t)
	w.operate()
	d := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.ResyncInterval = &metav1.Duration{Duration: time.Hour}
	})
	w.status(d, "it was read", ready(metal3v1.ReasonDiscovering))
	version := d.ResourceVersion
	w.stays("polls write nothing", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		return d.ResourceVersion == version
	}, 4*time.Second)
}

// TestALargeReportBecomesAHost has a machine with 64 interfaces of 64 VLANs each and 128 disks, which is more than the store takes of one object.
func TestALargeReportBecomesAHost(t *testing.T) {
	w := newTestEnv(t)
	var report map[string]any
	require.NoError(t, json.Unmarshal(demo.Machine(1), &report))
	long := func(i int) string { return fmt.Sprintf("%0200d", i) }
	machine, lldp := report["inventory"].(map[string]any), map[string]any{}
	nics := []any{machine["interfaces"].([]any)[0]}
	var vlans, disks, flags []any
	for i := range 64 {
		vlans = append(vlans, map[string]any{"id": i + 1, "name": long(i)})
	}
	for i := range 63 {
		name := fmt.Sprint("eth", i)
		nics = append(nics, map[string]any{"name": name, "mac_address": fmt.Sprintf("52:54:00:aa:00:%02x", i), "vendor": long(i), "product": long(i), "pci_address": long(i),
			"ipv4_address": fmt.Sprintf("10.1.0.%d", i+1), "ipv6_address": fmt.Sprintf("2001:db8::%d", i+1)})
		lldp[name] = map[string]any{"switch_chassis_id": long(i), "switch_port_id": long(i), "switch_system_name": long(i), "switch_port_vlans": vlans}
	}
	for i := range 128 {
		disks = append(disks, map[string]any{"name": long(i), "by_path": long(i), "model": long(i), "vendor": long(i), "serial": long(i), "wwn": long(i),
			"wwn_vendor_extension": long(i), "wwn_with_extension": long(i), "hctl": long(i), "size": 1})
	}
	for i := range 512 {
		flags = append(flags, long(i))
	}
	machine["interfaces"], machine["disks"], machine["cpu"], report["parsed_lldp"] = nics, disks, map[string]any{"flags": flags}, lldp
	data, err := json.Marshal(report)
	require.NoError(t, err)
	_, err = w.rack.Enrol(data)
	require.NoError(t, err)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	assert.NotEmpty(t, h.Annotations[metal3v1.CutAnnotation])
	w.hasEvent(h, metal3v1.EventHardwareCut, "Left out")
	assert.NotEmpty(t, h.Status.HardwareDetails.NIC)
}

// shutter is an Ironic that can be shut, for hosts.
type shutter struct {
	baremetalhost.Manager
	shut *atomic.Bool
}

// Enter implements baremetalhost.Provisioner.
func (g shutter) Enter(ctx context.Context) error {
	if g.shut.Load() {
		return inventory.Failf(inventory.ProblemUnreachable, "connection refused")
	}
	return g.Manager.Enter(ctx)
}

// Node implements baremetalhost.Provisioner.
func (g shutter) Node(ctx context.Context, uuid string) (inventory.Node, error) {
	if g.shut.Load() {
		return inventory.Node{}, inventory.Failf(inventory.ProblemUnreachable, "connection refused")
	}
	return g.Manager.Node(ctx, uuid)
}

// TestAHostSaysThatIronicIsAwayAndGoesOnAfterwards gives a host its credentials while Ironic is away, and deletes another one.
func TestAHostSaysThatIronicIsAwayAndGoesOnAfterwards(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.enrol(2)
	var shut atomic.Bool
	w.operate(func(o *setup) {
		o.through = func(m baremetalhost.Manager) baremetalhost.Manager { return shutter{m, &shut} }
	})
	w.discover("all")
	used, deleted := w.host("node-00001"), w.host("node-00002")
	shut.Store(true)
	w.credentials(used, redfish, true)
	require.NoError(t, w.Delete(t.Context(), deleted))
	for _, h := range []*metal3v1.BareMetalHost{used, deleted} {
		w.handedOver(h, metal3v1.ReasonEndpointUnreachable)
		assert.NotContains(t, strings.ToLower(meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver).Message), "set spec.bmc")
	}
	assert.Contains(t, meta.FindStatusCondition(deleted.Status.Conditions, metal3v1.ConditionHandedOver).Message, metal3v1.KeepNodeAnnotation)
	shut.Store(false)
	w.released(used)
	w.gone(deleted)
}
