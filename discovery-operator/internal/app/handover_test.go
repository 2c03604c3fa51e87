// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// credentials gives a host a management controller, and makes the Secret if wanted.
func (w *testEnv) credentials(h *metal3v1.BareMetalHost, address string, secret bool) {
	w.Helper()
	if secret {
		w.secret(h, "secret")
	}
	w.patch(h, `{"spec":{"bmc":{"address":"`+address+`","credentialsName":"`+h.Name+`-bmc"}}}`)
}

// secret makes the Secret of a host.
func (w *testEnv) secret(h *metal3v1.BareMetalHost, password string) *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: h.Name + "-bmc"},
		Data:       map[string][]byte{"username": []byte("admin"), "password": []byte(password)},
	}
	require.NoError(w, w.Create(w.Context(), s))
	return s
}

func (w *testEnv) patch(o client.Object, merge string) {
	w.Helper()
	require.NoError(w, w.Patch(w.Context(), o, client.RawPatch(types.MergePatchType, []byte(merge))))
}

func (w *testEnv) handedOver(h *metal3v1.BareMetalHost, reason string) {
	w.Helper()
	w.eventually("condition HandedOver has reason "+reason, func() bool {
		err := w.Get(w.Context(), client.ObjectKeyFromObject(h), h)
		c := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
		return err == nil && c != nil && c.Reason == reason
	})
}

func (w *testEnv) released(h *metal3v1.BareMetalHost) {
	w.Helper()
	w.eventually("the host is released", func() bool {
		err := w.Get(w.Context(), client.ObjectKeyFromObject(h), h)
		_, paused := h.Annotations[metal3v1.PausedAnnotation]
		return err == nil && !paused && len(h.Finalizers) == 0
	})
}

func (w *testEnv) node(uuid string) (inventory.Node, error) { return w.rack.Node(w.Context(), uuid) }

func (w *testEnv) gone(o client.Object) {
	w.Helper()
	w.eventually("the object is gone", func() bool {
		return apierrors.IsNotFound(w.Get(w.Context(), client.ObjectKeyFromObject(o), o))
	})
}

func (w *testEnv) reservation(mac string) (coordinationv1.Lease, error) {
	var l coordinationv1.Lease
	err := w.Get(w.Context(), types.NamespacedName{Namespace: w.system, Name: reservation.Name(mac)}, &l)
	return l, err
}

func TestCredentialsSwitchTheDriverAndReleaseTheHost(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	w.credentials(h, "redfish+https://192.0.2.1/redfish/v1/Systems/1", true)
	w.released(h)
	n, err := w.node(uuid)
	require.NoError(t, err)
	assert.Equal(t, "redfish", n.Driver)
	assert.Empty(t, n.Name, "the operator that takes over names it")
	assert.Equal(t, uuid, h.Status.Provisioning.ID, "it knows the node by this")
	w.handedOver(h, metal3v1.ReasonHandedOver)

	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	_, err = w.node(uuid)
	assert.NoError(t, err, "after the hand-over the node is the other operator's")
}

// TestAHandOverIsNotTakenForARegistrationByHand keeps the mirror of the node as it was before the driver was switched.
func TestAHandOverIsNotTakenForARegistrationByHand(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	d := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.ResyncInterval = &metav1.Duration{Duration: time.Hour}
	})
	h := w.host("node-00001")
	w.credentials(h, redfish, true)
	w.released(h)
	w.enrol(2)
	w.stays("no machine is refused", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		return d.Status.Counts.Refused == 0
	}, 8*time.Second)
	w.host("node-00002")
}

func TestAHandOverWaitsVisibly(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1, hostname("node-stuck"))
	w.enrol(2, hostname("node-two"))
	w.enrol(3, hostname("node-busy"))
	w.operate()
	w.discover("all")
	t.Run("an unknown scheme", func(t *testing.T) {
		h := w.host("node-two")
		w.patch(h, `{"spec":{"bmc":{"address":"carrier-pigeon://192.0.2.2","credentialsName":"x"}}}`)
		w.handedOver(h, metal3v1.ReasonBMCUnsupported)
	})
	t.Run("a missing Secret", func(t *testing.T) {
		h := w.host("node-two")
		w.patch(h, `{"spec":{"bmc":{"address":"redfish://192.0.2.2"}}}`)
		w.handedOver(h, metal3v1.ReasonCredentialsNotFound)
	})
	t.Run("a driver that Ironic refuses", func(t *testing.T) {
		h := w.host("node-stuck")
		w.credentials(h, "redfish://192.0.2.1/", true)
		w.handedOver(h, metal3v1.ReasonDriverRefused)
		assert.Equal(t, metal3v1.DiscoveryPausedValue, h.Annotations[metal3v1.PausedAnnotation], "the host stays held")
	})
	t.Run("a node that Ironic works on is tried again", func(t *testing.T) {
		h := w.host("node-busy")
		w.credentials(h, "192.0.2.3", true)
		w.released(h)
	})
}

func hostname(s string) func(map[string]any) {
	return func(m map[string]any) { m["hostname"] = s }
}

func TestAPauseByAUserStays(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	w.patch(h, `{"metadata":{"annotations":{"baremetalhost.metal3.io/paused":"maintenance"}}}`)
	w.credentials(h, "redfish://192.0.2.1/", true)
	w.stays("the pause is theirs", func() bool {
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(h), h))
		return h.Annotations[metal3v1.PausedAnnotation] == "maintenance"
	}, 2*time.Second)
}

func TestManualApprovalHoldsTheHost(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	w.discover("reviewed", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Approval = metal3v1.ApprovalManual })
	h := w.host("node-00001")
	assert.Equal(t, "pending", h.Labels[metal3v1.ApprovalLabel])
	w.credentials(h, "redfish://192.0.2.1/", true)
	w.handedOver(h, metal3v1.ReasonWaitingForApproval)
	w.patch(h, `{"metadata":{"annotations":{"discovery.metal3.io/approved":"true"}}}`)
	w.released(h)
	assert.Equal(t, "approved", h.Labels[metal3v1.ApprovalLabel])
}

func TestDeletingAHostDeletesItsNode(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	d := w.discover("all")
	h := w.host("node-00001")
	first := h.UID
	_, err := w.reservation(demo.MAC(1, 0))
	require.NoError(t, err)
	require.NoError(t, w.Delete(t.Context(), h))
	w.eventually("the node is gone", func() bool { _, err := w.node(uuid); return err != nil })
	w.eventually("the reservation is given back", func() bool { _, err := w.reservation(demo.MAC(1, 0)); return apierrors.IsNotFound(err) })
	w.gone(h)
	w.status(d, "no host is left", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts.Hosts == 0 && s.Counts.Nodes == 0
	})
	again := w.enrol(1)
	assert.NotEqual(t, uuid, again)
	assert.NotEqual(t, first, w.host("node-00001").UID, "a machine that reports again is a host again")
}

func TestADeletedHostCanBeKeptFromComingBack(t *testing.T) {
	w := newTestEnv(t)
	w.operate()
	d := w.discover("once", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Rediscover = metal3v1.RediscoverIgnore })
	w.enrol(1)
	h := w.host("node-00001")
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	w.enrol(1)
	w.status(d, "the machine is ignored", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Ignored == 1 })
	assert.Empty(t, w.hosts())
	l, err := w.reservation(demo.MAC(1, 0))
	require.NoError(t, err)
	require.NoError(t, w.Delete(t.Context(), &l))
	w.host("node-00001")
}

func TestANodeCanBeKept(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	d := w.discover("all")
	h := w.host("node-00001")
	deletesWithoutNode(w, d, h, uuid)
}

// deletesWithoutNode deletes a host whose user keeps its node.
func deletesWithoutNode(w *testEnv, d *metal3v1.BareMetalHostDiscovery, h *metal3v1.BareMetalHost, uuid string) {
	w.Helper()
	w.patch(h, `{"metadata":{"annotations":{"discovery.metal3.io/keep-node":"true"}}}`)
	require.NoError(w, w.Delete(w.Context(), h))
	w.gone(h)
	_, err := w.node(uuid)
	require.NoError(w, err)
	w.status(d, "the machine is ignored", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Ignored == 1 })
}

func TestAMachineThatComesBackKeepsItsHost(t *testing.T) {
	w := newTestEnv(t)
	old := w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	require.NoError(t, w.rack.DeleteNode(t.Context(), old))
	next := w.enrol(1)
	w.eventually("the host knows the new node", func() bool {
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Status.Provisioning.ID == next
	})
	assert.Len(t, w.hosts(), 1)
	l, err := w.reservation(demo.MAC(1, 0))
	require.NoError(t, err)
	assert.Equal(t, next, l.Annotations[metal3v1.NodeAnnotation])
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	_, err = w.node(next)
	require.ErrorIs(t, err, inventory.ErrNotFound)
}

func TestTwoReplicasAndThreeResourcesMakeOneHostPerMachine(t *testing.T) {
	w := newTestEnv(t)
	const machines = 40
	for range 2 {
		w.operate()
	}
	for _, name := range []string{"a", "b", "c"} {
		w.discover(name, func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.ResourceNameTemplate.Prefix = name + "-" })
	}
	for i := 1; i <= machines; i++ {
		w.enrol(i)
	}
	w.eventually("every machine has a host", func() bool { return len(w.hosts()) >= machines })
	owners := map[string]string{}
	for _, h := range w.hosts() {
		mac := strings.ToLower(h.Spec.BootMACAddress)
		assert.Empty(t, owners[mac], "two hosts for %s", mac)
		owners[mac] = h.Name
	}
	assert.Len(t, owners, machines)
}

func TestARackAtOnceIsOneEvent(t *testing.T) {
	w := newTestEnv(t)
	const machines = 40
	for i := 1; i <= machines; i++ {
		w.enrol(i)
	}
	w.operate()
	d := w.discover("all")
	w.status(d, "all are hosts", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Hosts == machines })
	var list eventsv1.EventList
	w.eventually("an event names the rack", func() bool {
		return w.List(t.Context(), &list, client.InNamespace(w.ns)) == nil && slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Reason == metal3v1.EventHostsDiscovered && e.Regarding.Name == d.Name
		})
	})
	assert.Less(t, len(list.Items), machines)
}

func TestARegisteredHostWins(t *testing.T) {
	w := newTestEnv(t)
	mine := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "by-hand"}}
	mine.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: strings.ToUpper(demo.MAC(1, 0)), AutomatedCleaningMode: "metadata"}
	require.NoError(t, w.Create(t.Context(), mine))
	w.operate()
	w.enrol(1)
	w.enrol(2, func(m map[string]any) { m["system_vendor"].(map[string]any)["serial_number"] = "SN-shared" })
	d := w.discover("all")
	w.host("node-00002")
	w.enrol(3, func(m map[string]any) { m["system_vendor"].(map[string]any)["serial_number"] = "SN-shared" })
	w.status(d, "one is known, one made, one refused", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts.Known == 2 && s.Counts.Hosts == 1 && s.Counts.Refused == 1 && ready(metal3v1.ReasonMachinesRefused)(s)
	})
	assert.Equal(t, metal3v1.RefusedDuplicateSerial, d.Status.Machines[0].Reason)
	assert.Contains(t, d.Status.Machines[0].Message, "node-00002")
	require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(mine), mine))
	assert.Empty(t, mine.Annotations, "a host that discovery did not make is not touched")
}

func TestNothingIsWrittenWhileNothingChanges(t *testing.T) {
	w := newTestEnv(t)
	for i := 1; i <= 5; i++ {
		w.enrol(i)
	}
	w.operate()
	d := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.ResyncInterval = &metav1.Duration{Duration: time.Hour}
	})
	w.status(d, "five hosts", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts.Hosts == 5 && s.Counts.Waiting == 0
	})
	versions := func() map[string]string {
		out := map[string]string{}
		for _, h := range w.hosts() {
			out[h.Name] = h.ResourceVersion
		}
		require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(d), d))
		out["d"] = d.ResourceVersion
		return out
	}
	before := versions()
	w.stays("no object is written", func() bool { return assert.ObjectsAreEqual(before, versions()) }, 4*time.Second)
}
