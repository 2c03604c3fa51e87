// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var clusterNames = regexp.MustCompile(`"name":"([^"]*)"`)

// TestClustersAreFoundByNameAndState by those who may see them, and paged.
func TestClustersAreFoundByNameAndState(t *testing.T) {
	w := newTestEnv(t)
	admin, olga := w.person("root", "admins"), w.person("olga")
	for _, name := range []string{"edge-one", "edge-two", "core"} {
		w.cluster(admin, name)
	}
	w.cluster(olga, "edge-three")
	imported := w.call(admin, "POST", "/clusters/import", map[string]any{"name": "edge-far", "api_vip_dnsname": "api.edge-far.example.com", "openshift_cluster_id": "5f5a8f0f-3a7d-4b8c-9d0e-1f2a3b4c5d6e"})
	assert.Equal(t, 201, imported.status, imported.raw)
	for query, want := range map[string]struct {
		total string
		names []string
	}{
		"?search=EDGE":                           {"4", []string{"edge-one", "edge-two", "edge-three", "edge-far"}},
		"?search=edge&limit=2&offset=1":          {"4", []string{"edge-two", "edge-three"}},
		"?search=%25":                            {"0", nil},
		"?status=adding-hosts":                   {"1", []string{"edge-far"}},
		"?status=adding-hosts,error&search=edge": {"1", []string{"edge-far"}},
		"?status=installed":                      {"0", nil},
	} {
		got := w.call(admin, "GET", "/clusters"+query, nil)
		assert.Equal(t, 200, got.status, got.raw)
		assert.Equal(t, want.total, got.header.Get("X-Total-Count"), query)
		var names []string
		for _, found := range clusterNames.FindAllStringSubmatch(got.raw, -1) {
			names = append(names, found[1])
		}
		assert.Equal(t, want.names, names, query)
	}
	got := w.call(olga, "GET", "/clusters?search=edge", nil)
	assert.Equal(t, "1", got.header.Get("X-Total-Count"))
	assert.NotContains(t, got.raw, "edge-one")
	assert.Equal(t, 400, w.call(admin, "GET", "/clusters?status=sleepy", nil).status)
}

// TestAClusterGoesBeforeItsInfraEnv: command lines of assisted-service delete the cluster first, and then the infra-env whose machines it has.
func TestAClusterGoesBeforeItsInfraEnv(t *testing.T) {
	for name, installed := range map[string]bool{"before the installation": false, "an installed cluster": true} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			olga := w.person("olga")
			cluster := w.cluster(olga, "c")
			require.Equal(t, 201, w.call(olga, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
			made := w.call(olga, "POST", "/infra-envs", map[string]any{"name": "c_infra-env", "pull_secret": `{"auths":{}}`, "cluster_id": cluster})
			require.Equal(t, 201, made.status, made.raw)
			env := made.text("id")
			host, _ := w.host(env)
			assert.Equal(t, cluster, w.call(olga, "GET", host, nil).text("cluster_id"))
			if installed {
				agent := caller{"X-Secret-Key": w.image(env)}
				require.Equal(t, 202, w.call(olga, "POST", "/clusters/"+cluster+"/actions/install", nil).status)
				for step, output := range map[string]string{
					"installation-disk-speed-check": `{"path":"/dev/sda","io_sync_duration":4}`, "container-image-availability": `{"images":[{"name":"i","result":"success"}]}`,
				} {
					require.Equal(t, 204, w.call(agent, "POST", host+"/instructions", map[string]any{"step_type": step, "step_id": step + "-1", "output": output}).status)
				}
				for _, stage := range []string{"Starting installation", "Rebooting", "Done"} {
					a := w.call(agent, "PUT", host+"/progress", map[string]any{"current_stage": stage})
					require.Equal(t, 200, a.status, a.raw)
				}
			}
			gone := w.call(olga, "DELETE", "/clusters/"+cluster, nil)
			require.Equal(t, 204, gone.status, gone.raw)
			assert.NotContains(t, w.call(olga, "GET", host, nil).body, "cluster_id", "it is free")
			gone = w.call(olga, "DELETE", "/infra-envs/"+env, nil)
			require.Equal(t, 204, gone.status, gone.raw)
			assert.Equal(t, 404, w.call(olga, "GET", host, nil).status)
		})
	}
}

// TestHostsOfAClusterHaveTheirInventory: assisted-installer and assisted-test-infra read it from the cluster, and end with an error at a host without.
func TestHostsOfAClusterHaveTheirInventory(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	cluster, env := w.cluster(olga, "c"), w.infraEnv(olga, "e")
	host, _ := w.host(env)
	require.Equal(t, 200, w.call(olga, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	for _, a := range []answer{w.call(olga, "GET", "/clusters/"+cluster, nil), w.call(olga, "PATCH", "/clusters/"+cluster, map[string]any{"base_dns_domain": "example.com"})} {
		hosts, _ := a.body["hosts"].([]any)
		require.Len(t, hosts, 1, a.raw)
		assert.JSONEq(t, inventory, fmt.Sprint(hosts[0].(map[string]any)["inventory"]))
	}
	listed := w.call(olga, "GET", "/clusters?with_hosts=true", nil).raw
	assert.Contains(t, listed, `"requested_hostname":"h1"`)
	assert.NotContains(t, listed, "physical_bytes", "a list of clusters would be long")
	assert.NotContains(t, w.call(olga, "GET", "/clusters/"+cluster+"?exclude-hosts=true", nil).raw, "physical_bytes")
}

// TestParametersWithoutAValueAreAbsent: assisted-test-infra asks for events with host_id= and infra_env_id=.
func TestParametersWithoutAValueAreAbsent(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	cluster := w.cluster(olga, "c")
	for given, same := range map[string]string{
		"/events?categories=user&cluster_id=" + cluster + "&host_id=&infra_env_id=": "/events?categories=user&cluster_id=" + cluster,
		"/clusters?owner=&with_hosts=&openshift_cluster_id=&status=&limit=&offset=": "/clusters",
		"/infra-envs?cluster_id=":               "/infra-envs",
		"/clusters/" + cluster + "/hosts?role=": "/clusters/" + cluster + "/hosts",
	} {
		got, want := w.call(olga, "GET", given, nil), w.call(olga, "GET", same, nil)
		assert.Equal(t, 200, want.status, want.raw)
		assert.Equal(t, 200, got.status, "%s: %s", given, got.raw)
		assert.Equal(t, want.raw, got.raw, given)
	}
	assert.Equal(t, 400, w.call(olga, "GET", "/clusters/"+cluster+"/downloads/credentials?file_name=", nil).status, "it is required")
	assert.Equal(t, 400, w.call(olga, "GET", "/events?cluster_id="+cluster+"&host_id=x", nil).status)
}

// TestPathsMayEndWithASlash: assisted-service takes it away, and clients list /clusters/.
func TestPathsMayEndWithASlash(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	cluster, env := w.cluster(olga, "c"), w.infraEnv(olga, "e")
	for _, path := range []string{"/clusters", "/infra-envs", "/clusters/" + cluster} {
		for _, query := range []string{"", "?owner=olga"} {
			got, want := w.call(olga, "GET", path+"/"+query, nil), w.call(olga, "GET", path+query, nil)
			assert.Equal(t, 200, got.status, got.raw)
			assert.Equal(t, want.raw, got.raw, path)
		}
	}
	assert.Equal(t, 201, w.call(olga, "PATCH", "/infra-envs/"+env+"/", map[string]any{}).status)
	assert.Equal(t, 404, w.call(olga, "GET", "/nothing/", nil).status)
	assert.Equal(t, 404, w.call(olga, "GET", "/", nil).status)
}

// TestAListOfManyHostsIsWhole: inventories are read a few at a time.
func TestAListOfManyHostsIsWhole(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	var want []string
	for range 23 {
		host, _ := w.host(env)
		w.bind(admin, host, cluster)
		want = append(want, host[strings.LastIndex(host, "/")+1:])
	}
	check := func(path string, hosts []map[string]any, inventories bool) {
		var found []string
		for _, h := range hosts {
			found = append(found, h["id"].(string))
			inventory, _ := h["inventory"].(string)
			assert.Equal(t, inventories, strings.Contains(inventory, "52:54:00:00:00:01"), path)
		}
		assert.ElementsMatch(t, want, found, path)
	}
	for path, inventories := range map[string]bool{
		"/infra-envs/" + env + "/hosts": true, "/hosts?with-inventory=true": true, "/hosts": false, "/clusters/" + cluster + "/hosts?with-inventory=true": true,
	} {
		a := w.call(admin, "GET", path, nil)
		require.Equal(t, 200, a.status, a.raw)
		assert.Equal(t, "23", a.header.Get("X-Total-Count"))
		var hosts []map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.raw), &hosts), path)
		check(path, hosts, inventories)
	}
	a := w.call(admin, "GET", "/clusters/"+cluster, nil)
	var whole struct {
		Name  string           `json:"name"`
		Hosts []map[string]any `json:"hosts"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.raw), &whole), a.raw)
	assert.Equal(t, "c", whole.Name)
	check("the cluster", whole.Hosts, true)
	assert.Equal(t, "[]", strings.TrimSpace(w.call(admin, "GET", "/hosts?search=none-of-them", nil).raw))
	assert.Contains(t, w.call(admin, "GET", "/clusters/"+w.cluster(admin, "empty"), nil).raw, `"hosts":[]`)
	assert.NotContains(t, w.call(admin, "GET", "/clusters/"+cluster+"?exclude-hosts=true", nil).raw, `"hosts":`)
}
