// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// The benchmarks run with MUSTER_BENCH=1; BENCH_SCALE=0.1 makes them smaller. Each prints its figures and appends them to
// bin/bench.jsonl.

func scaled(t *testing.T, n int) int {
	t.Helper()
	if os.Getenv("MUSTER_BENCH") == "" {
		t.Skip("a benchmark: set MUSTER_BENCH=1")
	}
	if scale, err := strconv.ParseFloat(os.Getenv("BENCH_SCALE"), 64); err == nil {
		return max(50, int(float64(n)*scale))
	}
	return n
}

func figure(t *testing.T, bench, metric, unit string, value float64) {
	t.Helper()
	line, err := json.Marshal(map[string]any{"bench": bench, "metric": metric, "value": value, "unit": unit})
	require.NoError(t, err)
	t.Logf("%s", line)
	path := filepath.Join("..", "..", "..", "bin", "bench.jsonl")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	require.NoError(t, err)
	_, err = fmt.Fprintf(file, "%s\n", line)
	require.NoError(t, errors.Join(err, file.Close()))
}

func percentile(times []time.Duration, p float64) float64 {
	slices.Sort(times)
	return float64(times[min(len(times)-1, int(float64(len(times))*p))].Microseconds()) / 1000
}

// asDeployed are the options that the operator has in a cluster.
func asDeployed(t *testing.T, namespace string) Options {
	t.Helper()
	options, err := ParseOptions([]string{"--metrics-bind-address=0", "--health-probe-bind-address=0", "--log-level=error", "--namespace=" + namespace})
	require.NoError(t, err)
	options.several = true
	return options
}

// inParallel calls do for 0 to n-1 from so many clients.
func inParallel(n, clients int, do func(i int)) {
	var group sync.WaitGroup
	work := make(chan int)
	for range clients {
		group.Go(func() {
			for i := range work {
				do(i)
			}
		})
	}
	for i := range n {
		work <- i
	}
	close(work)
	group.Wait()
}

// bare writes what serving n claims writes, with no operator: the claims, the addresses, the statuses.
func (w *world) bare(n, clients int) time.Duration {
	w.t.Helper()
	pool := w.pool("bare", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.200.0.2", "10.200.255.250")} })
	begin := time.Now()
	inParallel(n, clients, func(i int) { w.bareClaim(pool, fmt.Sprintf("bare-%d", i), i) })
	return time.Since(begin)
}

func (w *world) bareClaim(pool *ipamv1.IPPool, name string, i int) {
	claim := w.newClaim(name, pool.Name)
	claim.Finalizers = []string{ipamv1.IPClaimFinalizer}
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	ip, err := allocate.ParseAddr(fmt.Sprintf("10.200.%d.%d", i/200, 2+i%200))
	require.NoError(w.t, err)
	address := &ipamv1.IPAddress{
		Spec: ipamv1.IPAddressSpec{
			Address: ipamv1.IPAddressStr(ip.String()), Pool: ipamv1.ObjectReference{Name: pool.Name, Namespace: w.namespace},
			Claim: ipamv1.ObjectReference{Name: claim.Name, Namespace: w.namespace}, Prefix: 24, Gateway: pool.Spec.Gateway,
		},
	}
	address.Namespace, address.Name, address.Labels = w.namespace, allocate.AddressName("bare", ip), claim.Labels
	require.NoError(w.t, w.user.Create(w.t.Context(), address))
	before := claim.DeepCopy()
	claim.Status.Address = &ipamv1.ObjectReference{Name: address.Name, Namespace: address.Namespace}
	require.NoError(w.t, w.user.Status().Patch(w.t.Context(), claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// served waits until n claims of a pool have addresses, each another one.
func (w *world) served(n int) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); ; wait(w.t.Context(), 100*time.Millisecond) {
		pool := w.getPool("p")
		if pool.Status.Used != nil && *pool.Status.Used >= int64(n) {
			break
		}
		require.True(w.t, time.Now().Before(deadline), "not all claims were served")
	}
	claims := &ipamv1.IPClaimList{}
	for {
		require.NoError(w.t, w.user.List(w.t.Context(), claims, client.InNamespace(w.namespace)))
		names := map[string]bool{}
		for _, claim := range claims.Items {
			if claim.Spec.Pool.Name == "p" && claim.Status.Address != nil {
				require.False(w.t, names[claim.Status.Address.Name], "two claims have %s", claim.Status.Address.Name)
				names[claim.Status.Address.Name] = true
			}
		}
		if len(names) >= n {
			return
		}
	}
}

func TestBenchClaims10k(t *testing.T) {
	n := scaled(t, 10000)
	w := newWorld(t)
	w.installAdmission()
	bare := w.bare(n, 50)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{{Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/16"))}} })
	writes := &writes{}
	w.operatorWith(asDeployed(t, w.namespace), writes.count)
	w.eventually("the pool is not ready", func() bool { return len(w.getPool("p").Finalizers) == 1 })
	warm := writes.total()
	begin := time.Now()
	inParallel(n, 50, func(i int) { require.NoError(t, w.user.Create(t.Context(), w.newClaim(fmt.Sprintf("c-%d", i), "p"))) })
	created := time.Since(begin)
	w.served(n)
	took := time.Since(begin)
	perClaim := 0
	writes.mu.Lock()
	for _, write := range writes.seen[warm:] {
		if !strings.Contains(write, "/ippools/") {
			perClaim++
		}
	}
	poolWrites := len(writes.seen) - warm - perClaim
	writes.mu.Unlock()
	t.Logf("%d claims: bare %s, created in %s, served in %s; %d writes of pool statuses; unsafe-no-fsync", n, bare, created, took, poolWrites)
	figure(t, "ipam.claims_10k", "ratio_to_bare", "ratio", took.Seconds()/bare.Seconds())
	figure(t, "ipam.claims_10k", "writes_per_op", "writes", float64(perClaim)/float64(n))
	figure(t, "ipam.claims_10k", "duplicates", "count", 0)
}

func TestBenchClaimIdle(t *testing.T) {
	n := scaled(t, 10000)
	w := newWorld(t)
	w.installAdmission()
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{{Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/16"))}} })
	stop := w.operatorWith(asDeployed(t, w.namespace), nil)
	inParallel(n, 50, func(i int) { require.NoError(t, w.user.Create(t.Context(), w.newClaim(fmt.Sprintf("c-%d", i), "p"))) })
	w.served(n)
	watcher, err := client.NewWithWatch(w.config, client.Options{Scheme: w.user.Scheme()})
	require.NoError(t, err)
	const singles = 200
	var times, bareTimes []time.Duration
	for i := range singles {
		name := fmt.Sprintf("single-%d", i)
		events, err := watcher.Watch(t.Context(), &ipamv1.IPClaimList{}, client.InNamespace(w.namespace), client.MatchingFields{"metadata.name": name})
		require.NoError(t, err)
		begin := time.Now()
		require.NoError(t, w.user.Create(t.Context(), w.newClaim(name, "p")))
		for event := range events.ResultChan() {
			if claim, ok := event.Object.(*ipamv1.IPClaim); ok && claim.Status.Address != nil {
				break
			}
		}
		times = append(times, time.Since(begin))
		events.Stop()
	}
	stop()
	other := pool.DeepCopy()
	other.Name = "bare"
	for i := range singles {
		begin := time.Now()
		w.bareClaim(other, fmt.Sprintf("bare-single-%d", i), i)
		bareTimes = append(bareTimes, time.Since(begin))
	}
	figure(t, "ipam.claim_idle", "p99_ms", "ms", percentile(times, .99))
	figure(t, "ipam.claim_idle", "p50_ms", "ms", percentile(times, .5))
	figure(t, "ipam.claim_idle", "bare_p99_ms", "ms", percentile(bareTimes, .99))
	figure(t, "ipam.claim_idle", "ratio_to_bare", "ratio", percentile(times, .99)/percentile(bareTimes, .99))
}

func TestBenchExhausted(t *testing.T) {
	scaled(t, 200)
	w := newWorld(t)
	w.installAdmission()
	pool := w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.1", "10.0.0.200")} })
	writes := &writes{}
	w.operatorWith(asDeployed(t, w.namespace), writes.count)
	for i := range 250 {
		w.claim(fmt.Sprintf("c-%d", i), "p")
	}
	w.served(200)
	waiting := func() (out []string) {
		list := &ipamv1.IPClaimList{}
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
		for _, claim := range list.Items {
			if claim.Status.Address == nil && claim.DeletionTimestamp.IsZero() {
				out = append(out, claim.Name)
			}
		}
		return out
	}
	w.eventually("not all claims are told", func() bool {
		list := &ipamv1.IPClaimList{}
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
		return !slices.ContainsFunc(list.Items, func(c ipamv1.IPClaim) bool { return c.Status.Address == nil && c.Status.ErrorMessage == nil })
	})
	wait(t.Context(), time.Second)
	before := writes.total()
	wait(t.Context(), 5*time.Second)
	figure(t, "ipam.exhausted", "writes_while_waiting", "writes", float64(writes.total()-before))
	capacity := func(metric string, give func()) {
		begin := time.Now()
		give()
		for len(waiting()) > 0 {
			wait(t.Context(), 5*time.Millisecond)
		}
		figure(t, "ipam.exhausted", metric, "ms", float64(time.Since(begin).Milliseconds()))
	}
	capacity("p99_ms", func() {
		patch := []byte(`{"spec":{"pools":[{"start":"10.0.0.1","end":"10.0.0.250"}]}}`)
		require.NoError(t, w.user.Patch(t.Context(), pool, client.RawPatch(types.MergePatchType, patch)))
	})
	for i := range 50 {
		w.claim(fmt.Sprintf("d-%d", i), "p")
	}
	w.eventually("the new claims do not wait", func() bool { return len(waiting()) == 50 })
	victims := &ipamv1.IPClaimList{}
	require.NoError(t, w.user.List(t.Context(), victims, client.InNamespace(w.namespace)))
	victims.Items = slices.DeleteFunc(victims.Items, func(c ipamv1.IPClaim) bool { return c.Status.Address == nil })
	capacity("released_ms", func() {
		inParallel(50, 50, func(i int) { w.delete(&victims.Items[i]) })
	})
}
