// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

var epoch = metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))

// largestObject is what the API server takes in one request, in bytes.
const largestObject = 1536 << 10

func newPool(ranges ...ipamv1.Pool) *ipamv1.IPPool {
	return &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid-p", Generation: 3},
		Spec:       ipamv1.IPPoolSpec{NamePrefix: "p", Pools: ranges},
	}
}

func span(first, last string) ipamv1.Pool {
	return ipamv1.Pool{Start: new(ipamv1.IPAddressStr(first)), End: new(ipamv1.IPAddressStr(last))}
}

// observed is what is seen of a pool with n addresses of claims with names of a length.
func observed(pool *ipamv1.IPPool, n, length int) observation {
	o := observation{layout: allocate.Parse(&pool.Spec, ipamv1.RandomAllocation), holders: map[string]ipamv1.IPAddressStr{}, used: map[netip.Addr]struct{}{}}
	ip := netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:1")
	for i := range n {
		name := fmt.Sprintf("%05d", i)
		o.holders[name+strings.Repeat("x", length-len(name))] = ipamv1.IPAddressStr(ip.String())
		o.used[ip] = struct{}{}
		ip = ip.Next()
	}
	return o
}

func TestTheMapOfAPoolNeverOutgrowsTheObject(t *testing.T) {
	pool := newPool(span("2001:db8:1111:2222:3333:4444:5555:1", "2001:db8:1111:2222:3333:4444:5555:ffff"))
	got, _ := status(pool, observed(pool, 4096, 253), epoch)
	assert.False(t, got.IndexesTruncated)
	assert.Len(t, got.Allocations, 4096)
	content, err := json.Marshal(got)
	require.NoError(t, err)
	assert.Less(t, len(content), largestObject, "with the longest names and addresses")

	got, _ = status(pool, observed(pool, 60000, 253), epoch)
	assert.True(t, got.IndexesTruncated)
	assert.Len(t, got.Allocations, 4096)
	for claim := range got.Allocations {
		require.Less(t, claim[:5], "04096", "the first ones by name are shown")
	}
	assert.Equal(t, int64(60000), *got.Used, "the counts go on")
	assert.Equal(t, int64(5535), *got.Free)

	pool.Status = got
	got, _ = status(pool, observed(pool, 100, 253), metav1.NewTime(epoch.Add(time.Minute)))
	assert.False(t, got.IndexesTruncated)
	assert.Len(t, got.Allocations, 100)
	assert.Equal(t, epoch.Add(time.Minute), got.LastUpdated.Time)
}

func TestStatusOfAPool(t *testing.T) {
	small := newPool(span("2001:db8:1111:2222:3333:4444:5555:1", "2001:db8:1111:2222:3333:4444:5555:2"))
	deleted := small.DeepCopy()
	deleted.DeletionTimestamp = &epoch
	broken := newPool(span("10.0.0.9", "10.0.0.1"))
	for name, test := range map[string]struct {
		pool             *ipamv1.IPPool
		used             int
		ready, exhausted string
		says             string
	}{
		"addresses are free":        {small, 1, "Usable", "AddressesFree", "hands out addresses"},
		"none is free":              {small, 2, "Usable", "NoAddressFree", "hands out addresses"},
		"more than it would give":   {small, 3, "AddressesOutOfRange", "NoAddressFree", "1 addresses in use are out of bounds of the pools given"},
		"it is being deleted":       {deleted, 2, "Deleting", "NoAddressFree", "Waiting for 2 addresses to be given back"},
		"its spec cannot be used":   {broken, 0, "InvalidSpec", "NoAddressFree", "pools[0]: start 10.0.0.9 is greater than end 10.0.0.1"},
		"it has no addresses (yet)": {newPool(), 0, "Usable", "NoAddressFree", "hands out addresses"},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := status(test.pool, observed(test.pool, test.used, 5), epoch)
			ready := meta.FindStatusCondition(got.Conditions, ipamv1.ReadyCondition)
			assert.Equal(t, test.ready, ready.Reason)
			assert.Contains(t, ready.Message, test.says)
			assert.Equal(t, test.exhausted, meta.FindStatusCondition(got.Conditions, ipamv1.ExhaustedCondition).Reason)
			assert.Equal(t, int64(3), ready.ObservedGeneration)
			assert.Equal(t, int64(test.used), *got.Used)
			test.pool.Status = got
			again, changed := status(test.pool, observed(test.pool, test.used, 5), metav1.NewTime(epoch.Add(time.Hour)))
			assert.Equal(t, got, again, "an equal status is not written")
			assert.Empty(t, changed)
		})
	}
}

// TestAStatusPatchCarriesWhatChanged releases one of many addresses.
func TestAStatusPatchCarriesWhatChanged(t *testing.T) {
	pool := newPool(span("2001:db8:1111:2222:3333:4444:5555:1", "2001:db8:1111:2222:3333:4444:5555:ffff"))
	pool.ResourceVersion = "7"
	pool.Status, _ = status(pool, observed(pool, 4096, 5), epoch)
	patchOf := func(o observation) string {
		wanted, changed := status(pool, o, metav1.NewTime(epoch.Add(time.Minute)))
		patch, err := statusPatch(pool, wanted, changed)
		require.NoError(t, err)
		return string(patch)
	}
	o := observed(pool, 4096, 5)
	delete(o.holders, "00007")
	delete(o.used, netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:8"))
	assert.JSONEq(t, `{"metadata":{"resourceVersion":"7"},"status":{"indexes":{"00007":null},"lastUpdated":"2026-01-01T12:01:00Z","used":4095,"free":61440}}`, patchOf(o))
	assert.Contains(t, patchOf(observed(pool, 0, 5)), `"indexes":null`, "no key by itself")
	assert.NotContains(t, patchOf(observed(pool, 4096, 5)), "indexes")
}

// TestAStatusPatchKeepsEveryDigitOfACount releases one address of a pool with more addresses than a float64 counts.
func TestAStatusPatchKeepsEveryDigitOfACount(t *testing.T) {
	pool := newPool(span("2001:db8:1111:2222::1", "2001:db8:1111:2222:5fff:ffff:ffff:ff00"))
	pool.ResourceVersion = "7"
	pool.Status, _ = status(pool, observed(pool, 3, 5), epoch)
	o := observed(pool, 3, 5)
	delete(o.holders, "00001")
	delete(o.used, netip.MustParseAddr("2001:db8:1111:2222:3333:4444:5555:2"))
	wanted, changed := status(pool, o, epoch)
	require.Greater(t, *wanted.Free, int64(1)<<53)
	patch, err := statusPatch(pool, wanted, changed)
	require.NoError(t, err)
	assert.Contains(t, string(patch), fmt.Sprintf(`"free":%d`, *wanted.Free))
}

// BenchmarkPass compares and writes the status of a pool with 10,000 addresses of which one was released.
func BenchmarkPass(b *testing.B) {
	pool := newPool(span("2001:db8:1111:2222:3333:4444:5555:1", "2001:db8:1111:2222:3333:4444:5555:ffff"))
	pool.ResourceVersion = "7"
	before := observed(pool, 10_000, 5)
	pool.Status, _ = status(pool, before, epoch)
	delete(before.holders, "00007")
	b.ReportAllocs()
	for b.Loop() {
		wanted, changed := status(pool, before, epoch)
		if _, err := statusPatch(pool, wanted, changed); err != nil {
			b.Fatal(err)
		}
	}
}
