// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// silent is an endpoint that accepts connections and never answers.
func silent(t testing.TB) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return "http://" + l.Addr().String() + "/v1/"
}

// held makes a host that discovery made of a machine of an Ironic, before the operator starts.
func (w *testEnv) held(i int, ref *metal3v1.IronicReference) *metal3v1.BareMetalHost {
	w.Helper()
	endpoint, err := json.Marshal(ref)
	require.NoError(w, err)
	h := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
		Namespace: w.ns, Name: fmt.Sprintf("held-%02d", i), Labels: map[string]string{metal3v1.DiscoveredByLabel: "silent"},
		Annotations: map[string]string{
			metal3v1.PausedAnnotation: metal3v1.DiscoveryPausedValue, metal3v1.IronicAnnotation: string(endpoint),
			metal3v1.NodeAnnotation: fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
		},
		Finalizers: []string{metal3v1.DiscoveryFinalizer},
	}}
	h.Spec.BootMACAddress = fmt.Sprintf("02:fd:00:00:00:%02x", i)
	require.NoError(w, w.Create(w.Context(), h))
	h.Status.OperationalStatus = metal3v1.OperationalStatusDiscovered
	h.Status.Provisioning = metal3v1.ProvisionStatus{State: metal3v1.StateUnmanaged, ID: h.Annotations[metal3v1.NodeAnnotation], Image: &metal3v1.Image{}}
	h.Status.LastUpdated = new(metav1.Now())
	require.NoError(w, w.Status().Update(w.Context(), h))
	w.credentials(h, "ipmi://192.0.2.9", true)
	return h
}

// silentHosts is how many hosts have their nodes in an Ironic that never answers: more than the operator works on at the same time, which are 64.
const silentHosts = 72

// besideASilentOne has two Ironics, of which one accepts connections and never answers, and no request to it ends while the test runs. It returns the hosts of
// that one, the second half of which is being deleted. Of the other one, the resource selects the named machines: the others are those of other tests.
func besideASilentOne(w *testEnv, i *ironictest.Ironic, machines ...string) (stuck []*metal3v1.BareMetalHost, discover func() *metal3v1.BareMetalHostDiscovery) {
	w.Helper()
	never := &metal3v1.IronicReference{Endpoint: silent(w)}
	answers := &metal3v1.IronicReference{Endpoint: i.Endpoint, InspectorEndpoint: i.Inspector}
	for n := range silentHosts {
		stuck = append(stuck, w.held(n, never))
	}
	for _, h := range stuck[silentHosts/2:] {
		require.NoError(w, w.Delete(w.Context(), h))
	}
	return stuck, func() *metal3v1.BareMetalHostDiscovery {
		w.discover("silent", func(d *metal3v1.BareMetalHostDiscovery) { d.Spec.Ironic = never })
		return w.discover("answers", func(d *metal3v1.BareMetalHostDiscovery) {
			d.Spec.Ironic, d.Spec.Selector = answers, "hardware.hostname in ['"+strings.Join(machines, "', '")+"']"
		})
	}
}

// forever makes requests to Ironic end when Ironic answers, and not before.
func forever(o *setup) { o.ironicTimeout = time.Hour }

// TestAnIronicThatNeverAnswersStopsNoOther has two operators, each with hosts in an Ironic that never answers, and machines in one that does. They share the latter, which
// costs seconds of a processor to start.
func TestAnIronicThatNeverAnswersStopsNoOther(t *testing.T) {
	t.Parallel()
	i := ironictest.Start(t, "beside-a-silent-one")
	t.Run("hosts are discovered", func(t *testing.T) { discoversBesideASilentOne(t, i) })
	t.Run("hosts are managed", func(t *testing.T) { managesBesideASilentOne(t, i) })
}

// discoversBesideASilentOne hands machines of the other Ironic over, and deletes them, after a start and when another process takes over.
func discoversBesideASilentOne(t *testing.T, i *ironictest.Ironic) {
	w := newTestEnv(t)
	i.Enrol(t, 2, 1)
	stuck, discover := besideASilentOne(w, i, "node-00001", "node-00002", "node-00003")
	stop := w.operate(forever)
	d := discover()
	direct := i.Client(t)

	t.Run("a machine becomes a host and is handed over", func(t *testing.T) {
		h := w.host("node-00001")
		w.credentials(h, "ipmi://192.0.2.1", true)
		w.released(h)
	})
	t.Run("a host is deleted with its node", func(t *testing.T) {
		h := w.host("node-00002")
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		_, err := direct.Node(t.Context(), h.Status.Provisioning.ID)
		require.Error(t, err)
	})
	t.Run("the hosts of the silent one say what they wait for, and how to end a deletion", func(t *testing.T) {
		last := stuck[silentHosts-1]
		w.handedOver(stuck[0], metal3v1.ReasonEndpointTimedOut)
		w.handedOver(last, metal3v1.ReasonEndpointTimedOut)
		c := meta.FindStatusCondition(last.Status.Conditions, metal3v1.ConditionHandedOver)
		assert.Contains(t, c.Message, metal3v1.KeepNodeAnnotation)
		c = meta.FindStatusCondition(stuck[0].Status.Conditions, metal3v1.ConditionHandedOver)
		assert.NotContains(t, strings.ToLower(c.Message), "set spec.bmc")
		w.patch(last, `{"metadata":{"annotations":{"`+metal3v1.KeepNodeAnnotation+`":"true"}}}`)
		w.gone(last)
	})
	t.Run("another process takes over", func(t *testing.T) {
		stop()
		i.Enrol(t, 1, 3)
		w.operate(forever)
		h := w.host("node-00003")
		w.credentials(h, "ipmi://192.0.2.3", true)
		w.released(h)
		w.status(d, "the other Ironic is discovered", ready(metal3v1.ReasonDiscovering))
	})
}

// managesBesideASilentOne is the same for an operator that manages hosts.
func managesBesideASilentOne(t *testing.T, i *ironictest.Ironic) {
	w := newTestEnv(t)
	i.Enrol(t, 2, 4)
	stuck, discover := besideASilentOne(w, i, "node-00004", "node-00005", "node-00006")
	stop := w.operate(forever, managing)
	discover()
	direct := i.Client(t)

	t.Run("a machine becomes available", func(t *testing.T) {
		w.reaches(w.host("node-00004"), metal3v1.StateAvailable)
	})
	t.Run("a host is deleted with its node", func(t *testing.T) {
		h := w.host("node-00005")
		w.reaches(h, metal3v1.StateAvailable)
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		_, err := direct.Node(t.Context(), h.Status.Provisioning.ID)
		require.Error(t, err)
	})
	t.Run("the hosts of the silent one say what they wait for, and their deletion can be ended", func(t *testing.T) {
		last := stuck[silentHosts-1]
		w.says(stuck[0], metal3v1.ConditionReady, metal3v1.ReasonEndpointTimedOut)
		assert.Empty(t, stuck[0].Status.ErrorMessage, "the host is not to blame")
		w.says(last, metal3v1.ConditionReady, metal3v1.ReasonEndpointTimedOut)
		w.patch(last, `{"metadata":{"annotations":{"`+metal3v1.KeepNodeAnnotation+`":"true"}}}`)
		w.gone(last)
	})
	t.Run("another process takes over", func(t *testing.T) {
		stop()
		i.Enrol(t, 1, 6)
		w.operate(forever, managing)
		w.reaches(w.host("node-00006"), metal3v1.StateAvailable)
	})
}
