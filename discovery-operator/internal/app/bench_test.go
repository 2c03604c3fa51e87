// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// BenchmarkSync takes the machines of a seeded Ironic in: discovery.sync_10k, then discovery.steady_10k and discovery.resync_10k in
// short. BENCH_SCALE multiplies 10,000; BENCH_SOURCE=demo takes the machines from memory, which leaves Ironic's own time out.
// Run it with -benchtime 1x.
func BenchmarkSync(b *testing.B) {
	scale := 1.0
	if text := os.Getenv("BENCH_SCALE"); text != "" {
		var err error
		scale, err = strconv.ParseFloat(text, 64)
		require.NoError(b, err)
	}
	for b.Loop() {
		syncOnce(b, int(10_000*scale))
	}
}

func syncOnce(b *testing.B, n int) {
	w := newTestEnv(b)
	var how []func(*setup)
	if os.Getenv("BENCH_SOURCE") == "demo" {
		for i := 1; i <= n; i++ {
			w.enrol(i)
		}
	} else {
		i := ironictest.Start(b, "bench")
		i.Enrol(b, 1, 1)
		i.Down(b, false)
		i.Seed(b, n-1)
		i.Up(b)
		how = append(how, asking(i))
	}
	writes := &atomic.Int64{}
	w.wrap = append(w.wrap, func(next http.RoundTripper) http.RoundTripper { return &writeCounter{next, writes} })
	w.operate(how...)
	began := time.Now()
	d := w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.RateLimit.HostsPerMinute = 1_000_000
		d.Spec.ResyncInterval = &metav1.Duration{Duration: time.Hour}
		d.Spec.Interval = &metav1.Duration{Duration: time.Second}
	})
	require.Eventually(b, func() bool {
		return w.Get(b.Context(), client.ObjectKeyFromObject(d), d) == nil && int(d.Status.Counts.Hosts) == n && d.Status.Counts.Waiting == 0
	}, 30*time.Minute, 200*time.Millisecond)
	took := time.Since(began)
	synced := writes.Load()
	require.Never(b, func() bool { return writes.Load() != synced }, 10*time.Second, time.Second, "steady state has no writes")
	hosts := w.hosts()
	require.Len(b, hosts, n)
	macs := map[string]bool{}
	for i := range hosts {
		require.False(b, macs[hosts[i].Spec.BootMACAddress], "duplicates = 0")
		macs[hosts[i].Spec.BootMACAddress] = true
	}
	bare := w.bare(n, &hosts[0])
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(bare.Seconds(), "bare_s")
	b.ReportMetric(took.Seconds()/bare.Seconds(), "ratio_to_bare")
	b.ReportMetric(float64(synced)/float64(n), "writes_per_op")
}

// bare issues the writes of a sync with ten writers: for each machine a reservation, a host and its status.
func (w *testEnv) bare(n int, like *metal3v1.BareMetalHost) time.Duration {
	began := time.Now()
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 10 {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				mac := demo.MAC(int(i), 9)
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: reservation.Name(mac)}}
				host := &metal3v1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{
					Namespace: w.ns, Name: fmt.Sprint("bare-", i), Labels: like.Labels, Annotations: like.Annotations, Finalizers: like.Finalizers,
				}, Spec: like.Spec}
				host.Spec.BootMACAddress = mac
				require.NoError(w, w.Create(w.Context(), lease))
				require.NoError(w, w.Create(w.Context(), host))
				host.Status = like.Status
				require.NoError(w, w.Status().Update(w.Context(), host))
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// writeCounter counts writes that are neither events nor reviews.
type writeCounter struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c *writeCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "reviews") {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(r)
}
