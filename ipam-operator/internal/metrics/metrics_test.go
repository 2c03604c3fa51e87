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
	known := pools{{Namespace: "ns", Name: "p"}: {Total: 10, Used: 3, Free: 6, OutOfRange: 1}}
	registry := prometheus.NewPedanticRegistry()
	m := New(registry, known, waiting{allocate.WhyExhausted: 2})
	m.Allocated(allocate.WhyChosen, 3*time.Millisecond)
	m.Conflict(NameTaken)
	m.Released(allocate.WhyDeleted)
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP ipam_addresses Addresses of a pool, by state.
# TYPE ipam_addresses gauge
ipam_addresses{namespace="ns",pool="p",state="free"} 6
ipam_addresses{namespace="ns",pool="p",state="out_of_range"} 1
ipam_addresses{namespace="ns",pool="p",state="total"} 10
ipam_addresses{namespace="ns",pool="p",state="used"} 3
# HELP ipam_allocations_total Addresses given to claims, by how the address was found.
# TYPE ipam_allocations_total counter
ipam_allocations_total{why="Chosen"} 1
# HELP ipam_claims_waiting Claims without an address, by reason.
# TYPE ipam_claims_waiting gauge
ipam_claims_waiting{reason="PoolExhausted"} 2
# HELP ipam_conflicts_total Writes that the API server refused because somebody else was first.
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

type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRequestsAreCountedByVerbAndResource(t *testing.T) {
	for name, c := range map[string]struct {
		method, path, content, verb, resource string
	}{
		"list":                           {"GET", "/apis/ipam.metal3.io/v1alpha1/ipclaims", "", "list", "ipclaims"},
		"watch":                          {"GET", "/apis/ipam.metal3.io/v1alpha1/ipclaims?watch=true", "", "watch", "ipclaims"},
		"get":                            {"GET", "/apis/ipam.metal3.io/v1alpha1/namespaces/a/ipclaims/c", "", "get", "ipclaims"},
		"create":                         {"POST", "/apis/ipam.metal3.io/v1alpha1/namespaces/a/ipaddresses", "", "create", "ipaddresses"},
		"delete":                         {"DELETE", "/apis/ipam.metal3.io/v1alpha1/namespaces/a/ipaddresses/p-10-0-0-1", "", "delete", "ipaddresses"},
		"update":                         {"PUT", "/apis/ipam.metal3.io/v1alpha1/namespaces/a/ippools/p", "", "update", "ippools"},
		"patch a status":                 {"PATCH", "/apis/ipam.metal3.io/v1alpha1/namespaces/a/ipclaims/c/status", "application/merge-patch+json", "patch", "ipclaims/status"},
		"apply":                          {"PATCH", "/api/v1/namespaces/a/secrets/s", "application/apply-patch+yaml", "apply", "secrets"},
		"a namespace itself":             {"GET", "/api/v1/namespaces/a", "", "get", "namespaces"},
		"what is no resource has no one": {"GET", "/version", "", "list", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			requests := NewRequests()
			transport := requests.Wrap(answer(func(*http.Request) (*http.Response, error) { return &http.Response{StatusCode: http.StatusOK}, nil }))
			request, err := http.NewRequestWithContext(t.Context(), c.method, "https://server"+c.path, http.NoBody)
			require.NoError(t, err)
			request.Header.Set("Content-Type", c.content)
			_, err = transport.RoundTrip(request) //nolint:bodyclose // there is none
			require.NoError(t, err)
			require.NoError(t, testutil.CollectAndCompare(requests, strings.NewReader(`
# HELP ipam_operator_client_requests_total Requests to the API server, by verb (get, list, watch, create, update, patch, apply, delete), resource[/subresource] and status code.
# TYPE ipam_operator_client_requests_total counter
ipam_operator_client_requests_total{code="200",resource="`+c.resource+`",verb="`+c.verb+`"} 1
`)))
		})
	}
}
