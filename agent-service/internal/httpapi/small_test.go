// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnInfraEnvOfACluster(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := func(cluster, architecture string) answer {
		return w.call(admin, "POST", "/infra-envs", map[string]any{"name": "e", "pull_secret": `{"auths":{}}`, "cluster_id": cluster, "cpu_architecture": architecture})
	}
	cluster := w.cluster(admin, "c")
	assert.Equal(t, 404, env(uuid.NewString(), "x86_64").status, "the cluster is unknown")
	other := env(cluster, "aarch64")
	assert.Equal(t, 400, other.status)
	assert.Contains(t, other.text("reason"), "which is for x86_64")
	assert.Equal(t, 201, env(cluster, "x86_64").status)
}

func TestAddressesThatAreNoneAreRefused(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := "/infra-envs/"+w.infraEnv(admin, "e"), "/clusters/"+w.cluster(admin, "c")
	for _, address := range []string{"proxy", "ftp://proxy.example.com", "http://", "http://999.1.1.1:3128", "http://pro xy", "http://user:s3cr3t@999.1.1.1"} {
		for path, body := range map[string]any{env: map[string]any{"proxy": map[string]string{"http_proxy": address}}, cluster: map[string]string{"https_proxy": address}} {
			refused := w.call(admin, "PATCH", path, body)
			assert.Equal(t, 400, refused.status, "%s: %s", address, path)
			assert.NotContains(t, refused.raw, "s3cr3t")
		}
	}
	for field, bad := range map[string]string{"additional_ntp_source": "time.example.com,999.1.1.1", "no_proxy": "10.0.0.0/33", "machine_network_cidr": "999.1.1.1/24"} {
		assert.Equal(t, 400, w.call(admin, "PATCH", cluster, map[string]string{field: bad}).status, field)
	}
	assert.Equal(t, 400, w.call(admin, "PATCH", cluster, map[string]any{"api_vips": []any{map[string]any{"ip": "999.1.1.1"}}}).status)
	assert.Equal(t, 400, w.call(admin, "PATCH", env, map[string]string{"ntp_sources": "999.1.1.1"}).status)
	good := w.call(admin, "PATCH", cluster, map[string]string{
		"http_proxy": "http://user:pass@proxy.example.com:3128", "https_proxy": "http://[2001:db8::1]:3128/", "no_proxy": ".example.com,*.example.org,10.0.0.0/8,192.0.2.1,localhost,host:8080,*",
		"additional_ntp_source": "0.pool.ntp.org, 192.0.2.1,2001:db8::1",
	})
	assert.Equal(t, 201, good.status, good.raw)
}

func TestARefusedDeletionIsAnEvent(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(env)
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	require.Equal(t, 409, w.call(admin, "DELETE", "/infra-envs/"+env, nil).status)
	assert.Contains(t, w.call(admin, "GET", "/events?infra_env_id="+env, nil).raw, "infra_env_deregister_failed")
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/install", nil).status)
	require.Equal(t, 409, w.call(admin, "DELETE", "/clusters/"+cluster, nil).status)
	assert.Contains(t, w.call(admin, "GET", "/events?cluster_id="+cluster, nil).raw, "cluster_deregister_failed")
}

func TestTheRefusedDeletionOfAHostIsAnEvent(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	host, token := w.host(env)
	w.install(admin, host, token, cluster)
	require.Equal(t, 404, w.call(w.person("bob"), "DELETE", host, nil).status)
	assert.NotContains(t, w.call(admin, "GET", "/events?infra_env_id="+env, nil).raw, "host_deregister_failed", "what a stranger asks for is no event")
	refused := w.call(admin, "DELETE", host, nil)
	require.Equal(t, 409, refused.status, refused.raw)
	for _, of := range []string{"infra_env_id=" + env, "cluster_id=" + cluster, "host_id=" + host[strings.LastIndex(host, "/")+1:]} {
		assert.Contains(t, w.call(admin, "GET", "/events?"+of, nil).raw, "host_deregister_failed", of)
	}
}

func TestEventsOfDeletedHosts(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	gone, _ := w.host(env)
	there, _ := w.host(env)
	third, _ := w.host(env)
	require.Equal(t, 204, w.call(admin, "DELETE", gone, nil).status)
	id := func(path string) string { return path[strings.LastIndex(path, "/")+1:] }
	deleted := w.call(admin, "GET", "/events?deleted_hosts=true&infra_env_id="+env, nil)
	require.Equal(t, 200, deleted.status, deleted.raw)
	assert.Contains(t, deleted.raw, id(gone))
	assert.NotContains(t, deleted.raw, id(there))
	both := w.call(admin, "GET", "/events?deleted_hosts=true&infra_env_id="+env+"&host_ids="+id(there), nil)
	assert.Contains(t, both.raw, id(gone))
	assert.Contains(t, both.raw, id(there))
	assert.NotContains(t, both.raw, id(third))
	many := make([]string, 500)
	for i := range many {
		many[i] = uuid.NewString()
	}
	bulk := w.call(admin, "GET", "/events?infra_env_id="+env+"&host_ids="+strings.Join(append(many, id(there)), ","), nil)
	require.Equal(t, 200, bulk.status, bulk.raw)
	assert.Contains(t, bulk.raw, id(there))
	assert.NotContains(t, bulk.raw, id(third))
}

func TestALargeFileOfLogsIsTakenUpTo64MiB(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(env)
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	id := host[strings.LastIndex(host, "/")+1:]
	path := "/clusters/" + cluster + "/logs?" + url.Values{"logs_type": {"host"}, "infra_env_id": {env}, "host_id": {id}}.Encode()
	archive := func(size int) int { return w.upload(w.image(env), path, strings.Repeat("x", size)).status }
	assert.Equal(t, http.StatusNoContent, archive(64<<20))
	kept := w.call(admin, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil)
	assert.Len(t, kept.raw, 64<<20)
	assert.Equal(t, http.StatusRequestEntityTooLarge, archive(64<<20+1))
	assert.Equal(t, http.StatusRequestEntityTooLarge, archive(66<<20))
}

func TestReportsOfInstalledClustersAreAnswered(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(env)
	agent, stranger := caller{"X-Secret-Key": w.image(env)}, caller{"X-Secret-Key": w.image(w.infraEnv(admin, "f"))}
	for _, r := range []struct {
		method, path string
		body         any
		status       int
	}{
		{"GET", "/monitored-operators", nil, 200}, {"PUT", "/monitored-operators", map[string]any{"name": "console", "status": "available"}, 200},
		{"POST", "/uploads/ingress-cert", `"-----BEGIN CERTIFICATE-----"`, 201}, {"PUT", "/progress", map[string]any{"finalizing_stage": "Done"}, 200},
	} {
		path := "/clusters/" + cluster + r.path
		assert.Equal(t, 404, w.call(agent, r.method, path, r.body).status, "no host of it is in the cluster: %s", r.path)
		require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
		a := w.call(agent, r.method, path, r.body)
		assert.Equal(t, r.status, a.status, a.raw)
		assert.Equal(t, r.status, w.call(admin, r.method, path, r.body).status)
		assert.Equal(t, 404, w.call(stranger, r.method, path, r.body).status)
		require.Equal(t, 200, w.call(admin, "POST", host+"/actions/unbind", nil).status)
	}
	assert.JSONEq(t, "[]", w.call(admin, "GET", "/clusters/"+cluster+"/monitored-operators", nil).raw)
	for _, who := range []caller{admin, agent} {
		assert.Equal(t, 204, w.call(who, "GET", "/infra-envs/"+env+"/downloads/minimal-initrd", nil).status)
	}
	assert.Equal(t, 404, w.call(admin, "GET", "/infra-envs/"+uuid.NewString()+"/downloads/minimal-initrd", nil).status)
}

// Clients go through lists and read stages without a look whether they are there: assisted-service leaves none out.
func TestAReplyHasWhatClientsDoNotExpectToBeAbsent(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	cluster, env := w.cluster(admin, "c"), w.infraEnv(admin, "e")
	shown := w.call(admin, "GET", "/clusters/"+cluster, nil)
	for _, list := range []string{"api_vips", "ingress_vips", "machine_networks", "cluster_networks", "service_networks", "monitored_operators", "hosts"} {
		assert.Equal(t, []any{}, shown.body[list], list)
	}
	assert.Equal(t, map[string]any{}, shown.body["progress"])
	assert.Equal(t, map[string]any{"enable_on": "none", "mode": "tpmv2"}, shown.body["disk_encryption"], "aicli export cluster reads enable_on")
	assert.NotContains(t, w.call(admin, "GET", "/clusters", nil).raw, `"hosts"`, "a list does not read them")
	host, _ := w.host(env)
	assert.Equal(t, map[string]any{}, w.call(admin, "GET", host, nil).body["progress"], "it installs nothing yet")
}
