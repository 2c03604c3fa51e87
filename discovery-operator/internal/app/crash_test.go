// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// death ends a process at its n-th write: from then on, no write of it arrives. Odd deaths come after the write arrived and before
// the process learnt of it.
type death struct {
	http.RoundTripper
	after int64
	late  bool
	seen  *atomic.Int64
	died  chan struct{}
}

func (d *death) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodGet || strings.Contains(r.URL.Path, "/events") {
		return d.RoundTripper.RoundTrip(r)
	}
	n := d.seen.Add(1)
	if n < d.after {
		return d.RoundTripper.RoundTrip(r)
	}
	if n == d.after {
		defer close(d.died)
		if d.late {
			if resp, err := d.RoundTripper.RoundTrip(r); err == nil {
				_ = resp.Body.Close()
			}
		}
	}
	return nil, errors.New("the process is dead")
}

// TestADeathAtEveryWrite kills the operator at each write of a life that begins with three reports, two of the same serial number, goes
// on with a hand-over and ends with a deletion; another process continues. Never may a machine have two hosts, or be lost.
func TestADeathAtEveryWrite(t *testing.T) {
	t.Parallel()
	for n := int64(1); n <= 8; n++ {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, late %t", n, late), func(t *testing.T) { dieAt(t, n, late) })
		}
	}
}

func dieAt(t *testing.T, n int64, late bool) {
	w := newTestEnv(t)
	died := make(chan struct{})
	seen := &atomic.Int64{}
	w.wrap = append(w.wrap, func(next http.RoundTripper) http.RoundTripper {
		return &death{RoundTripper: next, after: n, late: late, seen: seen, died: died}
	})
	first := w.enrol(1)
	w.enrol(2)
	d := w.discover("all")
	stop := w.operate()
	<-died
	stop()
	w.wrap = nil
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

// TestADeathInAHandOverOrDeletion kills the operator at each write of a hand-over and of a deletion.
func TestADeathInAHandOverOrDeletion(t *testing.T) {
	t.Parallel()
	for n := int64(1); n <= 4; n++ {
		t.Run(fmt.Sprintf("write %d", n), func(t *testing.T) {
			w := newTestEnv(t)
			handed, deleted := w.enrol(1), w.enrol(2)
			w.discover("all")
			stop := w.operate()
			one, two := w.host("node-00001"), w.host("node-00002")
			stop()
			w.credentials(one, "redfish://192.0.2.1/", true)
			require.NoError(t, w.Delete(t.Context(), two))
			died := make(chan struct{})
			w.wrap = append(w.wrap, func(next http.RoundTripper) http.RoundTripper {
				return &death{RoundTripper: next, after: n, late: n%2 == 1, seen: &atomic.Int64{}, died: died}
			})
			stop = w.operate()
			<-died
			stop()
			w.wrap = nil
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
