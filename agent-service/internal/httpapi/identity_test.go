// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
)

// TestAViewerReadsAndNothingElse asks for every operation of the interface with the token of an administrator who is a viewer.
func TestAViewerReadsAndNothingElse(t *testing.T) {
	w := newTestEnv(t)
	admin, viewer := w.person("root", "admins"), w.person("vera", "admins", "viewers")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	w.host(env)
	who := w.call(viewer, "GET", "/identity", nil)
	require.Equal(t, 200, who.status, who.raw)
	assert.JSONEq(t, `{"user_name":"vera","admin":true,"read_only":true}`, who.raw)
	assert.Contains(t, w.call(admin, "GET", "/identity", nil).raw, `"read_only":false`)
	for _, path := range []string{"/infra-envs", "/hosts", "/clusters", "/events?infra_env_id=" + env} {
		a := w.call(viewer, "GET", path, nil)
		require.Equal(t, 200, a.status, a.raw)
		assert.NotEqual(t, "[]", strings.TrimSpace(a.raw), path)
		assert.NotContains(t, a.raw, "token=", path)
	}
	description, err := openapi3.NewLoader().LoadFromData(api.Spec())
	require.NoError(t, err)
	fill := strings.NewReplacer("{infra_env_id}", env, "{cluster_id}", cluster, "{host_id}", uuid.NewString())
	example := func(s *openapi3.Schema) string {
		if len(s.Enum) > 0 {
			return fmt.Sprint(s.Enum[0])
		}
		return uuid.NewString()
	}
	secret := func(id string) bool {
		for _, word := range []string{"Download", "Presigned", "Credentials", "Ignition", "InstallConfig", "Manifest", "NextSteps", "FirstBoot", "UISettings"} {
			if strings.Contains(id, word) {
				return true
			}
		}
		return false
	}
	for path, item := range description.Paths.Map() {
		for method, operation := range item.Operations() {
			if strings.HasPrefix(operation.OperationID, "Stream") || strings.Contains(path, "{version}") {
				continue
			}
			query := url.Values{}
			for _, p := range operation.Parameters {
				if p.Value.In == "query" && p.Value.Required {
					query.Set(p.Value.Name, example(p.Value.Schema.Value))
				}
			}
			address := regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(fill.Replace(path), uuid.NewString())
			status := w.call(viewer, method, address+"?"+query.Encode(), nil).status
			if method == "GET" && !secret(operation.OperationID) || operation.OperationID == "CheckBindHost" {
				assert.NotEqual(t, 403, status, "%s changes nothing: list it among the reads of identity.go", operation.OperationID)
			} else {
				assert.Equal(t, 403, status, operation.OperationID)
			}
		}
	}
}

// TestAViewerGetsNoCredentials that objects hold: first-boot data, networks, and the password of a proxy.
func TestAViewerGetsNoCredentials(t *testing.T) {
	w := newTestEnv(t)
	admin, viewer := w.person("root", "admins"), w.person("vera", "admins", "viewers")
	env, cluster := "/infra-envs/"+w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(strings.TrimPrefix(env, "/infra-envs/"))
	w.bind(admin, host, cluster)
	const secret = "s3cr3t"
	ignition := `{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"core","passwordHash":"` + secret + `"}]}}`
	proxy := "http://me:" + secret + "@proxy.example.com:3128"
	for path, change := range map[string]any{
		env: map[string]any{
			"ignition_config_override": ignition, "proxy": map[string]string{"http_proxy": proxy},
			"static_network_config": []map[string]any{{
				"network_yaml":      "interfaces:\n- name: eth0\n  type: ethernet\n  802.1x: {identity: node, eap-methods: [tls], private-key-password: " + secret + "}\n",
				"mac_interface_map": []map[string]string{{"mac_address": "52:54:00:00:00:01", "logical_nic_name": "eth0"}},
			}},
		},
		"/clusters/" + cluster: map[string]any{"https_proxy": proxy},
		host + "/ignition":     map[string]any{"config": ignition},
	} {
		changed := w.call(admin, "PATCH", path, change)
		require.Equal(t, 201, changed.status, changed.raw)
	}
	for _, path := range []string{
		env, "/infra-envs", "/clusters/" + cluster, "/clusters?with_hosts=true", "/clusters/" + cluster + "/hosts", env + "/hosts", host, "/hosts", "/events?cluster_id=" + cluster,
	} {
		seen := w.call(viewer, "GET", path, nil)
		require.Equal(t, 200, seen.status, seen.raw)
		assert.NotContains(t, seen.raw, secret, path)
		if !strings.HasPrefix(path, "/events") {
			assert.Contains(t, w.call(admin, "GET", path, nil).raw, secret, path)
		}
		if path == env || path == "/clusters/"+cluster {
			assert.Contains(t, seen.raw, `"http://proxy.example.com:3128"`)
		}
	}
}
