// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThePictureOfPeersAndTheSearch: what machines report of the ways between them is drawn, and one of them is found by what it is known by.
func TestThePictureOfPeersAndTheSearch(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	env := s.makeInfraEnv(admin, "rack-p")
	token := s.imageToken(admin, env)
	var cluster struct{ ID string }
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "POST", "/clusters", map[string]any{
		"name": "blue", "openshift_version": "live", "base_dns_domain": "example.com", "pull_secret": `{"auths":{}}`, "machine_networks": []any{map[string]any{"cidr": "10.0.0.0/8"}},
	}), &cluster))
	names := []string{"alpha", "bravo", "charlie", "delta", "echo"}
	hosts := make([]string, len(names))
	for i, name := range names {
		hosts[i] = uuid.NewString()
		s.report(token, env, hosts[i], map[string]any{
			"hostname": name, "cpu": map[string]any{"architecture": "x86_64", "count": 16}, "memory": map[string]any{"physical_bytes": 64 << 30},
			"system_vendor": map[string]any{"serial_number": "SN_" + name},
			"interfaces":    []any{map[string]any{"name": "eno1", "mac_address": "52:54:00:00:00:0" + string(rune('1'+i)), "ipv4_addresses": []string{"10.0.9.1" + string(rune('1'+i)) + "/8"}}},
		})
		s.call("Authorization", "Bearer "+admin, "POST", "/infra-envs/"+env+"/hosts/"+hosts[i]+"/actions/bind", map[string]any{"cluster_id": cluster.ID})
	}
	b := s.open(chromium, t, admin)
	b.visit("/machines/" + env + "/" + hosts[0])
	b.sees("h1", "alpha")
	assert.False(t, ask[bool](b, `document.querySelector("main svg") !== null`), "the machine has tried nothing")

	// delta answers late, charlie not at all, echo says that it does not reach alpha.
	reach := func(from string, ways map[string]map[string]any) {
		var list []any
		for host, way := range ways {
			list = append(list, map[string]any{"host_id": host, "l3_connectivity": []any{way}})
		}
		output, err := json.Marshal(map[string]any{"remote_hosts": list})
		require.NoError(t, err)
		s.call("X-Secret-Key", token, "POST", "/infra-envs/"+env+"/hosts/"+from+"/instructions", map[string]any{"step_type": "connectivity-check", "step_id": "connectivity-check-1", "exit_code": 0, "output": string(output)})
	}
	fine, never := map[string]any{"successful": true, "average_rtt_ms": 1}, map[string]any{"successful": false}
	reach(hosts[4], map[string]map[string]any{hosts[0]: never})
	reach(hosts[0], map[string]map[string]any{hosts[1]: fine, hosts[2]: never, hosts[3]: {"successful": true, "average_rtt_ms": 150}, hosts[4]: fine})
	b.sees("#reach-title", "Connectivity")
	b.sees("#reach-list", "charlie not reached")
	b.sees("#reach-list", "echo does not reach this machine")
	b.sees("#reach-list", "delta answers after 150 ms")
	b.sees("#reach-list", "bravo reached")
	assert.Equal(t, "2 of 4 peers in the cluster are reached, in both directions.", ask[string](b, `document.querySelector("svg.reach").getAttribute("aria-label")`))
	assert.Equal(t, []string{"bad", "bad", "warn", "ok"}, ask[[]string](b, `Array.from(document.querySelectorAll("svg.reach line")).map(e => e.getAttribute("class"))`))
	b.looksFine("machine-peers")

	// The server searches, in what the machine is known by and nowhere else.
	b.visit("/machines?cluster=" + cluster.ID)
	for text, want := range map[string][]string{"BRAVO": {"bravo"}, "sn_charlie": {"charlie"}, "52:54:00:00:00:04": {"delta"}, "10.0.9.15": {"echo"}, hosts[0][:13]: {"alpha"}, "%": {}, "x86_64": {}} {
		b.set("#search", text)
		b.press("Search")
		b.sees(".filters", "“"+text+"”")
		assert.Equal(t, want, ask[[]string](b, `Array.from(document.querySelectorAll("tbody th a")).map(e => e.textContent)`), text)
		assert.Equal(t, cluster.ID, ask[string](b, `new URLSearchParams(location.search).get("cluster")`), "the other filters stay")
	}
	b.looksFine("machines-search")
}
