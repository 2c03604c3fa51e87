// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

type pools map[types.NamespacedName]allocate.Counts

func (p pools) Pools() (out []types.NamespacedName) {
	for name := range p {
		out = append(out, name)
	}
	return out
}

func (p pools) Counts(name types.NamespacedName) (allocate.Counts, bool) {
	counts, ok := p[name]
	return counts, ok
}

type waiting map[allocate.Why]int

func (w waiting) Waiting() map[allocate.Why]int { return w }

func TestMetrics(t *testing.T) {
	known := pools{{Namespace: "ns", Name: "p"}: {Total: 10, Used: 3, Free: 4, OutOfRange: 1, External: 2}}
	registry := prometheus.NewPedanticRegistry()
	m := New(registry, known, waiting{allocate.WhyExhausted: 2})
	m.Allocated(allocate.WhyChosen, 3*time.Millisecond)
	m.Conflict(NameTaken)
	m.Released(allocate.WhyDeleted)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ipam_addresses Addresses of a pool, by state.
# TYPE ipam_addresses gauge
ipam_addresses{ippool_name="p",ippool_namespace="ns",state="external"} 2
ipam_addresses{ippool_name="p",ippool_namespace="ns",state="free"} 4
ipam_addresses{ippool_name="p",ippool_namespace="ns",state="out_of_range"} 1
ipam_addresses{ippool_name="p",ippool_namespace="ns",state="total"} 10
ipam_addresses{ippool_name="p",ippool_namespace="ns",state="used"} 3
# HELP ipam_allocations_total Addresses given to claims, by how the address was found.
# TYPE ipam_allocations_total counter
ipam_allocations_total{why="Chosen"} 1
# HELP ipam_claims_waiting Claims without an address, by reason.
# TYPE ipam_claims_waiting gauge
ipam_claims_waiting{reason="PoolExhausted"} 2
# HELP ipam_conflicts_total Writes that the API server refused because another writer was first.
# TYPE ipam_conflicts_total counter
ipam_conflicts_total{kind="name_taken"} 1
# HELP ipam_releases_total Addresses given back, by why.
# TYPE ipam_releases_total counter
ipam_releases_total{why="Deleted"} 1
`), "ipam_addresses", "ipam_allocations_total", "ipam_claims_waiting", "ipam_conflicts_total", "ipam_releases_total"))
	delete(known, types.NamespacedName{Namespace: "ns", Name: "p"})
	count, err := testutil.GatherAndCount(registry, "ipam_addresses")
	require.NoError(t, err)
	require.Zero(t, count, "a pool that is gone leaves no series")
}

func TestInventoryRequestsAreCounted(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	i := NewInventory(registry)
	i.Asked("taken", nil)
	i.Asked("give", http.ErrHandlerTimeout)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ipam_inventory_requests_total Requests to the inventory of addresses, by operation (taken, give, free) and result (success, error).
# TYPE ipam_inventory_requests_total counter
ipam_inventory_requests_total{operation="give",result="error"} 1
ipam_inventory_requests_total{operation="taken",result="success"} 1
`)))
}
