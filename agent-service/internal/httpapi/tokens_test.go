// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// ours registers an agent of this service and returns its token.
func (w *testEnv) ours(infraEnv, id, boot string) string {
	w.t.Helper()
	a := w.call(caller{"X-Secret-Key": w.image(infraEnv)}, "POST", "/infra-envs/"+infraEnv+"/hosts", map[string]any{"host_id": id, "boot_id": boot, "fingerprint": "f"})
	require.Equal(w.t, http.StatusCreated, a.status, a.raw)
	return a.text("token")
}

func (w *testEnv) bind(who caller, host, cluster string) {
	w.t.Helper()
	a := w.call(who, "POST", host+"/actions/bind", map[string]any{"cluster_id": cluster})
	require.Equal(w.t, http.StatusOK, a.status, a.raw)
}

func TestATokenEndsWithItsRegistrationAndItsBinding(t *testing.T) {
	for what, end := range map[string]func(w *testEnv, admin caller, env, host, id string) answer{
		"unbind": func(w *testEnv, admin caller, _, host, _ string) answer {
			return w.call(admin, "POST", host+"/actions/unbind", nil)
		},
		"move": func(w *testEnv, admin caller, _, host, _ string) answer {
			return w.call(admin, "POST", host+"/actions/move", map[string]any{"cluster_id": w.cluster(admin, "other")})
		},
		"a new boot": func(w *testEnv, admin caller, env, host, id string) answer {
			w.ours(env, id, "2")
			return w.call(admin, "GET", host, nil)
		},
		"a registration in the same boot": func(w *testEnv, admin caller, env, host, id string) answer {
			w.ours(env, id, "1")
			return w.call(admin, "GET", host, nil)
		},
		"its machine boots the image of another infra-env": func(w *testEnv, admin caller, _, host, id string) answer {
			w.ours(w.infraEnv(admin, "elsewhere"), id, "2")
			return w.call(admin, "GET", host, nil)
		},
		"its tokens are revoked": func(w *testEnv, admin caller, _, host, _ string) answer {
			return w.call(admin, "POST", host+"/actions/revoke-tokens", nil)
		},
		"those of its infra-env's hosts are": func(w *testEnv, admin caller, env, host, _ string) answer {
			a := w.call(admin, "POST", "/infra-envs/"+env+"/actions/revoke-host-tokens", nil)
			require.Equal(w.t, http.StatusNoContent, a.status, a.raw)
			return w.call(admin, "GET", host, nil)
		},
		"it is deleted and comes back": func(w *testEnv, admin caller, env, host, id string) answer {
			require.Equal(w.t, http.StatusNoContent, w.call(admin, "DELETE", host, nil).status)
			w.ours(env, id, "1")
			return w.call(admin, "GET", host, nil)
		},
	} {
		t.Run(what, func(t *testing.T) {
			w := newTestEnv(t)
			admin := w.person("root", "admins")
			env, cluster, id := w.infraEnv(admin, "e"), w.cluster(admin, "c"), uuid.NewString()
			host := "/infra-envs/" + env + "/hosts/" + id
			free := w.ours(env, id, "1")
			w.bind(admin, host, cluster)
			former := caller{"X-Secret-Key": free}
			require.Equal(t, 200, w.call(former, "GET", host+"/instructions?wait=0", nil).status, "a bind ends nothing")
			w.later(13 * time.Hour) // its token would be renewed

			a := end(w, admin, env, host, id)
			require.Equal(t, 200, a.status, a.raw)
			for _, c := range []struct {
				method, path string
				body         any
			}{
				{"GET", host + "/instructions?wait=0", nil}, {"POST", host + "/instructions", map[string]any{"step_type": "inventory"}},
				{"PUT", host + "/progress", map[string]any{"current_stage": "Done"}}, {"GET", host + "/first-boot", nil}, {"GET", host, nil},
				{"POST", "/infra-envs/" + env + "/hosts", map[string]any{"host_id": id, "boot_id": "1", "fingerprint": "f"}},
				{"GET", "/infra-envs/" + env + "/hosts", nil}, {"GET", "/events?infra_env_id=" + env, nil},
			} {
				refused := w.call(former, c.method, c.path, c.body)
				assert.Equal(t, 401, refused.status, "%s %s: %s", c.method, c.path, refused.raw)
				assert.Contains(t, refused.text("reason"), "revoked")
			}
			assert.Equal(t, 401, w.upload(free, "/clusters/"+cluster+"/logs?logs_type=host", "x").status)
			next := caller{"X-Secret-Key": w.ours(env, id, "1")}
			assert.Equal(t, 200, w.call(next, "GET", host+"/instructions?wait=0", nil).status)
		})
	}
}

// held waits for a poll to be held, and returns what it is answered with.
func (w *testEnv) held(who caller, host string) <-chan answer {
	answered := make(chan answer, 1)
	for w.call(who, "GET", host+"/instructions?wait=0", nil).raw != `{"instructions":[],"next_instruction_seconds":1,"post_step_action":"continue"}`+"\n" {
	}
	go func() { answered <- w.call(who, "GET", host+"/instructions?wait=25", nil) }()
	require.Eventually(w.t, func() bool { return w.service.Held.Load() == 1 }, patience, time.Millisecond)
	return answered
}

func TestAPollThatIsHeldEndsWithItsToken(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, one, two, id := w.infraEnv(admin, "e"), w.cluster(admin, "one"), w.cluster(admin, "two"), uuid.NewString()
	host := "/infra-envs/" + env + "/hosts/" + id
	for _, c := range []struct {
		what string
		end  func() answer
	}{
		{"move", func() answer { return w.call(admin, "POST", host+"/actions/move", map[string]any{"cluster_id": two}) }},
		{"unbind", func() answer { return w.call(admin, "POST", host+"/actions/unbind", nil) }},
		{"revocation", func() answer { return w.call(admin, "POST", host+"/actions/revoke-tokens", nil) }},
	} {
		agent := caller{"X-Secret-Key": w.ours(env, id, "1")}
		if c.what == "move" {
			w.bind(admin, host, one)
		}
		answered := w.held(agent, host)
		require.Equal(t, 200, c.end().status)
		a := <-answered
		require.Equal(t, 200, a.status, a.raw)
		assert.NotContains(t, a.body, "token", c.what)
		assert.Equal(t, true, a.body["token_ended"], "%s: the agent need not be refused to know", c.what)
		steps, _ := a.body["instructions"].([]any)
		require.Len(t, steps, 1, "%s: %s", c.what, a.raw)
		assert.Equal(t, "stop-installation", steps[0].(map[string]any)["step_type"], "%s: nothing is told of what comes", c.what)
	}
}

func TestAHostsTokenReadsNothingOfItsInfraEnv(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	host, narrowed := w.host(env)
	for _, path := range []string{
		"", "/downloads/files?file_name=discovery.ign", "/downloads/files?file_name=static-network-config", "/downloads/files?file_name=ipxe-script", "/downloads/minimal-initrd",
	} {
		a := w.call(caller{"X-Secret-Key": narrowed}, "GET", "/infra-envs/"+env+path, nil)
		assert.Equal(t, 404, a.status, "%s: %s", path, a.raw)
		assert.NotEqual(t, 404, w.call(caller{"X-Secret-Key": w.image(env)}, "GET", "/infra-envs/"+env+path, nil).status, "the image does: %s", path)
	}
	listed := w.call(caller{"X-Secret-Key": narrowed}, "GET", "/infra-envs/"+env+"/hosts", nil)
	assert.Equal(t, 200, listed.status)
	assert.Contains(t, listed.raw, host[strings.LastIndex(host, "/")+1:], "itself")
}

var inFirstBoot = regexp.MustCompile(`X-Secret-Key: ([A-Za-z0-9_.-]+)`)

func TestAnInstalledSystemReportsAfterAMonth(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	host, token := w.host(env)
	w.install(admin, host, token, cluster)
	first := w.call(caller{"X-Secret-Key": token}, "GET", host+"/first-boot", nil)
	require.Equal(t, 200, first.status, first.raw)
	found := inFirstBoot.FindStringSubmatch(first.raw)
	require.Len(t, found, 2, first.raw)
	installed := caller{"X-Secret-Key": found[1]}
	id := host[strings.LastIndex(host, "/")+1:]
	assert.Equal(t, 404, w.call(installed, "GET", host+"/first-boot", nil).status, "it reads no first-boot data again")
	assert.Equal(t, 404, w.call(installed, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": id}).status, "and registers no host")

	w.later(31 * 24 * time.Hour)
	assert.Equal(t, 401, w.call(caller{"X-Secret-Key": token}, "GET", host, nil).status, "the agent's is over")
	done := w.call(installed, "PUT", host+"/progress", map[string]any{"current_stage": "Done"})
	require.Equal(t, 200, done.status, done.raw)
	assert.Equal(t, "installed", w.call(admin, "GET", host, nil).text("status"))
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/unbind", nil).status)
	assert.Equal(t, 401, w.call(installed, "PUT", host+"/progress", map[string]any{"current_stage": "Done"}).status)
}

func TestAStreamOfEventsEndsWithItsToken(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	host, narrowed := w.host(env)
	for _, c := range []struct{ token, end, event string }{
		{narrowed, host + "/actions/revoke-tokens", "host_tokens_revoked"}, {w.image(env), "/infra-envs/" + env + "/regenerate-signing-key", "infra_env_tokens_rotated"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), "GET", w.server.URL+"/api/assisted-install/v2/events/stream?infra_env_id="+env, nil)
		require.NoError(t, err)
		request.Header.Set("X-Secret-Key", c.token)
		response, err := w.server.Client().Do(request) //nolint:bodyclose // it is closed when its end was read
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode)
		ended := make(chan string, 1)
		go func() {
			all, _ := io.ReadAll(response.Body)
			ended <- string(all)
		}()
		revoked := w.call(admin, "POST", c.end, nil)
		require.Less(t, revoked.status, 300, revoked.raw)
		select {
		case all := <-ended:
			assert.NotContains(t, all, c.event, "later events are not shown")
		case <-time.After(patience):
			t.Fatal("the stream goes on")
		}
		require.NoError(t, response.Body.Close())
	}
}

func TestRevokedAgentsThatKeepTheTokenOfTheirImageRegisterAgain(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	agent := caller{"X-Secret-Key": w.image(env)}
	for _, revoke := range []func(host string) string{
		func(host string) string { return host + "/actions/revoke-tokens" },
		func(string) string { return "/infra-envs/" + env + "/actions/revoke-host-tokens" },
	} {
		host, _ := w.host(env)
		require.Less(t, w.call(admin, "POST", revoke(host), nil).status, 300)
		assert.Equal(t, 404, w.call(agent, "GET", host, nil).status)
		assert.Equal(t, "exit", w.call(agent, "GET", host+"/instructions?wait=0", nil).text("post_step_action"), "they wait for ever after 404")
		again := w.call(agent, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": host[strings.LastIndex(host, "/")+1:]})
		require.Equal(t, 201, again.status, again.raw)
		assert.Equal(t, "continue", w.call(agent, "GET", host+"/instructions?wait=0", nil).text("post_step_action"))
	}
	assert.Equal(t, 404, w.call(w.person("joe"), "POST", "/infra-envs/"+env+"/actions/revoke-host-tokens", nil).status, "others revoke nothing")
	_, err := w.service.RotateTokens(t.Context(), domain.Kubernetes, env, true)
	require.NoError(t, err)
}

func TestLogsOfAHostThatWasFreedBelongToItsCluster(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	host, token := w.host(env)
	id := host[strings.LastIndex(host, "/")+1:]
	w.install(admin, host, token, cluster)
	require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/cancel", nil).status)
	logs := "/clusters/" + cluster + "/logs?logs_type=host&infra_env_id=" + env + "&host_id=" + id
	require.Equal(t, 204, w.upload(token, logs, "before").status)
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/unbind", nil).status)
	assert.Equal(t, "before", w.call(admin, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).raw, "they stay with the cluster")
	assert.Equal(t, 401, w.upload(token, logs, "with the token of the binding").status)
	image := w.image(env)
	require.Equal(t, 204, w.upload(image, logs, "of the same installation").status, "which was under way")
	assert.Equal(t, "of the same installation", w.call(admin, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).raw)
	require.Equal(t, 201, w.call(caller{"X-Secret-Key": image}, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": id}).status, "it boots again")
	assert.Equal(t, 404, w.upload(image, logs, "of what comes then").status)
	require.Equal(t, 204, w.call(admin, "DELETE", host, nil).status)
	assert.Equal(t, "of the same installation", w.call(admin, "GET", "/clusters/"+cluster+"/logs?host_id="+id, nil).raw)
}

func TestARegistrationIsAnsweredWithTheFirstInstructionsWhereTheyAreAskedFor(t *testing.T) {
	w := newTestEnv(t)
	env := w.infraEnv(w.person("root", "admins"), "e")
	image, hosts := caller{"X-Secret-Key": w.image(env)}, "/infra-envs/"+env+"/hosts"
	for _, asks := range []bool{true, false} {
		id := uuid.NewString()
		registered := w.call(image, "POST", hosts, map[string]any{"host_id": id, "boot_id": "1", "instructions": asks})
		require.Equal(t, 201, registered.status, registered.raw)
		own := caller{"X-Secret-Key": registered.text("token")}
		polled := w.call(own, "GET", hosts+"/"+id+"/instructions?wait=0", nil)
		first, answered := registered.body["instructions"].(map[string]any)
		require.Equal(t, asks, answered, "agents of assisted-service do not ask")
		due := polled.body["instructions"].([]any)
		if !asks {
			assert.NotEmpty(t, due)
			continue
		}
		assert.NotEmpty(t, first["instructions"])
		assert.Equal(t, "continue", first["post_step_action"])
		assert.Empty(t, due, "they have been asked")
	}
}
