// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"encoding/base64"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Users of assisted-service find each field that its clients may send on the page for them, with what it does here.
func TestThePageNamesEveryFieldOfARequest(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migration", "agent.md"))
	require.NoError(t, err)
	fields := 0
	for path, item := range assisted(t).Paths.Map() {
		for method, operation := range item.Operations() {
			if operation.RequestBody == nil || operation.RequestBody.Value == nil {
				continue
			}
			for _, media := range operation.RequestBody.Value.Content {
				for name := range media.Schema.Value.Properties {
					assert.Contains(t, string(page), "`"+name+"`", "%s of %s %s", name, method, path)
					fields++
				}
			}
		}
	}
	assert.Greater(t, fields, 100)
}

func TestNullAndEmptyValuesOfReportsAreAnsweredAsThePageSays(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, id := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(env)
	hostID, cluster := host[strings.LastIndex(host, "/")+1:], "/clusters/"+id
	manifest := map[string]any{"file_name": "a.yaml", "content": base64.StdEncoding.EncodeToString([]byte(manifestText))}
	event := map[string]any{"infra_env_id": env, "host_id": hostID, "name": "n", "severity": "info", "message": "m", "event_time": "2026-01-01T00:00:00Z"}
	with := func(body map[string]any, field string, value any) map[string]any {
		body = maps.Clone(body)
		body[field] = value
		return body
	}
	require.Equal(t, 201, w.call(admin, "POST", cluster+"/manifests", manifest).status)
	renamed := map[string]any{"folder": "manifests", "file_name": "a.yaml"}
	for _, c := range []struct {
		method, path string
		body         any
		want         int
	}{
		{"PATCH", cluster + "/install-config", `"{}"`, 201}, {"PATCH", cluster + "/install-config", `""`, 201}, {"PUT", cluster + "/ui-settings", `""`, 200},
		{"PUT", cluster + "/ignored-validations", map[string]any{"host-validation-ids": ""}, 201}, {"PUT", cluster + "/ignored-validations", map[string]any{"host-validation-ids": nil}, 400},
		{"PUT", cluster + "/ignored-validations", map[string]any{"cluster-validation-ids": `["all"]`}, 400},
		{"POST", cluster + "/manifests", with(manifest, "folder", nil), 400}, {"POST", cluster + "/manifests", with(manifest, "folder", ""), 400},
		{"POST", cluster + "/manifests", with(manifest, "content", nil), 400}, {"POST", cluster + "/manifests", with(manifest, "content", ""), 400},
		{"PATCH", cluster + "/manifests", with(renamed, "updated_folder", nil), 200}, {"PATCH", cluster + "/manifests", with(renamed, "updated_file_name", nil), 200},
		{"PATCH", cluster + "/manifests", with(renamed, "updated_content", nil), 200}, {"PATCH", cluster + "/manifests", with(renamed, "updated_content", ""), 400},
		{"PATCH", cluster + "/manifests", with(renamed, "updated_file_name", ""), 400}, {"PATCH", cluster + "/manifests", with(renamed, "updated_folder", ""), 400},
		{"POST", cluster + "/actions/complete-installation", map[string]any{"is_success": nil}, 400},
		{"POST", cluster + "/actions/complete-installation", map[string]any{"is_success": true, "data": nil}, 400},
		{"PUT", cluster + "/progress", map[string]any{"finalizing_stage": nil}, 400}, {"PUT", cluster + "/progress", map[string]any{}, 200},
		{"PUT", cluster + "/monitored-operators", map[string]any{"status_info": nil}, 400}, {"PUT", cluster + "/monitored-operators", map[string]any{"status_info": ""}, 200},
		{"PUT", host + "/progress", map[string]any{"current_stage": ""}, 400}, {"PUT", host + "/progress", map[string]any{"current_stage": nil}, 400},
		{"PUT", host + "/logs-progress", map[string]any{"logs_state": ""}, 400}, {"PUT", host + "/logs-progress", map[string]any{"logs_state": nil}, 400},
		{"POST", "/events", event, 201}, {"POST", "/events", with(event, "host_id", nil), 400}, {"POST", "/events", with(event, "props", ""), 201},
		{"POST", "/events", with(event, "props", "no JSON"), 400}, {"POST", "/events", with(event, "cluster_id", id), 404}, {"POST", "/events", with(event, "name", "host_status_updated"), 400},
	} {
		a := w.call(admin, c.method, c.path, c.body)
		assert.Equal(t, c.want, a.status, "%s %s %v: %s", c.method, c.path, c.body, a.raw)
	}
}

// Lists within the entries of a list are null where a generated client has none.
func TestANetworkWithoutAMapOfItsCardsIsTakenAsOneWithNullForIt(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	network := map[string]any{"network_yaml": "interfaces:\n- {name: eth0, type: ethernet, state: up, mac-address: \"52:54:00:00:00:01\"}\n"}
	for _, null := range []bool{false, true} {
		if null {
			network["mac_interface_map"] = nil
		}
		a := w.call(admin, "PATCH", "/infra-envs/"+env, map[string]any{"static_network_config": []any{network}})
		require.Equal(t, 201, a.status, a.raw)
		assert.Contains(t, a.text("static_network_config"), "eth0")
	}
}
