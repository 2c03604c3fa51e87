// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
)

func TestADatabaseThatIsAwayAnswersThatItComesBack(t *testing.T) {
	server := postgrestest.Start(t)
	w := newTestEnvOn(t, server.URL)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, token := w.host(env)
	agent := caller{"X-Secret-Key": token}
	require.Equal(t, 200, w.call(agent, "GET", host+"/instructions?wait=0", nil).status)
	server.Down()
	for request, body := range map[string]any{
		"GET /infra-envs": nil, "GET " + host: nil, "GET /events?infra_env_id=" + env: nil, "POST /infra-envs": map[string]any{"name": "f", "pull_secret": `{"auths":{}}`},
		"POST " + host + "/actions/bind": map[string]any{"cluster_id": cluster}, "PATCH " + host: map[string]any{"host_name": "n"}, "DELETE " + host: nil,
		"POST /infra-envs/" + env + "/hosts": map[string]any{"host_id": uuid.NewString()}, "GET /clusters/" + cluster + "/manifests": nil,
	} {
		method, path, _ := strings.Cut(request, " ")
		refused := w.call(admin, method, path, body)
		assert.Equal(t, 503, refused.status, "%s: %s", request, refused.raw)
		seconds, err := strconv.Atoi(refused.header.Get("Retry-After"))
		require.NoError(t, err, request)
		assert.Positive(t, seconds)
		assert.Contains(t, refused.text("reason"), "database", request)
		assert.NotContains(t, refused.raw, "postgres", request)
	}
	assert.Less(t, w.call(agent, "GET", host+"/instructions?wait=0", nil).status, 504, "known hosts are answered from memory, the rest with 503")
	server.Up()
	require.Eventually(t, func() bool { return w.call(admin, "GET", host, nil).status == 200 }, patience, 100*time.Millisecond)
	assert.Equal(t, "known-unbound", w.call(admin, "GET", host, nil).text("status"), "our own outage disconnected no host")
	assert.Equal(t, 200, w.call(agent, "GET", host+"/instructions?wait=0", nil).status)
}

func TestTextsOfAgentsAreKeptWithoutNUL(t *testing.T) {
	for name, w := range map[string]*testEnv{"SQLite": newTestEnv(t), "PostgreSQL": newTestEnvOn(t, postgrestest.Start(t).URL)} {
		admin := w.person("root", "admins")
		host, token := w.host(w.infraEnv(admin, "e"))
		for step, output := range map[string]string{
			"inventory":                    `{"hostname":"a\u0000b","disks":[{"id":"d\u0000","name":"sda","path":"/dev/sda"}],"system_vendor":{"product_name":"c:\\u0000\u0000"}}`,
			"ntp-synchronizer":             `{"ntp_sources":[{"source_name":"time\u0000","source_state":"synced"}]}`,
			"container-image-availability": `{"images":[{"name":"image\u0000","result":"failure"}]}`,
		} {
			a := w.call(caller{"X-Secret-Key": token}, "POST", host+"/instructions", map[string]any{"step_type": step, "step_id": step + "-1\x00", "exit_code": 0, "output": output, "error": "\x00"})
			assert.Equal(t, 204, a.status, "%s: %s: %s", name, step, a.raw)
		}
		shown := w.call(admin, "GET", host, nil)
		require.Equal(t, 200, shown.status)
		assert.JSONEq(t, `{"hostname":"ab","disks":[{"id":"d","name":"sda","path":"/dev/sda"}],"system_vendor":{"product_name":"c:\\u0000"}}`, shown.text("inventory"), name)
		assert.Contains(t, shown.text("ntp_sources"), `"time"`)
	}
}

func TestADatabaseThatHangsAnswersThatItComesBack(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	w := newTestEnvOn(t, server.URL)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	host, token := w.host(env)
	agent := caller{"X-Secret-Key": token}
	require.Equal(t, 200, w.call(agent, "GET", host+"/instructions?wait=0", nil).status)
	server.Hang()
	t.Cleanup(server.GoOn)
	var wait sync.WaitGroup
	for request, body := range map[string]any{
		"GET " + host: nil, "PATCH " + host: map[string]any{"host_name": "n"}, "POST /infra-envs/" + env + "/hosts": map[string]any{"host_id": uuid.NewString()},
	} {
		method, path, _ := strings.Cut(request, " ")
		wait.Go(func() {
			refused := w.call(admin, method, path, body)
			assert.Equal(t, 503, refused.status, "%s: %s", request, refused.raw)
			assert.NotEmpty(t, refused.header.Get("Retry-After"), request)
		})
	}
	wait.Go(func() { assert.Equal(t, domain.Unavailable, domain.KindOf(w.service.Ready(t.Context()))) })
	wait.Wait()
	server.GoOn()
	require.Eventually(t, func() bool { return w.call(admin, "GET", host, nil).status == 200 }, patience, 100*time.Millisecond)
	assert.Equal(t, "known-unbound", w.call(admin, "GET", host, nil).text("status"))
	require.Eventually(t, func() bool { return w.call(agent, "GET", host+"/instructions?wait=0", nil).status == 200 }, patience, 100*time.Millisecond)
}

// gone is a client that went away before the answer came.
type gone struct {
	*httptest.ResponseRecorder
	statuses []int
}

// WriteHeader implements http.ResponseWriter.
func (g *gone) WriteHeader(status int) { g.statuses = append(g.statuses, status) }

// Write implements http.ResponseWriter.
func (*gone) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestAClientThatWentAwayGetsNoSecondAnswer(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	for path, status := range map[string]int{"/infra-envs": 200, "/infra-envs/" + env: 200, "/infra-envs/" + uuid.NewString(): 404, "/events?infra_env_id=" + env: 200} {
		request := httptest.NewRequestWithContext(t.Context(), "GET", "/api/assisted-install/v2"+path, nil)
		request.Header.Set("Authorization", admin["Authorization"])
		client := &gone{ResponseRecorder: httptest.NewRecorder()}
		w.server.Config.Handler.ServeHTTP(client, request)
		assert.Equal(t, []int{status}, client.statuses, path)
	}
}

func TestAnInventoryOf15000DisksIsTakenAndCut(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	host, token := w.host(env)
	other, _ := w.host(env)
	var large map[string]any
	require.NoError(t, json.Unmarshal([]byte(inventory), &large))
	disks := large["disks"].([]any)
	for i := range 15000 {
		disks = append(disks, map[string]any{
			"id": fmt.Sprintf("/dev/disk/by-id/wwn-0x%016x", i), "name": fmt.Sprintf("sd%d", i), "path": fmt.Sprintf("/dev/sd%d", i), "drive_type": "HDD", "size_bytes": 1e12, "serial": fmt.Sprintf("S%015d", i),
			"wwn": fmt.Sprintf("0x%016x", i), "model": "M", "vendor": "V", "hctl": "0:0:0:0", "smart": strings.Repeat("s", 150), "installation_eligibility": map[string]any{"eligible": true},
		})
	}
	large["disks"] = disks
	report, err := json.Marshal(large)
	require.NoError(t, err)
	require.Greater(t, len(report), 6_000_000)
	taken := w.call(caller{"X-Secret-Key": token}, "POST", host+"/instructions", map[string]any{"step_type": "inventory", "step_id": "inventory-2", "exit_code": 0, "output": string(report)})
	require.Equal(t, 204, taken.status, taken.raw)
	shown := w.call(admin, "GET", host, nil)
	assert.Equal(t, "known-unbound", shown.text("status"))
	assert.Contains(t, shown.text("validations_info"), `"inventory-not-partially-truncated","message":"The inventory is too large: parts of it are left out","status":"failure"`)
	assert.Less(t, len(shown.raw), 1<<20, "the stored text is bounded")
	assert.Contains(t, w.call(admin, "GET", "/events?infra_env_id="+env, nil).raw, "host_inventory_truncated")
	unharmed := w.call(admin, "GET", other, nil)
	assert.Equal(t, "known-unbound", unharmed.text("status"))
	assert.NotContains(t, unharmed.text("validations_info"), `"status":"failure"`)

	tooLarge := w.call(caller{"X-Secret-Key": token}, "POST", host+"/instructions", map[string]any{"step_type": "inventory", "output": strings.Repeat("x", 9<<20)})
	assert.Equal(t, 413, tooLarge.status)
	assert.Equal(t, "known-unbound", w.call(admin, "GET", host, nil).text("status"))
}

func TestALoopOfRegistrationsOverTheWireIsFolded(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	agent, id := caller{"X-Secret-Key": w.image(env)}, uuid.NewString()
	for range 50 {
		require.Equal(t, 201, w.call(agent, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": id, "discovery_agent_version": "field"}).status)
	}
	events := w.call(admin, "GET", "/events?infra_env_id="+env+"&host_id="+id, nil)
	count, err := strconv.Atoi(events.header.Get("Event-Count"))
	require.NoError(t, err)
	assert.Less(t, count, 10, "an agent that cannot do anything else fills no database")
	assert.Contains(t, events.raw, `"count":50`)
}
