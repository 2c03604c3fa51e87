// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// assisted reads the description of the REST of assisted-service.
func assisted(t testing.TB) *openapi3.T {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "api", "testdata", "assisted.yaml"))
	require.NoError(t, err)
	var old openapi2.T
	require.NoError(t, yaml.Unmarshal(raw, &old))
	converted, err := openapi2conv.ToV3(&old)
	require.NoError(t, err)
	return converted
}

// assistedArguments are the forms of the only argument of steps, as agents of assisted-service read them.
var assistedArguments = map[string]string{
	"ntp-synchronizer": "ntp_synchronization_request", "connectivity-check": "connectivity-check-params", "domain-resolution": "domain_resolution_request",
	"installation-disk-speed-check": "disk_speed_check_request", "container-image-availability": "container_image_availability_request", "install": "install_cmd_request",
	"logs-gather": "logs_gather_cmd_request", "api-vip-connectivity-check": "api_vip_connectivity_request",
}

// fieldAgent is an agent of assisted-service: it knows its image's token, and nothing of boot ids, tokens of hosts or held polls.
type fieldAgent struct {
	*testEnv
	assisted *openapi3.T
	token    caller
	path     string
	// steps are all types of steps that it was ever given.
	steps map[string]bool
}

// sees checks that a body has the form of one of the definitions of assisted-service.
func (a *fieldAgent) sees(definition string, body any) {
	a.t.Helper()
	schema := a.assisted.Components.Schemas[definition]
	require.NotNil(a.t, schema, definition)
	require.NoError(a.t, schema.Value.VisitJSON(body, openapi3.MultiErrors()), definition)
}

func (a *fieldAgent) register(id string) answer {
	a.t.Helper()
	a.path = a.path[:strings.LastIndex(a.path, "/")+1] + id
	body := map[string]any{"host_id": id, "discovery_agent_version": "quay.io/edge-infrastructure/assisted-installer-agent:latest"}
	a.sees("host-create-params", body)
	return a.call(a.token, "POST", a.path[:strings.LastIndex(a.path, "/")], body)
}

// poll returns the arguments of the steps that the agent is asked for, by type, each in the form that it can read.
func (a *fieldAgent) poll() map[string][]string {
	a.t.Helper()
	got := a.call(a.token, "GET", a.path+"/instructions?timestamp=1800000000", nil)
	require.Equal(a.t, http.StatusOK, got.status, got.raw)
	a.sees("steps", got.body)
	assert.Contains(a.t, got.body, "instructions", "also where there are none")
	for _, step := range got.body["instructions"].([]any) {
		assert.Contains(a.t, step, "args", "also where there are none")
	}
	var steps struct {
		Instructions []struct {
			Type string   `json:"step_type"`
			Args []string `json:"args"`
		} `json:"instructions"`
		Next int `json:"next_instruction_seconds"`
	}
	require.NoError(a.t, json.Unmarshal([]byte(got.raw), &steps))
	assert.NotZero(a.t, steps.Next)
	asked := map[string][]string{}
	for _, step := range steps.Instructions {
		asked[step.Type], a.steps[step.Type] = step.Args, true
		switch definition := assistedArguments[step.Type]; {
		case definition != "":
			if step.Type == "installation-disk-speed-check" {
				require.Len(a.t, step.Args, 2, "the request, and after how many seconds the agent gives up")
				_, err := strconv.ParseFloat(step.Args[1], 64)
				require.NoError(a.t, err)
			} else {
				require.Len(a.t, step.Args, 1, step.Type)
			}
			var argument any
			require.NoError(a.t, json.Unmarshal([]byte(step.Args[0]), &argument))
			a.sees(definition, argument)
		case step.Type == "inventory":
			assert.Equal(a.t, []string{a.path[strings.LastIndex(a.path, "/")+1:]}, step.Args)
		default:
			assert.Empty(a.t, step.Args, step.Type)
		}
	}
	return asked
}

func (a *fieldAgent) reply(step, definition, output string) {
	a.t.Helper()
	if definition != "" {
		var body any
		require.NoError(a.t, json.Unmarshal([]byte(output), &body))
		a.sees(definition, body)
	}
	got := a.call(a.token, "POST", a.path+"/instructions", map[string]any{"step_type": step, "step_id": step + "-00000000", "exit_code": 0, "output": output, "error": ""})
	require.Equal(a.t, http.StatusNoContent, got.status, got.raw)
}

func newFieldAgent(w *testEnv, infraEnv string) *fieldAgent {
	return &fieldAgent{testEnv: w, assisted: assisted(w.t), token: caller{"X-Secret-Key": w.image(infraEnv)}, path: "/infra-envs/" + infraEnv + "/hosts/", steps: map[string]bool{}}
}

// boundFieldAgent is an agent whose machine is bound to a cluster of one machine.
func (w *testEnv) boundFieldAgent(admin caller) (agent *fieldAgent, cluster string) {
	w.t.Helper()
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	require.Equal(w.t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	agent = newFieldAgent(w, env)
	require.Equal(w.t, 201, agent.register(uuid.NewString()).status)
	agent.reply("inventory", "", inventory)
	require.Equal(w.t, 200, w.call(admin, "POST", agent.path+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	return agent, cluster
}

// TestAnAgentOfAssistedServiceInstalls follows an unmodified agent of assisted-service from its registration to the end of the installation. Each reply has the
// forms of the description of assisted-service.
func TestAnAgentOfAssistedServiceInstalls(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{
		"control_plane_count": 1, "base_dns_domain": "example.com", "machine_networks": []any{map[string]any{"cidr": "10.0.0.0/24"}}, "http_proxy": "http://proxy.example.com:3128",
	}).status)
	agent := newFieldAgent(w, env)
	registered := agent.register(uuid.NewString())
	require.Equal(t, 201, registered.status, registered.raw)
	command := registered.body["next_step_runner_command"].(map[string]any)
	var next any
	require.NoError(t, json.Unmarshal([]byte(command["args"].([]any)[0].(string)), &next))
	agent.sees("next_step_cmd_request", next)
	assert.Equal(t, "quay.io/edge-infrastructure/assisted-installer-agent:latest", next.(map[string]any)["agent_version"], "it is the image that it runs next")

	assert.Contains(t, agent.poll(), "inventory")
	agent.reply("inventory", "inventory", inventory)
	agent.reply("ntp-synchronizer", "ntp_synchronization_response", `{"ntp_sources":[{"source_name":"ntp.example.com","source_state":"synced"}]}`)
	require.Equal(t, 200, w.call(admin, "POST", agent.path+"/actions/bind", map[string]any{"cluster_id": cluster}).status)
	assert.Contains(t, slices.Collect(maps.Keys(agent.poll())), "domain-resolution", "it is bound without a new registration")
	agent.reply("domain-resolution", "domain_resolution_response", `{"resolutions":[{"domain_name":"api.c.example.com","ipv4_addresses":["10.0.0.9"],"ipv6_addresses":[]}]}`)

	installed := w.call(admin, "POST", "/clusters/"+cluster+"/actions/install", nil)
	require.Equal(t, 202, installed.status, installed.raw)
	images := agent.poll()["container-image-availability"]
	require.NotEmpty(t, images)
	assert.Contains(t, images[0], "quay.example.com/muster/installer:1")
	assert.NotContains(t, images[0], "disk.raw", "it can ask registries only")
	agent.reply("installation-disk-speed-check", "disk_speed_check_response", `{"path":"/dev/sda","io_sync_duration":4}`)
	agent.reply("container-image-availability", "container_image_availability_response", `{"images":[{"name":"quay.example.com/muster/installer:1","result":"success","time":1.5}]}`)
	install := agent.poll()["install"]
	require.NotEmpty(t, install)
	for _, part := range []string{`"boot_device":"/dev/sda"`, `"role":"bootstrap"`, `"installer_image":"quay.example.com/muster/installer:1"`, `"openshift_version":"4.20"`, "proxy.example.com"} {
		assert.Contains(t, install[0], part)
	}
	ignition := w.call(agent.token, "GET", "/infra-env"+strings.TrimPrefix(agent.path, "/infra-envs")+"/downloads/ignition", nil)
	require.Equal(t, 200, ignition.status, ignition.raw)
	assert.True(t, json.Valid([]byte(ignition.raw)))

	host := w.call(admin, "GET", agent.path, nil)
	installing := w.call(admin, "GET", "/clusters/"+cluster, nil)
	assert.Equal(t, clusterProgress(100, 0, 0, 10), installing.body["progress"])
	assert.Equal(t, "0001-01-01T00:00:00Z", installing.text("install_completed_at"), "clients wait until it is another time")
	total := 0.0
	for _, stage := range host.body["progress_stages"].([]any) {
		body := map[string]any{"current_stage": stage, "progress_info": ""}
		agent.sees("host-progress", body)
		require.Equal(t, 200, w.call(agent.token, "PUT", agent.path+"/progress", body).status, stage)
		host = w.call(admin, "GET", agent.path, nil)
		agent.sees("host", host.body)
		progress := w.call(admin, "GET", "/clusters/"+cluster, nil).body["progress"].(map[string]any)
		assert.Greater(t, progress["total_percentage"], total, stage)
		total = progress["total_percentage"].(float64)
	}
	assert.Equal(t, "installed", host.text("status"))
	shown := w.call(admin, "GET", "/clusters/"+cluster, nil)
	agent.sees("cluster", shown.body)
	assert.Contains(t, shown.body, "image_info", "it is required")
	assert.Equal(t, "installed", shown.text("status"))
	assert.Equal(t, clusterProgress(100, 100, 100, 100), shown.body["progress"])
	assert.NotEqual(t, "0001-01-01T00:00:00Z", shown.text("install_completed_at"))
}

// clusterProgress is the progress of a cluster as it is shown, without zeros.
func clusterProgress(preparing, installing, finalizing, total float64) map[string]any {
	shown := map[string]any{}
	for name, n := range map[string]float64{
		"preparing_for_installation_stage_percentage": preparing, "installing_stage_percentage": installing, "finalizing_stage_percentage": finalizing, "total_percentage": total,
	} {
		if n != 0 {
			shown[name] = n
		}
	}
	return shown
}

func TestAFailedAgentOfAssistedServiceIsAskedForItsLogs(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	agent, cluster := w.boundFieldAgent(admin)
	prepare := func() {
		require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/install", nil).status)
		agent.poll()
	}
	prepare()
	agent.reply("installation-disk-speed-check", "", `{"path":"/dev/sda","io_sync_duration":4}`)
	require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/cancel", nil).status)
	prepare() // it does not say again within an hour what it said
	agent.reply("container-image-availability", "", `{"images":[{"name":"quay.example.com/muster/installer:1","result":"success"}]}`)
	require.Contains(t, agent.poll(), "install")
	// It was asked twice, as by two replicas: the first installation goes on.
	again := w.call(agent.token, "POST", agent.path+"/instructions", map[string]any{"step_type": "install", "step_id": "install-1", "exit_code": 125, "error": "Error: creating " +
		"container storage: the container name \"assisted-installer\" is already in use by 331fe687f4af. You have to remove that container to be able to reuse that name: that name is already in use"})
	require.Equal(t, http.StatusNoContent, again.status, again.raw)
	require.Equal(t, "installing", w.call(admin, "GET", agent.path, nil).text("status"))
	failed := w.call(agent.token, "POST", agent.path+"/instructions", map[string]any{"step_type": "install", "step_id": "install-1", "exit_code": 125, "error": "Error: no space left"})
	require.Equal(t, http.StatusNoContent, failed.status, failed.raw)
	asked := agent.poll()
	assert.Contains(t, asked, "logs-gather")
	assert.Contains(t, asked, "stop-installation")
}

// TestALongReasonOfAFailureIsCut has an installer that reports the output of the program that failed.
func TestALongReasonOfAFailureIsCut(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	agent, cluster := w.boundFieldAgent(admin)
	require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/install", nil).status)
	agent.poll()
	agent.reply("installation-disk-speed-check", "", `{"path":"/dev/sda","io_sync_duration":4}`)
	agent.reply("container-image-availability", "", `{"images":[{"name":"quay.example.com/muster/installer:1","result":"success"}]}`)
	require.Contains(t, agent.poll(), "install")
	failed := w.call(agent.token, "PUT", agent.path+"/progress", map[string]any{"current_stage": "Failed", "progress_info": "no space left: " + strings.Repeat("x", 5000)})
	require.Equal(t, http.StatusOK, failed.status, failed.raw)
	host := w.call(admin, "GET", agent.path, nil)
	assert.Equal(t, "error", host.text("status"))
	assert.Contains(t, host.text("status_info"), "no space left")
	assert.Less(t, len(host.body["progress"].(map[string]any)["progress_info"].(string)), 2100)
}

// TestPartitionsThatAreKeptAreNotWrittenOver has installer arguments of coreos-installer: agents of assisted-service measure a disk with what writes over its beginning.
func TestPartitionsThatAreKeptAreNotWrittenOver(t *testing.T) {
	for _, argument := range []string{"--save-partlabel", "--save-partindex"} {
		t.Run(argument, func(t *testing.T) {
			w := newTestEnv(t)
			admin := w.person("root", "admins")
			agent, cluster := w.boundFieldAgent(admin)
			require.Equal(t, 201, w.call(admin, "PATCH", agent.path+"/installer-args", map[string]any{"args": []string{argument, "data"}}).status)
			require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/install", nil).status)
			asked := agent.poll()
			assert.Contains(t, asked, "container-image-availability")
			assert.NotContains(t, asked, "installation-disk-speed-check")
			agent.reply("container-image-availability", "", `{"images":[{"name":"quay.example.com/muster/installer:1","result":"success"}]}`)
			assert.Contains(t, agent.poll(), "install")
		})
	}
}

// TestAnAgentThatTheServiceLostRegistersAgain begins with a host that is gone, as after a lost database: agents of assisted-service wait for ever after 404.
func TestAnAgentThatTheServiceLostRegistersAgain(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	agent := newFieldAgent(w, env)
	id := uuid.NewString()
	require.Equal(t, 201, agent.register(id).status)
	require.Equal(t, 204, w.call(admin, "DELETE", agent.path, nil).status)

	lost := w.call(agent.token, "GET", agent.path+"/instructions?timestamp=1800000000", nil)
	require.Equal(t, 200, lost.status, lost.raw)
	agent.sees("steps", lost.body)
	assert.Equal(t, "exit", lost.text("post_step_action"))
	assert.Equal(t, []any{}, lost.body["instructions"])
	require.Equal(t, 201, agent.register(id).status)
	assert.Contains(t, agent.poll(), "inventory")

	for name, other := range map[string]caller{"a token of another infra-env": {"X-Secret-Key": w.image(w.infraEnv(admin, "f"))}, "no token": nil} {
		assert.NotEqual(t, 200, w.call(other, "GET", "/infra-envs/"+env+"/hosts/"+uuid.NewString()+"/instructions", nil).status, name)
	}
}

// TestAnAgentThatIsRefusedForNowTriesAgain: agents of assisted-service wait for ever after 409, and try again a minute after 503.
func TestAnAgentThatIsRefusedForNowTriesAgain(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	bound, cluster := w.boundFieldAgent(admin)
	a := w.call(admin, "POST", "/infra-envs", map[string]any{"name": "late", "pull_secret": `{"auths":{}}`, "cluster_id": cluster})
	require.Equal(t, http.StatusCreated, a.status, a.raw)
	env, id := a.text("id"), uuid.NewString()
	require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/install", nil).status)
	require.Contains(t, bound.poll(), "container-image-availability")
	late := newFieldAgent(w, env)
	refused := late.register(id)
	require.Equal(t, http.StatusServiceUnavailable, refused.status, refused.raw)
	assert.Contains(t, refused.raw, "takes no hosts now")
	assert.Equal(t, "60", refused.header.Get("Retry-After"))
	ours := w.call(late.token, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": id, "boot_id": "1", "fingerprint": "f"})
	assert.Equal(t, http.StatusConflict, ours.status, "our own try again, and stop what they write")
	require.Equal(t, 202, w.call(admin, "POST", "/clusters/"+cluster+"/actions/cancel", nil).status)
	require.Equal(t, http.StatusCreated, late.register(id).status)

	w.ours(w.infraEnv(admin, "f"), id, "1") // its machine boots the image of this service, and then the former one again
	inUse := late.register(id)
	require.Equal(t, http.StatusServiceUnavailable, inUse.status, inUse.raw)
	assert.Contains(t, inUse.raw, "another live machine")
}

// TestRefusalsHaveTheFormOfAssistedService: its clients do not read an answer whose code is of the other type.
func TestRefusalsHaveTheFormOfAssistedService(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	agent := newFieldAgent(w, w.infraEnv(olga, "e"))
	for name, c := range map[string]struct {
		who              caller
		method, path     string
		status           int
		definition, code string
	}{
		"no token":        {nil, "GET", "/infra-envs", 401, "infra_error", "401"},
		"a false token":   {caller{"X-Secret-Key": "x"}, "GET", agent.path + uuid.NewString() + "/instructions", 401, "infra_error", "401"},
		"a viewer":        {w.person("vera", "viewers"), "POST", "/clusters", 403, "infra_error", "403"},
		"nothing there":   {olga, "GET", "/clusters/" + uuid.NewString(), 404, "error", "404"},
		"no identifier":   {olga, "GET", "/clusters/x", 400, "error", "400"},
		"no such path":    {olga, "GET", "/x", 404, "error", "404"},
		"another request": {olga, "PUT", "/clusters", 405, "error", "405"},
	} {
		got := w.call(c.who, c.method, c.path, nil)
		require.Equal(t, c.status, got.status, "%s: %s", name, got.raw)
		agent.sees(c.definition, got.body)
		assert.Equal(t, c.code, got.text("code"), name)
		assert.NotEmpty(t, got.text("reason"), name)
	}
}

// TestAnAgentWhosePollIsHeldRegistersAgain has an agent that is nearly always in a poll: answered 404, it would wait for ever.
func TestAnAgentWhosePollIsHeldRegistersAgain(t *testing.T) {
	for name, end := range map[string]func(w *testEnv, admin caller, agent *fieldAgent) answer{
		"its host is deleted": func(w *testEnv, admin caller, agent *fieldAgent) answer {
			return w.call(admin, "DELETE", agent.path, nil)
		},
		"its tokens are revoked": func(w *testEnv, admin caller, agent *fieldAgent) answer {
			return w.call(admin, "POST", agent.path+"/actions/revoke-tokens", nil)
		},
		"its infra-env is deleted": func(w *testEnv, admin caller, agent *fieldAgent) answer {
			infraEnv, _, _ := strings.Cut(agent.path, "/hosts/")
			return w.call(admin, "DELETE", infraEnv, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			admin := w.person("root", "admins")
			agent := newFieldAgent(w, w.infraEnv(admin, "e"))
			require.Equal(t, 201, agent.register(uuid.NewString()).status)
			answered := w.held(agent.token, agent.path)
			ended := end(w, admin, agent)
			require.Less(t, ended.status, 300, ended.raw)
			a := <-answered
			require.Equal(t, 200, a.status, a.raw)
			agent.sees("steps", a.body)
			assert.Equal(t, "exit", a.text("post_step_action"))
			assert.Equal(t, []any{}, a.body["instructions"], "nothing is told of what comes")
		})
	}
}

func TestAChangeMayRepeatTheNameOfItsCluster(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	path := "/clusters/" + w.cluster(olga, "c")
	changed := w.call(olga, "PATCH", path, map[string]any{"name": "c", "base_dns_domain": "example.com"})
	require.Equal(t, http.StatusCreated, changed.status, changed.raw)
	assert.Equal(t, "example.com", changed.text("base_dns_domain"))
	assert.Equal(t, http.StatusBadRequest, w.call(olga, "PATCH", path, map[string]any{"name": "d"}).status)
	assert.Equal(t, http.StatusNotFound, w.call(w.person("joe"), "PATCH", path, map[string]any{"name": "c"}).status)
}

// TestAHostComesBackToTheClusterThatItWasIn has an agent that does not say again within an hour what it said last.
func TestAHostComesBackToTheClusterThatItWasIn(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster, other := w.infraEnv(admin, "e"), w.cluster(admin, "c"), w.cluster(admin, "d")
	for _, id := range []string{cluster, other} {
		require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+id, map[string]any{"control_plane_count": 1, "base_dns_domain": "example.com", "user_managed_networking": true}).status)
	}
	agent := newFieldAgent(w, env)
	require.Equal(t, 201, agent.register(uuid.NewString()).status)
	agent.reply("inventory", "", inventory)
	bind := func(id string) string {
		require.Equal(t, 200, w.call(admin, "POST", agent.path+"/actions/bind", map[string]any{"cluster_id": id}).status)
		assert.Contains(t, agent.poll(), "domain-resolution")
		return w.call(admin, "GET", agent.path, nil).text("status")
	}
	unbind := func() { require.Equal(t, 200, w.call(admin, "POST", agent.path+"/actions/unbind", nil).status) }
	require.Equal(t, "insufficient", bind(cluster), "its names have to be resolved first")
	agent.reply("domain-resolution", "domain_resolution_response", `{"resolutions":[{"domain_name":"api.c.example.com","ipv4_addresses":["10.0.0.9"],"ipv6_addresses":[]},`+
		`{"domain_name":"api-int.c.example.com","ipv4_addresses":["10.0.0.9"],"ipv6_addresses":[]},{"domain_name":"console-openshift-console.apps.c.example.com","ipv4_addresses":["10.0.0.9"],"ipv6_addresses":[]}]}`)
	require.Equal(t, "known", w.call(admin, "GET", agent.path, nil).text("status"))
	unbind()
	assert.Equal(t, "known", bind(cluster), "the agent is asked, and says nothing: it is as it was")
	unbind()
	assert.Equal(t, "insufficient", bind(other), "that says nothing of another cluster")
	unbind()
	require.Equal(t, 201, agent.register(agent.path[strings.LastIndex(agent.path, "/")+1:]).status)
	agent.reply("inventory", "", inventory)
	assert.Equal(t, "insufficient", bind(cluster), "an agent that starts again says all again")
}

// TestEveryHostHasAName is what command lines of assisted-service rely on: they look up requested_hostname in each host, and take one that is the id for a host without a name.
func TestEveryHostHasAName(t *testing.T) {
	w := newTestEnv(t)
	olga := w.person("olga")
	agent := newFieldAgent(w, w.infraEnv(olga, "e"))
	id := uuid.NewString()
	require.Equal(t, 201, agent.register(id).status)
	name := func() string { return w.call(olga, "GET", agent.path, nil).text("requested_hostname") }
	assert.Equal(t, id, name())
	agent.reply("inventory", "", inventory)
	assert.Equal(t, "h1", name(), "as it reports")
	require.Equal(t, 201, w.call(olga, "PATCH", agent.path, map[string]any{"host_name": "node-0"}).status)
	assert.Equal(t, "node-0", name())
	require.Equal(t, 201, w.call(olga, "PATCH", agent.path, map[string]any{"host_name": nil}).status)
	assert.Equal(t, "h1", name())
}
