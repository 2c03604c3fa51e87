// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHostsAreAllocatedOverREST(t *testing.T) {
	w := newTestEnv(t)
	olga, anna, joe := w.person("olga"), w.person("anna"), w.person("joe")
	env := w.infraEnv(olga, "e")
	cluster := w.cluster(olga, "c")
	first, _ := w.host(env)
	second, _ := w.host(env)
	for _, host := range []string{first, second} {
		labelled := w.call(olga, "PATCH", host, map[string]any{"node_labels": []any{map[string]any{"key": "rack", "value": "a"}}})
		require.Equal(t, http.StatusCreated, labelled.status, labelled.raw)
	}
	ask := map[string]any{"count": 3, "label_selector": "rack in (a,b)", "minimum": map[string]any{"memory_gib": 64, "cpu_cores": 16, "disk_gb": 480}}
	few := w.call(olga, "POST", "/allocations", ask)
	require.Equal(t, http.StatusConflict, few.status, few.raw)
	assert.Equal(t, "2 of 3 hosts can be allocated: 2 hosts match; 2 free", few.text("reason"))
	none := w.call(joe, "POST", "/allocations", ask)
	assert.Equal(t, "0 of 3 hosts can be allocated: no host matches", none.text("reason"))

	ask["count"], ask["reservation_minutes"] = 1, 30
	made := w.call(olga, "POST", "/allocations", ask)
	require.Equal(t, http.StatusCreated, made.status, made.raw)
	until, err := time.Parse(time.RFC3339, made.text("reserved_until"))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(30*time.Minute), until, patience)
	hosts, _ := made.body["hosts"].([]any)
	require.Len(t, hosts, 1)
	chosen, _ := hosts[0].(map[string]any)
	path := "/infra-envs/" + env + "/hosts/" + chosen["id"].(string)
	shown, _ := w.call(olga, "GET", path, nil).body["reservation"].(map[string]any)
	assert.Equal(t, map[string]any{"allocation_id": made.text("id"), "user_name": "olga", "until": made.text("reserved_until")}, shown)

	admin := w.call(w.person("root", "admins"), "POST", path+"/actions/bind", map[string]any{"cluster_id": cluster})
	assert.Equal(t, http.StatusConflict, admin.status, admin.raw)
	assert.Contains(t, admin.text("reason"), "is reserved by another user until")
	assert.Equal(t, http.StatusNotFound, w.call(anna, "DELETE", "/allocations/"+made.text("id"), nil).status)
	assert.Equal(t, http.StatusNoContent, w.call(olga, "DELETE", "/allocations/"+made.text("id"), nil).status)
	assert.NotContains(t, w.call(olga, "GET", path, nil).body, "reservation")

	ask["count"], ask["cluster_id"] = 2, cluster
	bound := w.call(olga, "POST", "/allocations", ask)
	require.Equal(t, http.StatusCreated, bound.status, bound.raw)
	assert.NotContains(t, bound.body, "reserved_until")
	assert.Equal(t, cluster, w.call(olga, "GET", path, nil).text("cluster_id"))

	for body, want := range map[string]string{
		`{"count":0}`: "count", `{}`: "count", `{"count":1,"label_selector":"rack in"}`: "label_selector", `{"count":1,"reservation_minutes":1441}`: "reservation_minutes",
	} {
		refused := w.call(olga, "POST", "/allocations", body)
		assert.Equal(t, http.StatusBadRequest, refused.status, body)
		assert.Contains(t, refused.text("reason"), want)
	}
	machine := w.call(caller{"X-Secret-Key": w.image(env)}, "POST", "/allocations", ask)
	assert.Equal(t, http.StatusForbidden, machine.status, machine.raw)
}
