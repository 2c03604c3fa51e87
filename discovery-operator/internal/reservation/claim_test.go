// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package reservation_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

const (
	node        = "6a9cd1f2-0000-4000-8000-000000000001"
	boot, other = "52:54:00:00:00:01", "52:54:00:00:00:02"
)

var (
	mine, theirs = inventory.Ref{Namespace: "ns", Name: "h"}, inventory.Ref{Namespace: "elsewhere", Name: "h"}
	made         = time.Date(2026, 8, 1, 0, 0, 0, 0, time.UTC)
)

// claim is one of a host whose reservation names the node; changes make it different.
func claim(change ...func(*reservation.Claim)) reservation.Claim {
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h", UID: "1"}}
	h.Spec.BootMACAddress = "52:54:00:00:00:01"
	c := reservation.ClaimOf(h)
	c.Node = inventory.Node{UUID: node}
	c.Ports = []inventory.Port{{MAC: boot}, {MAC: other}}
	c.Reservations = map[string]reservation.Reservation{boot: {MAC: boot, Host: mine, Node: node, Made: made}}
	for _, f := range change {
		f(&c)
	}
	return c
}

// reserve gives a MAC to a host.
func reserve(mac string, host inventory.Ref, change ...func(*reservation.Reservation)) func(*reservation.Claim) {
	return func(c *reservation.Claim) {
		r := reservation.Reservation{MAC: mac, Host: host, Made: made}
		for _, f := range change {
			f(&r)
		}
		c.Reservations[mac] = r
	}
}

func naming(uuid string) func(*reservation.Reservation) {
	return func(r *reservation.Reservation) { r.Node = uuid }
}

func TestJudge(t *testing.T) {
	type c = reservation.Claim
	unreserved := func(x *c) { delete(x.Reservations, boot) }
	ignored := func(r *reservation.Reservation) { r.Ignored = true }
	later := func(r *reservation.Reservation) { r.Made = made.Add(time.Second) }
	away := func(x *c) {
		x.BMC, x.Node.BMC, x.Node.Name, x.Ports = "192.0.2.1", "192.0.2.9", "ns~h", []inventory.Port{{MAC: other}}
	}
	for name, x := range map[string]struct {
		claim reservation.Claim
		want  reservation.Right
		why   string
	}{
		"the reservation names the host and the node":                  {claim: claim(), want: reservation.Held},
		"a reservation that knows the host by its UID":                 {claim: claim(reserve(boot, mine, naming(node), func(r *reservation.Reservation) { r.UID = "1" })), want: reservation.Held},
		"the host was made anew under its name":                        {claim: claim(reserve(boot, mine, naming(node), func(r *reservation.Reservation) { r.UID = "0" })), want: reservation.Unrecorded},
		"a reservation of an earlier version":                          {claim: claim(reserve(boot, mine)), want: reservation.Unrecorded},
		"the machine came back as another node":                        {claim: claim(reserve(boot, mine, naming("gone"))), want: reservation.Unrecorded},
		"the boot MAC is not reserved":                                 {claim: claim(unreserved), want: reservation.Unreserved},
		"the boot MAC was kept away, and a user registers it":          {claim: claim(reserve(boot, theirs, ignored)), want: reservation.Unreserved},
		"a port that Ironic does not show any more":                    {claim: claim(func(x *c) { x.Ports = nil }), want: reservation.Held},
		"another host wants the other interface, and came late":        {claim: claim(reserve(other, theirs, naming(node), later)), want: reservation.Held},
		"another host has the other interface without the node":        {claim: claim(reserve(other, theirs)), want: reservation.Held},
		"the node has the host's name":                                 {claim: claim(unreserved, func(x *c) { x.Node.Name, x.Ports = "ns~h", nil }), want: reservation.Named},
		"a named node can be reserved once it has a port":              {claim: claim(unreserved, func(x *c) { x.Node.Name = "ns~h" }), want: reservation.Unreserved},
		"a named node whose reservation does not say so":               {claim: claim(reserve(boot, mine), func(x *c) { x.Node.Name = "ns~h" }), want: reservation.Unrecorded},
		"a named node of another machine":                              {claim: claim(unreserved, away), why: "another cluster may have a host of this name"},
		"a named node of another machine, and a host without boot MAC": {claim: claim(unreserved, away, func(x *c) { x.BootMAC = "" }), why: "another cluster may have a host of this name"},
		"a named node, and a host that says nothing of its machine":    {claim: claim(unreserved, away, func(x *c) { x.BootMAC, x.BMC = "", "" }), want: reservation.Named},
		"a named node behind the root of a service":                    {claim: claim(unreserved, away, func(x *c) { x.BootMAC, x.BMC, x.Node.BMC = "", "192.0.2.1/redfish/v1", "192.0.2.1" }), want: reservation.Named},
		"a named node whose management controller has moved":           {claim: claim(unreserved, away, func(x *c) { x.Ports = []inventory.Port{{MAC: boot}} }), want: reservation.Unreserved},
		"a named node whose interface was replaced":                    {claim: claim(unreserved, away, func(x *c) { x.BMC = x.Node.BMC }), want: reservation.Named},
		"a named node that is recorded":                                {claim: claim(unreserved, away, func(x *c) { x.Recorded = node }), want: reservation.Named},
		"a named node whose MAC another host has":                      {claim: claim(reserve(boot, theirs), func(x *c) { x.Node.Name = "ns~h" }), want: reservation.Named},
		"a node with the name of another host":                         {claim: claim(func(x *c) { x.Node.Name = "ns~other" }), why: "ns~other"},
		"the boot MAC is another host's":                               {claim: claim(reserve(boot, theirs, naming(node))), why: "reserved for host elsewhere/h"},
		"another interface is another host's":                          {claim: claim(unreserved, reserve(other, theirs)), why: "reserved for host elsewhere/h"},
		"another host reserved the node first":                         {claim: claim(reserve(boot, mine, naming(node), later), reserve(other, theirs, naming(node))), why: "reserved for host elsewhere/h"},
		"a node that the host only names":                              {claim: claim(reserve(boot, mine, naming("another")), func(x *c) { x.Ports = []inventory.Port{{MAC: other}} }), why: "no port with the host's boot MAC"},
		"a host without boot MAC":                                      {claim: claim(func(x *c) { x.BootMAC = "" }), why: "no spec.bootMACAddress"},
		"the reservation is of a node in another Ironic":               {claim: claim(reserve(boot, mine, naming(node), func(r *reservation.Reservation) { r.Ironic = "{}" }), func(x *c) { x.Ports = nil }), why: "no port with the host's boot MAC"},
		"the host moved to another Ironic, and its machine is in":      {claim: claim(reserve(boot, mine, naming(node), func(r *reservation.Reservation) { r.Ironic = "{}" })), want: reservation.Unrecorded},
	} {
		t.Run(name, func(t *testing.T) {
			got, why := x.claim.Judge()
			assert.Equal(t, x.want, got)
			if x.want == reservation.None {
				assert.Contains(t, why, x.why)
			} else {
				assert.Empty(t, why)
			}
		})
	}
}

func TestALeaseKeepsAReservation(t *testing.T) {
	r := reservation.Reservation{
		MAC: boot, Host: mine, UID: "1", Node: node, Ironic: `{"endpoint":"http://192.0.2.1"}`, OnDeletion: reservation.Ignore, ApprovedBy: "jane", Renewed: made,
	}
	var l coordinationv1.Lease
	l.Labels = map[string]string{metal3v1.IgnoredLabel: "true"}
	r.WriteTo(&l)
	require.Equal(t, "boot-mac-52-54-00-00-00-01", l.Name)
	assert.Equal(t, r, reservation.Of(&l))
	assert.Equal(t, boot, reservation.MAC(reservation.Name("52:54:00:00:00:01")))
	assert.Empty(t, reservation.MAC("discovery-operator"))
}
