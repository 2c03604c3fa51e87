// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package handover_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

const uuid = "6a9cd1f2-0000-4000-8000-000000000001"

// host is one that discovery holds and that has credentials; changes make it different.
func host(change ...func(*metal3v1.BareMetalHost)) *metal3v1.BareMetalHost {
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "h", Finalizers: []string{metal3v1.DiscoveryFinalizer},
		Labels:      map[string]string{metal3v1.DiscoveredByLabel: "r"},
		Annotations: map[string]string{metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue, metal3v1.NodeAnnotation: uuid},
	}}
	h.Spec.BMC = &metal3v1.BMCDetails{Address: "redfish+https://192.0.2.1/x", CredentialsName: "secret"}
	h.Status.LastUpdated = &metav1.Time{}
	h.Status.Provisioning.ID = uuid
	for _, c := range change {
		c(h)
	}
	return h
}

func TestNext(t *testing.T) {
	type h = metal3v1.BareMetalHost
	for name, c := range map[string]struct {
		change func(*h)
		want   handover.Step
		reason string
	}{
		"credentials are there":                    {want: handover.Switch{Node: uuid, Driver: "redfish", Secret: "secret"}},
		"a host that discovery did not make":       {change: func(x *h) { x.Labels = nil }, want: handover.Leave{}},
		"a host that was handed over":              {change: func(x *h) { x.Finalizers = nil }, want: handover.Leave{}},
		"a host without status":                    {change: func(x *h) { x.Status.LastUpdated = nil }, want: handover.Leave{}},
		"a pause by a user":                        {change: func(x *h) { x.Annotations[metal3v1.PausedAnnotation] = "" }, want: handover.Leave{}},
		"a deletion":                               {change: func(x *h) { x.DeletionTimestamp = &metav1.Time{} }, want: handover.Clean{Node: uuid}},
		"a deletion before the status":             {change: func(x *h) { x.DeletionTimestamp, x.Status.Provisioning.ID = &metav1.Time{}, "" }, want: handover.Clean{Node: uuid}},
		"a deletion after the label was lost":      {change: func(x *h) { x.Labels, x.DeletionTimestamp = nil, &metav1.Time{} }, want: handover.Clean{Node: uuid}},
		"a deletion that keeps the node":           {change: func(x *h) { x.DeletionTimestamp, x.Annotations[metal3v1.KeepNodeAnnotation] = &metav1.Time{}, "true" }, want: handover.Clean{Node: uuid, Keep: true}},
		"no management controller":                 {change: func(x *h) { x.Spec.BMC = nil }, reason: metal3v1.ReasonWaitingForCredentials},
		"empty strings instead of one":             {change: func(x *h) { x.Spec.BMC = &metal3v1.BMCDetails{} }, reason: metal3v1.ReasonWaitingForCredentials},
		"an address without credentials":           {change: func(x *h) { x.Spec.BMC.CredentialsName = "" }, reason: metal3v1.ReasonWaitingForCredentials},
		"a reboot of a host without power control": {change: func(x *h) { x.Spec.BMC, x.Annotations["reboot.metal3.io/me"] = nil, `{"mode":"hard"}` }, reason: metal3v1.ReasonRebootNotPossible},
		"no approval yet":                          {change: func(x *h) { x.Labels[metal3v1.ApprovalLabel] = "pending" }, reason: metal3v1.ReasonWaitingForApproval},
		"an unknown kind of management controller": {change: func(x *h) { x.Spec.BMC.Address = "smoke://192.0.2.1" }, reason: metal3v1.ReasonBMCUnsupported},
		"an approved host with a bare address": {change: func(x *h) {
			x.Labels[metal3v1.ApprovalLabel], x.Annotations[metal3v1.ApprovedAnnotation], x.Spec.BMC.Address = "pending", "true", "192.0.2.1"
		}, want: handover.Switch{Node: uuid, Driver: "ipmi", Secret: "secret"}},
		"an address that boots virtual media": {change: func(x *h) { x.Spec.BMC.Address = "redfish-virtualmedia+http://192.0.2.1/x" },
			want: handover.Switch{Node: uuid, Driver: "redfish", Boot: []string{"redfish-virtual-media"}, Secret: "secret"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := host()
			if c.change != nil {
				c.change(x)
			}
			step := handover.Next(x)
			if w, waits := step.(handover.Wait); waits {
				assert.Equal(t, c.reason, w.Reason)
				assert.NotEmpty(t, w.Message)
				return
			}
			assert.Equal(t, c.want, step)
		})
	}
}

func TestDriver(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1": "ipmi", "ipmi://192.0.2.1": "ipmi", "libvirt://192.0.2.1": "ipmi", "redfish://h/x": "redfish", "Redfish+HTTP://h/x": "redfish",
		"redfish-virtualmedia+https://h": "redfish", "redfish-uefihttp://h": "redfish", "ilo5-redfish://h": "redfish", "ilo5-virtualmedia://h": "redfish",
		"idrac-redfish://h": "idrac", "idrac-virtualmedia+http://h": "idrac", "idrac://h": "", "http://h": "",
	} {
		got, ok := handover.Driver(address)
		assert.Equal(t, want, got, address)
		assert.Equal(t, want != "", ok, address)
	}
}

func TestANodeThatAClientMadeManageableIsHandedOver(t *testing.T) {
	for state, want := range map[string]bool{
		inventory.NodeEnroll: true, inventory.NodeManageable: true, inventory.NodeAvailable: true, "active": false, "inspect failed": false,
	} {
		w, ok := handover.Ready(inventory.Node{UUID: uuid, State: state, Driver: "redfish"}, host(), "redfish")
		assert.Equal(t, want, ok, state)
		if !want {
			assert.Contains(t, w.Message, "Bring it back in Ironic", state)
		}
	}
}

func TestOnlyAnUntouchedNodeIsHandedOverOrDeleted(t *testing.T) {
	node := inventory.Node{UUID: uuid, State: inventory.NodeEnroll, Driver: "redfish"}
	_, ok := handover.Ready(node, host(), "redfish")
	assert.True(t, ok)
	_, ok = handover.Deletable(node, host())
	assert.True(t, ok)
	own := node
	own.Name = "ns~h"
	_, ok = handover.Ready(own, host(), "redfish")
	assert.True(t, ok, "a name that is this host's does no harm")
	for name, change := range map[string]func(*inventory.Node){
		"another state": func(n *inventory.Node) { n.State = "active" },
		"another name":  func(n *inventory.Node) { n.Name = "ns~other" },
	} {
		n := node
		change(&n)
		_, ok := handover.Ready(n, host(), "redfish")
		assert.False(t, ok, name)
		_, ok = handover.Deletable(n, host())
		assert.False(t, ok, name)
	}
	for name, change := range map[string]func(*inventory.Node){
		"another node": func(n *inventory.Node) { n.UUID = "x" }, "another driver": func(n *inventory.Node) { n.Driver = "ipmi" },
	} {
		n := node
		change(&n)
		_, ok := handover.Ready(n, host(), "redfish")
		assert.False(t, ok, name)
	}
	n := node
	n.Instance = "x"
	_, ok = handover.Deletable(n, host())
	assert.False(t, ok, "an occupied node stays")
}
