// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// modes are the two ways in which an operator deals with hosts.
var modes = map[string]func(*setup){"beside another operator": func(*setup) {}, "managing": managing}

// stranger makes a host in another namespace that looks like one that discovery made for a node.
func (w *testEnv) stranger(name, mac, node string) *metal3v1.BareMetalHost {
	w.Helper()
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.system, Name: name, Finalizers: []string{metal3v1.DiscoveryFinalizer},
		Labels:      map[string]string{metal3v1.DiscoveredByLabel: "all"},
		Annotations: map[string]string{metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue, metal3v1.NodeAnnotation: node},
	}}
	h.Spec = metal3v1.BareMetalHostSpec{Online: true, BootMACAddress: mac, AutomatedCleaningMode: "metadata"}
	require.NoError(w, w.Create(w.Context(), h))
	return h
}

// statusOf writes the status that discovery would write.
func (w *testEnv) statusOf(h *metal3v1.BareMetalHost, node string) {
	w.Helper()
	h.Status.OperationalStatus = metal3v1.OperationalStatusDiscovered
	h.Status.Provisioning.State, h.Status.Provisioning.ID = metal3v1.StateUnmanaged, node
	h.Status.LastUpdated = new(metav1.Now())
	require.NoError(w, w.Status().Update(w.Context(), h))
}

// kept waits for the event that says that the node of a deleted host stays.
func (w *testEnv) kept(h *metal3v1.BareMetalHost, note string) {
	w.Helper()
	w.hasEvent(h, metal3v1.EventNodeKept, note)
}

// TestAHostThatNamesAnothersNodeDoesNotGetIt lets a user who may only write hosts in one namespace try to have the node of a
// host in another one deleted, switched or shown.
func TestAHostThatNamesAnothersNodeDoesNotGetIt(t *testing.T) {
	t.Parallel()
	for mode, how := range modes {
		t.Run(mode, func(t *testing.T) {
			w := newTestEnv(t)
			uuid := w.enrol(1)
			w.operate(how, func(o *setup) { o.only = []string{w.ns, w.system} })
			w.discover("all")
			h := w.host("node-00001")
			reserved, err := w.reservation(demo.MAC(1, 0))
			require.NoError(t, err)
			assert.Equal(t, uuid, reserved.Annotations[metal3v1.NodeAnnotation])

			t.Run("by deleting a host that looks like discovery's", func(t *testing.T) {
				for name, mac := range map[string]string{"none": "", "free": demo.MAC(7, 0), "second": demo.MAC(1, 1), "same": demo.MAC(1, 0)} {
					s := w.stranger("deleted-"+name, mac, uuid)
					require.NoError(t, w.Delete(t.Context(), s))
					w.gone(s)
				}
				w.nodeOf(h, uuid)
			})
			t.Run("by a status of its own making and credentials", func(t *testing.T) {
				s := w.stranger("credentials", demo.MAC(1, 1), uuid)
				w.statusOf(s, uuid)
				require.NoError(t, w.Create(t.Context(), &corev1.Secret{
					ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "bmc"},
					Data:       map[string][]byte{"username": []byte("admin"), "password": []byte("stolen")},
				}))
				w.patch(s, `{"spec":{"bmc":{"address":"`+redfish+`","credentialsName":"bmc"}}}`)
				condition, reason := metal3v1.ConditionHandedOver, metal3v1.ReasonNodeNotReserved
				if mode == "managing" {
					condition, reason = metal3v1.ConditionReady, metal3v1.ReasonMachineUsedByOther
				}
				c := w.says(s, condition, reason)
				assert.Contains(t, c.Message, "is reserved for host "+w.ns+"/node-00001")
				assert.Empty(t, s.Status.HardwareDetails, "the machine is not disclosed to it")
				require.NoError(t, w.Delete(t.Context(), s))
				w.gone(s)
				w.kept(s, "is reserved for host "+w.ns+"/node-00001")
				w.nodeOf(h, uuid)
			})
			t.Run("by a resource of its own", func(t *testing.T) {
				s := w.stranger("shown", demo.MAC(1, 1), uuid)
				theirs := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) { d.Namespace = w.system })
				w.status(theirs, "the machine is known", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Known == 1 })
				require.NoError(t, w.Get(t.Context(), client.ObjectKeyFromObject(s), s))
				assert.Empty(t, s.Status.Provisioning.ID)
				assert.Empty(t, s.Status.HardwareDetails)
				require.NoError(t, w.Delete(t.Context(), theirs))
				require.NoError(t, w.Delete(t.Context(), s))
				w.gone(s)
			})
			t.Run("and the host that has it deletes it", func(t *testing.T) {
				w.nodeOf(h, uuid)
				require.NoError(t, w.Delete(t.Context(), h))
				w.gone(h)
				_, err := w.node(uuid)
				require.ErrorIs(t, err, inventory.ErrNotFound)
			})
		})
	}
}

// nodeOf checks that a node is as it was discovered, and still its host's.
func (w *testEnv) nodeOf(h *metal3v1.BareMetalHost, uuid string) {
	w.Helper()
	n, err := w.node(uuid)
	require.NoError(w, err, "the node is there")
	assert.Equal(w, "fake-hardware", n.Driver)
	assert.Empty(w, n.Name)
	l, err := w.reservation(h.Spec.BootMACAddress)
	require.NoError(w, err)
	assert.Equal(w, uuid, l.Annotations[metal3v1.NodeAnnotation])
	assert.Equal(w, h.Namespace+"/"+h.Name, l.Annotations[metal3v1.HostAnnotation])
}

// TestAReservedMACIsNotGivenANodeForAnotherHost is about a machine whose node is away for a while, and a user who registers its MAC then.
func TestAReservedMACIsNotGivenANodeForAnotherHost(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate(managing, func(o *setup) { o.only = []string{w.ns, w.system} })
	w.discover("all")
	h := w.host("node-00001")
	w.reaches(h, metal3v1.StateAvailable)
	require.NoError(t, w.rack.DeleteNode(t.Context(), uuid))
	s := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: "squatter"}}
	s.Spec = metal3v1.BareMetalHostSpec{
		Online: true, BootMACAddress: demo.MAC(1, 0), AutomatedCleaningMode: "metadata",
		BMC: &metal3v1.BMCDetails{Address: redfish, CredentialsName: "bmc"},
	}
	require.NoError(t, w.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "bmc"},
		Data:       map[string][]byte{"username": []byte("admin"), "password": []byte("any")},
	}))
	require.NoError(t, w.Create(t.Context(), s))
	c := w.says(s, metal3v1.ConditionReady, metal3v1.ReasonMachineUsedByOther)
	assert.Contains(t, c.Message, "is reserved for host "+w.ns+"/node-00001")
	next := w.enrol(1)
	w.is(h, "the machine came back to its host", func() bool { return h.Status.Provisioning.ID == next })
	require.NoError(t, w.Delete(t.Context(), s))
	w.gone(s)
	w.nodeOf(h, next)
}

// TestAReservationOfAnEarlierVersionIsCompleted takes what this version records out of the reservations.
func TestAReservationOfAnEarlierVersionIsCompleted(t *testing.T) {
	t.Parallel()
	for mode, how := range modes {
		t.Run(mode, func(t *testing.T) {
			w := newTestEnv(t)
			one, two := w.enrol(1), w.enrol(2)
			w.operate(how)
			w.discover("all")
			first, second := w.host("node-00001"), w.host("node-00002")
			for i := 1; i <= 2; i++ {
				l, err := w.reservation(demo.MAC(i, 0))
				require.NoError(t, err)
				w.patch(&l, `{"metadata":{"annotations":{"discovery.metal3.io/node":null}}}`)
			}
			require.NoError(t, w.Delete(t.Context(), second))
			w.gone(second)
			_, err := w.node(two)
			require.ErrorIs(t, err, inventory.ErrNotFound)
			_, err = w.reservation(demo.MAC(2, 0))
			require.True(t, apierrors.IsNotFound(err))
			w.credentials(first, redfish, true)
			w.eventually("the node has the driver", func() bool { n, err := w.node(one); return err == nil && n.Driver == "redfish" })
			l, err := w.reservation(demo.MAC(1, 0))
			require.NoError(t, err)
			assert.Equal(t, one, l.Annotations[metal3v1.NodeAnnotation])
			assert.Equal(t, string(first.UID), l.Annotations[metal3v1.HostUIDAnnotation])
		})
	}
}

// TestAHostWithoutReservationLosesNothingAndSaysSo is about an administrator who deletes the reservation of a host that is there.
func TestAHostWithoutReservationLosesNothingAndSaysSo(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	d := w.discover("all")
	h := w.host("node-00001")
	l, err := w.reservation(demo.MAC(1, 0))
	require.NoError(t, err)
	require.NoError(t, w.Delete(t.Context(), &l))
	w.credentials(h, redfish, true)
	w.handedOver(h, metal3v1.ReasonNodeNotReserved)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	w.kept(h, "no reservation of the boot MAC")
	w.eventually("its machine is a host again", func() bool {
		return w.Get(t.Context(), client.ObjectKeyFromObject(h), h) == nil && h.Status.Provisioning.ID == uuid
	})
	w.status(d, "one host", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.Counts.Hosts == 1 })
}
