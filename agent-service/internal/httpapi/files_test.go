// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
)

// TestEveryOperationOfAssistedServiceHasAnAnswer: it is served, or refused with a reason that the page for users of assisted-service gives, too.
func TestEveryOperationOfAssistedServiceHasAnAnswer(t *testing.T) {
	old := assisted(t)
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "migration", "agent.md"))
	require.NoError(t, err)
	refused := map[string]bool{}
	for path, item := range old.Paths.Map() {
		path = strings.TrimPrefix(path, "/v2")
		for method := range item.Operations() {
			got := w.call(admin, method, strings.NewReplacer("{", "", "}", "").Replace(path), map[string]any{})
			assert.NotEqual(t, http.StatusMethodNotAllowed, got.status, "%s %s", method, path)
			assert.Less(t, got.status, 500, "%s %s", method, path)
			reason := got.text("reason")
			assert.NotContains(t, reason, "there is nothing at this path", "%s %s", method, path)
			if why, unserved := strings.CutPrefix(reason, "this service does not have this: "); unserved {
				assert.Contains(t, string(page), "`"+method+" "+path+"`")
				assert.Contains(t, string(page), why)
				refused[method+" "+path] = true
			}
		}
	}
	_, section, found := strings.Cut(string(page), "\n## What is not served\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\|").FindAllStringSubmatch(section, -1) {
		assert.True(t, refused[row[1]], "docs/migration/agent.md lists %s, which is served", row[1])
	}
}

const manifestText = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"

func TestManifestsReachTheHostThatBringsUpTheControlPlane(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	path := "/clusters/" + cluster + "/manifests"
	encoded := base64.StdEncoding.EncodeToString([]byte(manifestText))
	made := w.call(admin, "POST", path, map[string]any{"file_name": "a.yaml", "content": encoded})
	require.Equal(t, 201, made.status, made.raw)
	assert.Equal(t, "manifests", made.text("folder"))
	for name, wrong := range map[string]map[string]any{
		"not base64": {"file_name": "b.yaml", "content": "%"}, "not YAML": {"file_name": "b.yaml", "content": base64.StdEncoding.EncodeToString([]byte("a: [\n"))},
		"a path": {"file_name": "../b.yaml", "content": encoded}, "no content": {"file_name": "b.yaml", "content": ""},
	} {
		assert.Equal(t, 400, w.call(admin, "POST", path, wrong).status, name)
	}
	renamed := w.call(admin, "PATCH", path, map[string]any{"folder": "manifests", "file_name": "a.yaml", "updated_folder": "openshift", "updated_file_name": "b.yaml"})
	require.Equal(t, 200, renamed.status, renamed.raw)
	assert.Equal(t, 404, w.call(admin, "GET", path+"/files?file_name=a.yaml", nil).status)
	assert.Equal(t, manifestText, w.call(admin, "GET", path+"/files?folder=openshift&file_name=b.yaml", nil).raw)
	assert.JSONEq(t, `[{"folder":"openshift","file_name":"b.yaml","manifest_source":"user"}]`, w.call(admin, "GET", path, nil).raw)
	assert.Contains(t, w.call(admin, "GET", "/clusters/"+cluster+"/downloads/files?file_name=custom_manifests.json", nil).raw, encoded)
	assert.Equal(t, 404, w.call(w.person("bob"), "GET", path, nil).status)

	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	host, token := w.host(env)
	w.install(admin, host, token, cluster)
	first := w.call(caller{"X-Secret-Key": token}, "GET", host+"/first-boot", nil)
	require.Equal(t, 200, first.status, first.raw)
	assert.Contains(t, first.raw, "/opt/openshift/openshift/b.yaml")
	assert.Contains(t, first.raw, encoded)
	assert.Equal(t, 409, w.call(admin, "DELETE", path+"?folder=openshift&file_name=b.yaml", nil).status, "not while it installs")
}

// install brings a host to writing its disk.
func (w *testEnv) install(who caller, host, token, cluster string) {
	w.t.Helper()
	agent := caller{"X-Secret-Key": token}
	require.Equal(w.t, 200, w.call(who, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	started := w.call(who, "POST", "/clusters/"+cluster+"/actions/install", nil)
	require.Equal(w.t, 202, started.status, started.raw)
	for step, output := range map[string]string{
		"installation-disk-speed-check": `{"path":"/dev/sda","io_sync_duration":4}`, "container-image-availability": `{"images":[{"name":"i","result":"success"}]}`,
	} {
		require.Equal(w.t, 204, w.call(agent, "POST", host+"/instructions", map[string]any{"step_type": step, "step_id": step + "-1", "exit_code": 0, "output": output}).status)
	}
}

func TestTheInstallConfigIsShownWithItsOverridesAndWithoutSecrets(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	cluster := w.cluster(admin, "c")
	path := "/clusters/" + cluster + "/install-config"
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{
		"pull_secret": `{"auths":{"secret":{}}}`, "base_dns_domain": "example.com", "machine_networks": []any{map[string]any{"cidr": "10.0.0.0/24"}},
	}).status)
	require.Equal(t, 201, w.call(admin, "PATCH", path, `"{\"networking\":{\"networkType\":\"Other\"},\"fips\":true}"`).status)
	shown := w.call(admin, "GET", path, nil)
	for _, part := range []string{"baseDomain: example.com", "networkType: Other", "cidr: 10.0.0.0/24", "fips: true"} {
		assert.Contains(t, shown.raw, part)
	}
	assert.NotContains(t, shown.raw, "secret")
	assert.Equal(t, 400, w.call(admin, "PATCH", path, `"[]"`).status)
	assert.Equal(t, 400, w.call(admin, "PATCH", path, `"{\"pullSecret\":\"x\"}"`).status)
	require.Equal(t, 201, w.call(admin, "PATCH", path, `"{}"`).status)
	assert.NotContains(t, w.call(admin, "GET", path, nil).raw, "fips")
	assert.Equal(t, 404, w.call(w.person("bob"), "GET", path, nil).status)
}

func TestAnAddressOfADownloadOpensThatAndNothingElse(t *testing.T) {
	w := newTestEnv(t)
	admin, alice := w.person("root", "admins"), w.person("alice")
	cluster, other := w.cluster(alice, "c"), w.cluster(alice, "d")
	signed := w.call(alice, "GET", "/clusters/"+cluster+"/downloads/files-presigned?file_name=install-config.yaml", nil)
	require.Equal(t, 200, signed.status, signed.raw)
	path := strings.TrimPrefix(signed.text("url"), api.Base)
	require.Equal(t, 200, w.call(nil, "GET", path, nil).status)
	_, token, _ := strings.Cut(path, "api_key=")
	token = "api_key=" + token
	for _, elsewhere := range []string{
		"/clusters/" + cluster + "/downloads/files?file_name=custom_manifests.json&", "/clusters/" + other + "/downloads/files?file_name=install-config.yaml&",
		"/clusters/" + cluster + "/downloads/credentials?file_name=kubeconfig&", "/clusters?", "/clusters/" + cluster + "?",
	} {
		assert.Equal(t, 401, w.call(nil, "GET", elsewhere+token, nil).status, elsewhere)
	}
	w.later(61 * time.Minute)
	expired := w.call(nil, "GET", path, nil)
	assert.Equal(t, 401, expired.status)
	assert.Contains(t, expired.text("reason"), "expired")
	assert.Equal(t, 404, w.call(w.person("bob"), "GET", "/clusters/"+cluster+"/downloads/files-presigned?file_name=install-config.yaml", nil).status)
	assert.Equal(t, 409, w.call(alice, "GET", "/clusters/"+cluster+"/downloads/credentials-presigned?file_name=kubeconfig", nil).status, "there is none yet")
	assert.Equal(t, 409, w.call(admin, "GET", "/clusters/"+cluster+"/credentials", nil).status)
}

// upload sends an archive of logs as the installer of assisted-service does.
func (w *testEnv) upload(token, path, content string) answer {
	w.t.Helper()
	var form bytes.Buffer
	writer := multipart.NewWriter(&form)
	part, err := writer.CreateFormFile("upfile", "logs.tar.gz")
	require.NoError(w.t, err)
	_, err = io.WriteString(part, content)
	require.NoError(w.t, errors.Join(err, writer.Close()))
	return w.call(caller{"X-Secret-Key": token, "Content-Type": writer.FormDataContentType()}, "POST", path, form.String())
}

func TestLogsAreKeptOfHostsThatAreInTheCluster(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster, other := w.infraEnv(admin, "e"), w.cluster(admin, "c"), w.cluster(admin, "d")
	host, token := w.host(env)
	id := host[strings.LastIndex(host, "/")+1:]
	query := "?logs_type=host&infra_env_id=" + env + "&host_id=" + id
	assert.Equal(t, 404, w.upload(token, "/clusters/"+cluster+"/logs"+query, "x").status, "it is free")
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	assert.Equal(t, 404, w.call(admin, "GET", "/clusters/"+cluster+"/logs", nil).status, "there are none yet")
	require.Equal(t, 204, w.call(caller{"X-Secret-Key": token}, "PUT", host+"/logs-progress", map[string]any{"logs_state": "collecting"}).status)
	assert.Equal(t, "collecting", w.call(admin, "GET", host, nil).text("logs_info"))
	got := w.upload(token, "/clusters/"+cluster+"/logs"+query, "\x1f\x8b\x00logs\\u0000")
	require.Equal(t, 204, got.status, got.raw)
	require.Equal(t, 204, w.upload(token, "/clusters/"+cluster+"/logs?logs_type=controller", "of the controller").status)
	assert.Equal(t, "completed", w.call(admin, "GET", host, nil).text("logs_info"))
	assert.Equal(t, 404, w.upload(token, "/clusters/"+other+"/logs"+query, "x").status)
	_, stranger := w.host(env)
	assert.Equal(t, 404, w.upload(stranger, "/clusters/"+cluster+"/logs"+query, "x").status)

	assert.Equal(t, "\x1f\x8b\x00logs\\u0000", w.call(admin, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).raw)
	assert.Equal(t, "of the controller", w.call(admin, "GET", "/clusters/"+cluster+"/logs?logs_type=controller", nil).raw)
	archive := tar.NewReader(strings.NewReader(w.call(admin, "GET", "/clusters/"+cluster+"/logs", nil).raw))
	var names []string
	for entry, err := archive.Next(); !errors.Is(err, io.EOF); entry, err = archive.Next() {
		require.NoError(t, err)
		names = append(names, entry.Name)
	}
	assert.ElementsMatch(t, []string{"logs/" + id + ".tar.gz", "logs/controller.tar.gz"}, names)
	assert.Equal(t, 403, w.call(caller{"X-Secret-Key": token}, "GET", "/clusters/"+cluster+"/downloads/files?file_name=install-config.yaml", nil).status, "a host reads nothing of its cluster")
}

func TestAHostThatSendsLogsLeavesATurnToOthers(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	slow, slowToken := w.host(env)
	other, token := w.host(env)
	for _, host := range []string{slow, other} {
		require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	}
	path := "/clusters/" + cluster + "/logs?logs_type=host"
	body, rest := io.Pipe()
	defer func() { _ = rest.Close() }()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+api.Base+path, body)
	require.NoError(t, err)
	request.Header.Set("X-Secret-Key", slowToken)
	request.Header.Set("Content-Type", "multipart/form-data; boundary=b")
	request.Header.Set("Expect", "100-continue")
	transport := &http.Transport{ExpectContinueTimeout: patience}
	defer transport.CloseIdleConnections()
	left := make(chan struct{})
	go func() {
		defer close(left)
		if response, err := (&http.Client{Transport: transport}).Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	_, err = rest.Write([]byte("--b\r\n")) // which is sent when the service reads it: the host has its turn
	require.NoError(t, err)
	assert.Equal(t, 503, w.upload(slowToken, path, "x").status, "it sends logs already")
	got := w.upload(token, path, "y")
	require.Equal(t, 204, got.status, got.raw)
	require.NoError(t, rest.CloseWithError(errors.New("it restarts")))
	<-left
	require.Eventually(t, func() bool { return w.upload(slowToken, path, "x").status == 204 }, patience, 10*time.Millisecond)
}

func TestIgnoredAndRepeatedValidations(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, token := w.host(env)
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	path := "/clusters/" + cluster + "/ignored-validations"
	set := w.call(admin, "PUT", path, map[string]any{"host-validation-ids": `["ntp-synced"]`, "cluster-validation-ids": "[]"})
	require.Equal(t, 201, set.status, set.raw)
	assert.Equal(t, `["ntp-synced"]`, w.call(admin, "GET", path, nil).text("host-validation-ids"))
	assert.Equal(t, 400, w.call(admin, "PUT", path, map[string]any{"host-validation-ids": `["connected"]`}).status)
	assert.Equal(t, 400, w.call(admin, "PUT", path, map[string]any{"host-validation-ids": "ntp-synced"}).status)
	all := w.call(admin, "PUT", path, map[string]any{"host-validation-ids": `["all"]`})
	assert.Contains(t, all.text("host-validation-ids"), "mtu-valid")

	agent := caller{"X-Secret-Key": token}
	require.Equal(t, 200, w.call(agent, "GET", host+"/instructions?wait=0", nil).status)
	assert.Empty(t, w.call(agent, "GET", host+"/instructions?wait=0", nil).body["instructions"])
	require.Equal(t, 200, w.call(admin, "PATCH", host+"/actions/reset-validation/container-images-available", nil).status)
	assert.NotEmpty(t, w.call(agent, "GET", host+"/instructions?wait=0", nil).body["instructions"], "the agent tries again")
	assert.Equal(t, 400, w.call(admin, "PATCH", host+"/actions/reset-validation/hostname-valid", nil).status)
}

func TestRequestsOfUserInterfaces(t *testing.T) {
	old := assisted(t)
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	cluster := w.cluster(admin, "c")
	form := &fieldAgent{testEnv: w, assisted: old}
	form.sees("cluster_default_config", w.call(admin, "GET", "/clusters/default-config", nil).body)
	requirements := w.call(admin, "GET", "/clusters/"+cluster+"/preflight-requirements", nil)
	form.sees("preflight-hardware-requirements", requirements.body)
	assert.Contains(t, requirements.raw, `"ram_mib":16384`)
	form.sees("support-levels", w.call(admin, "GET", "/support-levels/features?openshift_version=4.20", nil).body["features"])
	for _, one := range w.call(admin, "GET", "/support-levels/features/detailed?openshift_version=4.20", nil).body["features"].([]any) {
		form.sees("feature", one)
	}
	assert.Equal(t, "supported", w.call(admin, "GET", "/support-levels/architectures?openshift_version=4.20", nil).body["architectures"].(map[string]any)["X86_64_ARCHITECTURE"])
	assert.Equal(t, 400, w.call(admin, "GET", "/support-levels/architectures?openshift_version=1.0", nil).status)
	assert.JSONEq(t, "[]", w.call(admin, "GET", "/supported-operators", nil).raw)
	require.Equal(t, 200, w.call(admin, "PUT", "/clusters/"+cluster+"/ui-settings", `"{\"a\":1}"`).status)
	assert.JSONEq(t, `"{\"a\":1}"`, w.call(admin, "GET", "/clusters/"+cluster+"/ui-settings", nil).raw)
	assert.Equal(t, 409, w.call(admin, "POST", "/clusters/"+cluster+"/actions/allow-add-hosts", nil).status, "it is not installed")

	imported := w.call(admin, "POST", "/clusters/import", map[string]any{"name": "far", "api_vip_dnsname": "api.far.example.com", "openshift_cluster_id": "5f5a8f0f-3a7d-4b8c-9d0e-1f2a3b4c5d6e"})
	require.Equal(t, 201, imported.status, imported.raw)
	assert.Equal(t, "AddHostsCluster", imported.text("kind"))
	assert.Equal(t, "example.com", imported.text("base_dns_domain"))
	form.sees("cluster", imported.body)
	assert.Equal(t, "5f5a8f0f-3a7d-4b8c-9d0e-1f2a3b4c5d6e", imported.text("openshift_cluster_id"))
	for _, taken := range []string{imported.text("openshift_cluster_id"), imported.text("id"), cluster} {
		again := w.call(w.person("joe"), "POST", "/clusters/import", map[string]any{"name": "far", "api_vip_dnsname": "api.far.example.com", "openshift_cluster_id": taken})
		require.Equal(t, 201, again.status, "ids of others answer like ids that are free: %s", again.raw)
		assert.NotEqual(t, taken, again.text("id"))
	}
	for server, want := range map[string][3]string{ // name, domain, address
		"api.near.example.com": {"near", "example.com", ""}, "192.0.2.9": {"near-day2", "<nil>", "192.0.2.9"}, "2001:db8::9": {"near-day2", "<nil>", "2001:db8::9"},
		"lb.example.com": {"near-day2", "<nil>", ""},
	} {
		got := w.call(admin, "POST", "/clusters/import", map[string]any{"name": "near-day2", "api_vip_dnsname": server, "openshift_cluster_id": "5f5a8f0f-3a7d-4b8c-9d0e-1f2a3b4c5d6f"})
		require.Equal(t, 201, got.status, got.raw)
		address := ""
		if vips := got.body["api_vips"].([]any); len(vips) > 0 {
			address = vips[0].(map[string]any)["ip"].(string)
		}
		assert.Equal(t, want, [3]string{got.text("name"), got.text("base_dns_domain"), address}, server)
	}
	assert.Equal(t, 202, w.call(admin, "POST", "/clusters/"+imported.text("id")+"/actions/allow-add-hosts", nil).status)
	found := w.call(w.person("joe"), "GET", "/clusters?limit=1&openshift_cluster_id="+imported.text("openshift_cluster_id"), nil)
	assert.Equal(t, "1", found.header.Get("X-Total-Count"))
	assert.NotContains(t, found.raw, imported.text("id"), "it is another's")
	assert.JSONEq(t, "[]", w.call(admin, "GET", "/clusters?openshift_cluster_id=00000000-0000-4000-8000-000000000000", nil).raw)
}
