// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAClusterIsUsedByItsCreatorAndItsHostsAreKeptByTheirOwner: an administrator bound a host of one to the cluster of the other.
func TestAClusterIsUsedByItsCreatorAndItsHostsAreKeptByTheirOwner(t *testing.T) {
	w := newTestEnv(t)
	admin, owner, creator, stranger := w.person("root", "admins"), w.person("olga"), w.person("carl"), w.person("joe")
	env, cluster := w.infraEnv(owner, "e"), w.cluster(creator, "c")
	require.Equal(t, 201, w.call(creator, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	host, token := w.host(env)
	id := host[strings.LastIndex(host, "/")+1:]
	require.Equal(t, 201, w.call(owner, "PATCH", host, map[string]any{"host_name": "rack-7"}).status)
	assert.Equal(t, 404, w.call(creator, "GET", host, nil).status, "it is free")
	w.bind(admin, host, cluster)

	for _, list := range []string{"/clusters/" + cluster, "/clusters/" + cluster + "/hosts?with-inventory=true"} {
		a := w.call(creator, "GET", list, nil)
		require.Equal(t, 200, a.status, a.raw)
		assert.Contains(t, a.raw, id, list)
		assert.NotContains(t, a.raw, "olga")
	}
	assert.Contains(t, w.call(creator, "GET", "/clusters/"+cluster+"/hosts?with-inventory=true", nil).raw, "physical_bytes")
	assert.Equal(t, 404, w.call(stranger, "GET", host, nil).status)
	assert.Equal(t, 404, w.call(stranger, "PATCH", host, map[string]any{"host_role": "worker"}).status)

	// The creator says how the host is used.
	used := w.call(creator, "PATCH", host, map[string]any{
		"host_role": "master", "host_name": "secret-name", "disks_selected_config": []any{map[string]any{"id": "d", "role": "install"}},
	})
	require.Equal(t, 201, used.status, used.raw)
	assert.Equal(t, "master", used.text("role"))
	assert.Equal(t, "d", used.text("installation_disk_id"))
	assert.NotContains(t, used.raw, "olga")
	require.Equal(t, 201, w.call(creator, "PATCH", host+"/ignition", map[string]any{"config": `{"ignition":{"version":"3.2.0"},"passwd":{"users":[{"name":"hush"}]}}`}).status)
	assert.Contains(t, w.call(creator, "GET", host+"/ignition", nil).raw, "hush")

	// The owner sees the host, and nothing of what it is used for.
	for _, path := range []string{host, host + "/ignition", "/infra-envs/" + env + "/hosts", "/events?infra_env_id=" + env} {
		a := w.call(owner, "GET", path, nil)
		require.Equal(t, 200, a.status, a.raw)
		for _, secret := range []string{"secret-name", "hush", "carl"} {
			assert.NotContains(t, a.raw, secret, path)
		}
	}
	assert.Equal(t, "rack-7", w.call(owner, "GET", host, nil).text("requested_hostname"), "its own name for it")
	for path, body := range map[string]any{"": map[string]any{"host_role": "worker"}, "/installer-args": map[string]any{"args": []string{"-n"}}, "/ignition": map[string]any{"config": ""}} {
		refused := w.call(owner, "PATCH", host+path, body)
		assert.Equal(t, 409, refused.status, refused.raw)
		assert.Contains(t, refused.text("reason"), "in a cluster of another user")
	}
	assert.Equal(t, 404, w.call(owner, "GET", "/clusters/"+cluster, nil).status)

	// The creator keeps no hosts.
	for verb, body := range map[string]any{"move": map[string]any{"cluster_id": w.cluster(creator, "other")}, "revoke-tokens": nil} {
		refused := w.call(creator, "POST", host+"/actions/"+verb, body)
		assert.Equal(t, 409, refused.status, "%s: %s", verb, refused.raw)
		assert.Contains(t, refused.text("reason"), "owner of its InfraEnv")
	}
	assert.Equal(t, 409, w.call(creator, "DELETE", host, nil).status)
	assert.Equal(t, 404, w.call(creator, "GET", "/infra-envs/"+env, nil).status)
	assert.Equal(t, 404, w.call(creator, "GET", "/infra-envs/"+env+"/hosts", nil).status)

	// First-boot data holds the secrets of the cluster, and logs may.
	started := w.call(creator, "POST", "/clusters/"+cluster+"/actions/install", nil)
	require.Equal(t, 202, started.status, started.raw)
	for step, output := range map[string]string{
		"installation-disk-speed-check": `{"path":"/dev/sda","io_sync_duration":4}`, "container-image-availability": `{"images":[{"name":"i","result":"success"}]}`,
	} {
		require.Equal(t, 204, w.call(caller{"X-Secret-Key": token}, "POST", host+"/instructions", map[string]any{"step_type": step, "step_id": step + "-1", "exit_code": 0, "output": output}).status)
	}
	assert.Equal(t, 404, w.call(owner, "GET", host+"/first-boot", nil).status)
	assert.Equal(t, 404, w.call(owner, "GET", host+"/instructions?wait=0", nil).status)
	require.Equal(t, 200, w.call(creator, "GET", host+"/first-boot", nil).status)
	require.Equal(t, 204, w.upload(token, "/clusters/"+cluster+"/logs?logs_type=host", "logs").status)
	assert.Equal(t, "logs", w.call(creator, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).raw)
	assert.Equal(t, 404, w.call(owner, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).status)

	// Both free it, and then it is the owner's alone.
	require.Equal(t, 202, w.call(creator, "POST", "/clusters/"+cluster+"/actions/cancel", nil).status)
	freed := w.call(owner, "POST", host+"/actions/unbind", nil)
	require.Equal(t, 200, freed.status, freed.raw)
	assert.NotContains(t, freed.raw, "secret-name")
	assert.Equal(t, 404, w.call(creator, "GET", host, nil).status)
	assert.Equal(t, "logs", w.call(creator, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).raw)
}
