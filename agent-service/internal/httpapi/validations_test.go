// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// clusterChecks reads validations_info of a cluster: JSON as text, by category, as assisted-service answers. The result is status and message by category and id.
func clusterChecks(t *testing.T, info string) map[string]map[string][2]string {
	t.Helper()
	var byCategory map[string][]map[string]string
	require.NoError(t, json.Unmarshal([]byte(info), &byCategory), info)
	found := map[string]map[string][2]string{}
	for category, entries := range byCategory {
		found[category] = map[string][2]string{}
		for _, entry := range entries {
			require.Len(t, entry, 3, info)
			found[category][entry["id"]] = [2]string{entry["status"], entry["message"]}
		}
	}
	return found
}

func TestAClusterSaysOverRESTWhatIsMissingAndMet(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	env, cluster := w.infraEnv(olga, "e"), w.cluster(olga, "c")
	shown := func() map[string]map[string][2]string {
		t.Helper()
		one := clusterChecks(t, w.call(olga, "GET", "/clusters/"+cluster, nil).text("validations_info"))
		var list []map[string]any
		require.NoError(t, json.Unmarshal([]byte(w.call(olga, "GET", "/clusters", nil).raw), &list))
		require.Len(t, list, 1)
		info, _ := list[0]["validations_info"].(string)
		require.Equal(t, one, clusterChecks(t, info))
		return one
	}
	assert.Equal(t, map[string]map[string][2]string{
		"configuration": {"pull-secret-set": {"success", "The pull secret is set"}},
		"network": {
			"dns-domain-defined": {"failure", "The cluster has no base domain: set one"},
			"api-vips-defined":   {"failure", "The addresses of the API are not defined: set them, or user managed networking"},
		},
		"hosts-data": {
			"all-hosts-are-ready-to-install": {"success", "All hosts in the cluster are ready to install"},
			"sufficient-masters-count":       {"failure", "The cluster needs 3 hosts of the control plane and has 0"},
		},
	}, shown())

	updated := w.call(olga, "PATCH", "/clusters/"+cluster, map[string]any{
		"base_dns_domain": "example.com", "api_vips": []any{map[string]any{"ip": "10.0.0.250"}}, "control_plane_count": 1, "machine_networks": []any{map[string]any{"cidr": "192.0.2.0/24"}},
	})
	require.Equal(t, http.StatusCreated, updated.status, updated.raw)
	host, _ := w.host(env)
	bound := w.call(olga, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster})
	require.Equal(t, http.StatusOK, bound.status, bound.raw)
	checks := shown()
	assert.Equal(t, "success", checks["network"]["dns-domain-defined"][0])
	assert.Equal(t, "success", checks["network"]["api-vips-defined"][0])
	assert.Equal(t, [2]string{"failure", "Not ready to install: 1 host of the cluster"}, checks["hosts-data"]["all-hosts-are-ready-to-install"])
	assert.Equal(t, "success", checks["hosts-data"]["sufficient-masters-count"][0])

	worker := w.call(olga, "PATCH", host, map[string]any{"host_role": "worker"})
	require.Equal(t, http.StatusCreated, worker.status, worker.raw)
	assert.Equal(t, [2]string{"failure", "The cluster needs 1 host of the control plane and has 0"}, shown()["hosts-data"]["sufficient-masters-count"])
	require.Equal(t, http.StatusOK, w.call(olga, "POST", host+"/actions/unbind", nil).status)
	assert.Equal(t, "success", shown()["hosts-data"]["all-hosts-are-ready-to-install"][0])

	imported := w.call(olga, "POST", "/clusters/import", map[string]any{"name": "d", "api_vip_dnsname": "api.d.example.com", "openshift_cluster_id": uuid.NewString()})
	require.Equal(t, http.StatusCreated, imported.status, imported.raw)
	assert.NotContains(t, imported.body, "validations_info", "an imported cluster is installed already")
}
