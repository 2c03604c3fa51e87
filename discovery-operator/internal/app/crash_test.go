// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/faultinject"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// dies runs an operator until it dies after its n-th write to the API server, reservations included.
func dies(w *testEnv, n int) {
	w.Helper()
	f := faultinject.At(n, true)
	isWrite := func(r *http.Request) bool {
		return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events")
	}
	w.wrap = append(w.wrap, func(next http.RoundTripper) http.RoundTripper { return f.Transport(next, isWrite) })
	stop := w.operate()
	<-f.Dead()
	stop()
	w.wrap = nil
}

// TestADeathAtEveryWrite kills the operator after each write of a life that begins with three reports, two of the same serial number, goes
// on with a hand-over and ends with a deletion; another process continues. Never may a machine have two hosts, or be lost.
func TestADeathAtEveryWrite(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 8; n++ {
		t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) { dieAt(t, n) })
	}
}

func dieAt(t *testing.T, n int) {
	w := newTestEnv(t)
	first := w.enrol(1)
	w.enrol(2)
	d := w.discover("all")
	dies(w, n)
	w.operate()

	h := w.host("node-00001")
	w.host("node-00002")
	w.status(d, "both are counted", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts.Hosts == 2 && s.Counts.Waiting == 0 && s.Counts.Refused == 0
	})
	require.Len(t, w.hosts(), 2)
	require.NoError(t, w.Delete(t.Context(), h))
	w.gone(h)
	_, err := w.node(first)
	require.Error(t, err, "the node is gone")
	w.eventually("one reservation is left", func() bool {
		var leases coordinationv1.LeaseList
		return w.List(t.Context(), &leases, client.InNamespace(w.system)) == nil && len(leases.Items) == 1
	})
	_, err = w.reservation(demo.MAC(2, 0))
	assert.NoError(t, err)
}

// TestADeathInAHandOverOrDeletion kills the operator after each write of a hand-over and of a deletion.
func TestADeathInAHandOverOrDeletion(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 4; n++ {
		t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) {
			w := newTestEnv(t)
			handed, deleted := w.enrol(1), w.enrol(2)
			w.discover("all")
			stop := w.operate()
			one, two := w.host("node-00001"), w.host("node-00002")
			stop()
			w.credentials(one, "redfish://192.0.2.1/", true)
			require.NoError(t, w.Delete(t.Context(), two))
			dies(w, n)
			w.operate()
			w.released(one)
			w.gone(two)
			node, err := w.node(handed)
			require.NoError(t, err)
			assert.Equal(t, "redfish", node.Driver)
			_, err = w.node(deleted)
			require.Error(t, err)
		})
	}
}
