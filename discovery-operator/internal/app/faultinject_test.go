// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/controller/baremetalhost"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// crashing is an Ironic as a process sees it that crashes.
type crashing struct {
	baremetalhost.Manager
	*faultinject.Injector
}

func (m crashing) Node(ctx context.Context, uuid string) (n inventory.Node, err error) {
	err = m.Call(func() (err error) { n, err = m.Manager.Node(ctx, uuid); return err })
	return n, err
}

func (m crashing) Managed(ctx context.Context, uuid string) (n hoststate.Node, err error) {
	err = m.Call(func() (err error) { n, err = m.Manager.Managed(ctx, uuid); return err })
	return n, err
}

func (m crashing) Examined(ctx context.Context, uuid string) (n hoststate.Node, err error) {
	err = m.Call(func() (err error) { n, err = m.Manager.Examined(ctx, uuid); return err })
	return n, err
}

func (m crashing) Find(ctx context.Context, names, macs []string) (uuid string, err error) {
	err = m.Call(func() (err error) { uuid, err = m.Manager.Find(ctx, names, macs); return err })
	return uuid, err
}

func (m crashing) Report(ctx context.Context, uuid string) (r *inventory.Report, err error) {
	err = m.Call(func() (err error) { r, err = m.Manager.Report(ctx, uuid); return err })
	return r, err
}

func (m crashing) EnrolNode(ctx context.Context, name string, a hoststate.Access) (uuid string, err error) {
	err = m.Call(func() (err error) { uuid, err = m.Manager.EnrolNode(ctx, name, a); return err })
	return uuid, err
}

func (m crashing) SetDriver(ctx context.Context, uuid, driver string) error {
	return m.Call(func() error { return m.Manager.SetDriver(ctx, uuid, driver) })
}

func (m crashing) DeleteNode(ctx context.Context, uuid string) error {
	return m.Call(func() error { return m.Manager.DeleteNode(ctx, uuid) })
}

func (m crashing) EnsurePort(ctx context.Context, uuid, mac string) error {
	return m.Call(func() error { return m.Manager.EnsurePort(ctx, uuid, mac) })
}

func (m crashing) Write(ctx context.Context, n hoststate.Node, name string, a hoststate.Access) error {
	return m.Call(func() error { return m.Manager.Write(ctx, n, name, a) })
}

func (m crashing) SetProvision(ctx context.Context, uuid, target string) error {
	return m.Call(func() error { return m.Manager.SetProvision(ctx, uuid, target) })
}

func (m crashing) Inspect(ctx context.Context, n hoststate.Node, mode metal3v1.InspectionMode) error {
	return m.Call(func() error { return m.Manager.Inspect(ctx, n, mode) })
}

func (m crashing) SetPower(ctx context.Context, uuid, target string) error {
	return m.Call(func() error { return m.Manager.SetPower(ctx, uuid, target) })
}

func (m crashing) Prepare(ctx context.Context, n hoststate.Node, d hoststate.Deployment) error {
	return m.Call(func() error { return m.Manager.Prepare(ctx, n, d) })
}

func (m crashing) Deploy(ctx context.Context, uuid string, config hoststate.ConfigDrive) error {
	return m.Call(func() error { return m.Manager.Deploy(ctx, uuid, config) })
}

func (m crashing) SetCleaning(ctx context.Context, uuid string, clean bool) error {
	return m.Call(func() error { return m.Manager.SetCleaning(ctx, uuid, clean) })
}

func (m crashing) Vacate(ctx context.Context, uuid string) error {
	return m.Call(func() error { return m.Manager.Vacate(ctx, uuid) })
}

func (m crashing) EndMaintenance(ctx context.Context, uuid string) error {
	return m.Call(func() error { return m.Manager.EndMaintenance(ctx, uuid) })
}

// lifetimes are more acts than a life has in each mode: 19 and about 91, of which some only ask again for what takes time.
var lifetimes = map[string]int{"managing": 96, "beside another operator": 22}

// TestADeathAtEveryActOfALife kills the operator at each write to the API server and each call of Ironic in the life of two hosts, in both
// modes: one gets credentials and is deleted at the end, the other is deleted at once, and a third is registered by hand. Another
// process continues. Never may a machine have two nodes or two hosts, and nothing may be left at the end.
func TestADeathAtEveryActOfALife(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many lives are not lived in a short run")
	}
	for mode, acts := range lifetimes {
		for n := 1; n <= acts; n++ {
			t.Run(fmt.Sprintf("%s, act %d", mode, n), func(t *testing.T) { liveAndDie(t, mode == "managing", n) })
		}
	}
}

func liveAndDie(t *testing.T, manage bool, n int) {
	w := newTestEnv(t)
	one, two := w.enrol(1), w.enrol(2)
	f, until := w.crashes(n, func() {}, func(o *setup) { o.ManageHosts = manage })
	w.discover("all")
	first, second := &metal3v1.BareMetalHost{}, &metal3v1.BareMetalHost{}
	first.Namespace, first.Name, second.Namespace, second.Name = w.ns, "node-00001", w.ns, "node-00002"
	see := func(h *metal3v1.BareMetalHost) bool {
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil
	}
	until("both machines are hosts", func() bool { return see(first) && first.HasStatus() && see(second) && second.HasStatus() })
	require.NoError(t, w.Delete(t.Context(), second))
	w.credentials(first, redfish, true)
	if !manage {
		until("the host is handed over", func() bool {
			_, paused := first.Annotations[metal3v1.PausedAnnotation]
			return see(first) && !paused && len(first.Finalizers) == 0
		})
		node, err := w.node(one)
		require.NoError(t, err)
		assert.Equal(t, "redfish", node.Driver)
		until("the second host is gone", func() bool { return !see(second) })
		_, err = w.node(two)
		require.ErrorIs(t, err, inventory.ErrNotFound)
		require.Len(t, w.hosts(), 1)
		t.Logf("acts: %d", f.Calls())
		return
	}
	until("the machine is on", func() bool { return see(first) && first.Status.PoweredOn })
	nodes, err := w.rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(nodes), 2, "no node is doubled")
	assert.Equal(t, one, first.Status.Provisioning.ID)
	third := w.register("by-hand", 3, func(h *metal3v1.BareMetalHost) {
		h.Spec.InspectionMode = metal3v1.InspectionDisabled
		h.Spec.BMC = &metal3v1.BMCDetails{Address: redfish, CredentialsName: "by-hand-bmc"}
		w.secret(h, "right")
	})
	until("the host by hand is on", func() bool { return see(third) && third.Status.PoweredOn })
	nodes, err = w.rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.LessOrEqual(t, len(nodes), 3, "no node is doubled")
	require.NoError(t, w.Delete(t.Context(), first))
	require.NoError(t, w.Delete(t.Context(), third))
	until("all hosts are gone", func() bool { return len(w.hosts()) == 0 })
	nodes, err = w.rack.Nodes(t.Context(), "")
	require.NoError(t, err)
	assert.Empty(t, nodes, "no node is left")
	until("no reservation is left", func() bool {
		var leases coordinationv1.LeaseList
		return w.List(t.Context(), &leases, client.InNamespace(w.system)) == nil && len(leases.Items) == 0
	})
	require.True(t, apierrors.IsNotFound(w.Get(t.Context(), client.ObjectKeyFromObject(first), first)))
	t.Logf("acts: %d", f.Calls())
}
