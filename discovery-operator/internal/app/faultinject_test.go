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
	"github.com/muster-io/muster/discovery-operator/internal/hoststate/osimage"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// crashing is an Ironic as a process sees it that crashes at what it changes there.
type crashing struct {
	baremetalhost.Manager
	*faultinject.Injector
}

func (m crashing) EnrolNode(ctx context.Context, name string, a hoststate.Access) (uuid string, err error) {
	err = m.Call(func() (err error) { uuid, err = m.Manager.EnrolNode(ctx, name, a); return err })
	return uuid, err
}

func (m crashing) SetDriver(ctx context.Context, uuid, driver string, boot ...string) error {
	return m.Call(func() error { return m.Manager.SetDriver(ctx, uuid, driver, boot...) })
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

func (m crashing) Inspect(ctx context.Context, n hoststate.Node, mode metal3v1.InspectionMode, machine hoststate.Machine) error {
	return m.Call(func() error { return m.Manager.Inspect(ctx, n, mode, machine) })
}

func (m crashing) SetPower(ctx context.Context, uuid, target string) error {
	return m.Call(func() error { return m.Manager.SetPower(ctx, uuid, target) })
}

func (m crashing) Prepare(ctx context.Context, n hoststate.Node, d hoststate.Deployment) error {
	return m.Call(func() error { return m.Manager.Prepare(ctx, n, d) })
}

func (m crashing) Deploy(ctx context.Context, uuid string, config osimage.ConfigDrive) error {
	return m.Call(func() error { return m.Manager.Deploy(ctx, uuid, config) })
}

func (m crashing) SetCleaning(ctx context.Context, uuid string, clean bool) error {
	return m.Call(func() error { return m.Manager.SetCleaning(ctx, uuid, clean) })
}

func (m crashing) Vacate(ctx context.Context, uuid string) error {
	return m.Call(func() error { return m.Manager.Vacate(ctx, uuid) })
}

func (m crashing) BeginMaintenance(ctx context.Context, uuid string) error {
	return m.Call(func() error { return m.Manager.BeginMaintenance(ctx, uuid) })
}

func (m crashing) EndMaintenance(ctx context.Context, uuid string) error {
	return m.Call(func() error { return m.Manager.EndMaintenance(ctx, uuid) })
}

// TestADeathAtEveryChangeOfALife kills the operator after each change at the API server or in Ironic in the life of two hosts, in both
// modes: one gets credentials and is deleted at the end, the other is deleted at once, and a third is registered by hand. Another
// process continues. Never may a machine have two nodes or two hosts, and nothing may be left at the end.
func TestADeathAtEveryChangeOfALife(t *testing.T) {
	t.Parallel()
	for _, manage := range []bool{false, true} {
		t.Run(fmt.Sprintf("managing hosts %v", manage), func(t *testing.T) {
			diesAtEveryChange(t, func(t *testing.T, f *faultinject.Injector) { liveAndDie(t, f, manage) })
		})
	}
}

func diesAtEveryChange(t *testing.T, live func(*testing.T, *faultinject.Injector)) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many lives are not lived in a short run")
	}
	faultinject.CrashAfterEveryCall(t, live)
}

func liveAndDie(t *testing.T, f *faultinject.Injector, manage bool) {
	w := newSerialTestEnv(t)
	one, two := w.enrol(1), w.enrol(2)
	until := w.crashes(f, func() {}, func(o *setup) { o.ManageHosts = manage })
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
}
