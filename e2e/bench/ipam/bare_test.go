// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipam

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestTheBareStatusShowsAsManyClaimsAsTheOperatorDoes fills and drains a pool of four claims whose status shows three.
func TestTheBareStatusShowsAsManyClaimsAsTheOperatorDoes(t *testing.T) {
	x := newIndexes(map[string]ipamv1.IPAddressStr{"a": "10.0.0.1", "b": "10.0.0.2", "c": "10.0.0.3", "d": "10.0.0.4"}, 3)
	steps := []struct {
		claim string
		has   bool
		want  string
		used  int
	}{
		{"d", true, `{"d":"10.0.0.4"}`, 1},
		{"b", true, `{"b":"10.0.0.2"}`, 2},
		{"c", true, `{"c":"10.0.0.3"}`, 3},
		{"a", true, `{"a":"10.0.0.1","d":null}`, 4},
		{"b", false, `{"b":null,"d":"10.0.0.4"}`, 3},
		{"a", false, `{"a":null}`, 2},
		{"c", false, `{"c":null}`, 1},
		{"d", false, `{"d":null}`, 0},
	}
	for _, step := range steps {
		x.set(step.claim, step.has)
		patch, used := x.change()
		got, err := json.Marshal(patch)
		require.NoError(t, err)
		assert.JSONEq(t, step.want, string(got), step.claim)
		assert.Equal(t, step.used, used)
	}
}

func TestABarePoolNeedsTheIndexesOfTheServedOne(t *testing.T) {
	_, err := (&testEnv{}).newBarePool(t.Context(), &ipamv1.IPPool{}, 1)
	require.ErrorIs(t, err, errNoIndexes)
}

// TestTheBareStatusOfAClaimIsThatOfAServedOne compares the fields with those that the operator writes.
func TestTheBareStatusOfAClaimIsThatOfAServedOne(t *testing.T) {
	address := &ipamv1.IPAddress{Spec: ipamv1.IPAddressSpec{Address: "10.0.0.1", Prefix: 16, Gateway: new(ipamv1.IPAddressStr("10.0.0.254")), DNSServers: []ipamv1.IPAddressStr{"10.0.0.2"}}}
	address.Name, address.Namespace = "p-10-0-0-1", "ns"
	content, err := json.Marshal(servedStatus(address, 3))
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(content, &got))
	for _, field := range []string{"address", "ipAddress", "prefix", "gateway", "dnsServers", "observedGeneration", "conditions"} {
		assert.Contains(t, got, field)
	}
}

func TestSizesOfRequestBodiesAreReadFromMetrics(t *testing.T) {
	const metrics = `# TYPE apiserver_request_body_size_bytes histogram
apiserver_request_body_size_bytes_bucket{group="ipam.metal3.io",resource="ippools",verb="patch",le="50000"} 4
apiserver_request_body_size_bytes_sum{group="ipam.metal3.io",resource="ippools",verb="create"} 7
apiserver_request_body_size_bytes_sum{group="ipam.metal3.io",resource="ippools",verb="patch"} 1.2e+06
apiserver_request_body_size_bytes_count{group="ipam.metal3.io",resource="ippools",verb="patch"} 4
`
	got, err := readBodies([]byte(metrics), "ippools", "patch")
	require.NoError(t, err)
	assert.Equal(t, bodies{count: 4, bytes: 1_200_000}, got)
	assert.InDelta(t, 100_000, got.since(bodies{count: 2, bytes: 1_000_000}).mean(), 0)
}
