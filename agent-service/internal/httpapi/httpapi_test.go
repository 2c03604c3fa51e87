// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

func TestAHostIsBoundMovedAndFreedWithoutRegisteringAgain(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, one, two := w.infraEnv(admin, "e"), w.cluster(admin, "one"), w.cluster(admin, "two")
	host, _ := w.host(env)
	shown := w.call(admin, "GET", host, nil)
	assert.Equal(t, "known-unbound", shown.text("status"), shown.raw)
	assert.NotContains(t, shown.body, "cluster_id")
	assert.JSONEq(t, inventory, shown.text("inventory"))
	all := w.call(admin, "GET", "/infra-envs/"+env+"/hosts", nil)
	assert.Contains(t, all.raw, `"inventory":"{`, "a list shows it, too")

	for _, step := range []struct {
		verb, cluster string
		status        int
		state         string
	}{
		{"move", two, 409, ""}, {"bind", one, 200, "known"}, {"bind", two, 409, ""}, {"move", two, 200, "known"}, {"unbind", "", 200, ""}, {"unbind", "", 409, ""},
	} {
		var body any
		if step.cluster != "" {
			body = map[string]string{"cluster_id": step.cluster}
		}
		a := w.call(admin, "POST", host+"/actions/"+step.verb, body)
		require.Equal(t, step.status, a.status, "%s: %s", step.verb, a.raw)
		if step.status != 200 {
			assert.Equal(t, "Error", a.text("kind"))
			assert.NotEmpty(t, a.text("reason"))
			continue
		}
		assert.JSONEq(t, inventory, a.text("inventory"), "%s keeps what is known", step.verb)
	}
}

func TestTheDryRunSaysWhyNotAndChangesNothing(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	a := w.call(admin, "POST", "/clusters", map[string]any{"name": "c", "openshift_version": "4.20", "pull_secret": `{"auths":{}}`, "machine_networks": []map[string]string{{"cidr": "192.0.2.0/24"}}})
	require.Equal(t, 201, a.status, a.raw)
	host, _ := w.host(env)
	before := w.call(admin, "GET", host, nil).raw
	check := w.call(admin, "POST", host+"/actions/bind-check", map[string]string{"cluster_id": a.text("id")})
	require.Equal(t, 200, check.status, check.raw)
	assert.Equal(t, false, check.body["valid"])
	assert.NotEmpty(t, check.body["reasons"])
	unknown := w.call(caller{"X-Secret-Key": w.image(env)}, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": uuid.NewString()})
	require.Equal(t, 201, unknown.status, unknown.raw)
	why := w.call(admin, "POST", "/infra-envs/"+env+"/hosts/"+unknown.text("id")+"/actions/bind-check", map[string]string{"cluster_id": a.text("id")})
	require.Equal(t, 200, why.status, why.raw)
	assert.Equal(t, false, why.body["valid"])
	assert.Contains(t, why.body["reasons"], "Inventory has not been received for the host")
	assert.JSONEq(t, before, w.call(admin, "GET", host, nil).raw)
}

func TestOneOfManyBindsWins(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	host, _ := w.host(env)
	var mu sync.Mutex
	counts := map[int]int{}
	var all sync.WaitGroup
	for i := range 20 {
		cluster := w.cluster(admin, fmt.Sprintf("c%d", i))
		all.Go(func() {
			a := w.call(admin, "POST", host+"/actions/bind", map[string]string{"cluster_id": cluster})
			mu.Lock()
			defer mu.Unlock()
			counts[a.status]++
		})
	}
	all.Wait()
	assert.Equal(t, map[int]int{200: 1, 409: 19}, counts)
}

func TestFieldsAreClearedAsWellAsSet(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := "/infra-envs/" + w.infraEnv(admin, "e")
	fields := map[string]any{
		"ssh_authorized_key": "ssh-ed25519 AAAA", "additional_ntp_sources": "time.example.com", "ignition_config_override": `{"ignition":{"version":"3.1.0"}}`,
		"proxy": map[string]string{"http_proxy": "http://proxy:3128"}, "additional_trust_bundle": "", "kernel_arguments": []map[string]string{{"operation": "append", "value": "console=ttyS0"}},
	}
	set := w.call(admin, "PATCH", env, fields)
	require.Equal(t, 201, set.status, set.raw)
	for _, name := range []string{"ssh_authorized_key", "additional_ntp_sources", "ignition_config_override", "kernel_arguments"} {
		assert.Contains(t, set.body, name)
	}
	assert.Equal(t, set.body["ssh_authorized_key"], w.call(admin, "PATCH", env, map[string]any{"image_type": "minimal-iso"}).body["ssh_authorized_key"], "absent fields stay")
	cleared := w.call(admin, "PATCH", env, map[string]any{
		"ssh_authorized_key": nil, "additional_ntp_sources": "", "ignition_config_override": nil, "proxy": nil, "kernel_arguments": []any{},
	})
	require.Equal(t, 201, cleared.status, cleared.raw)
	for _, name := range []string{"ssh_authorized_key", "additional_ntp_sources", "ignition_config_override", "kernel_arguments"} {
		assert.NotContains(t, cleared.body, name)
	}
	assert.NotContains(t, cleared.raw, "proxy:3128")

	host, _ := w.host(strings.TrimPrefix(env, "/infra-envs/"))
	named := w.call(admin, "PATCH", host, map[string]any{"host_name": "other", "host_role": "worker"})
	require.Equal(t, 201, named.status, named.raw)
	assert.Equal(t, "other", named.text("requested_hostname"))
	assert.Equal(t, "h1", w.call(admin, "PATCH", host, map[string]any{"host_name": nil}).text("requested_hostname"), "as it reports")
}

func TestNullClearsEveryTextOfAPatch(t *testing.T) {
	description, err := openapi3.NewLoader().LoadFromData(api.Spec())
	require.NoError(t, err)
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(env)
	for path, schema := range map[string]string{
		"/infra-envs/" + env: "InfraEnvUpdateParams", "/clusters/" + cluster: "ClusterUpdateParams", host: "HostUpdateParams", host + "/installer-args": "InstallerArgsParams",
		host + "/ignition": "HostIgnitionParams",
	} {
		for name := range description.Components.Schemas[schema].Value.Properties {
			a := w.call(admin, "PATCH", path, map[string]any{name: nil})
			assert.Equal(t, 201, a.status, "%s: %s", name, a.raw)
		}
	}
	cleared := w.call(admin, "GET", "/clusters/"+cluster, nil)
	assert.NotContains(t, cleared.body, "pull_secret_set")
	assert.EqualValues(t, 3, cleared.body["control_plane_count"], "a cleared field gets its default again")
	secret := map[string]any{"pull_secret": `{"auths":{}}`}
	require.Equal(t, true, w.call(admin, "PATCH", "/clusters/"+cluster, secret).body["pull_secret_set"])
	assert.NotContains(t, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"pull_secret": ""}).body, "pull_secret_set")
	assert.Equal(t, "full-iso", w.call(admin, "GET", "/infra-envs/"+env, nil).text("type"))

	require.Equal(t, 201, w.call(admin, "PATCH", host+"/installer-args", map[string]any{"args": []string{"-n"}}).status)
	require.Equal(t, 201, w.call(admin, "PATCH", host+"/ignition", map[string]any{"config": `{"ignition":{"version":"3.2.0"}}`}).status)
	for _, absent := range []any{map[string]any{}, map[string]any{"args": nil, "config": nil}} {
		require.Equal(t, 201, w.call(admin, "PATCH", host+"/installer-args", absent).status)
		assert.Contains(t, w.call(admin, "GET", host, nil).body, "installer_args", "a list that is not given stays")
		require.Equal(t, 201, w.call(admin, "PATCH", host+"/ignition", absent).status)
	}
	require.Equal(t, 201, w.call(admin, "PATCH", host+"/installer-args", map[string]any{"args": []string{}}).status)
	shown := w.call(admin, "GET", host, nil)
	assert.NotContains(t, shown.body, "installer_args")
	assert.NotContains(t, shown.body, "ignition_config_overrides")
}

func TestOlderFieldsMeanWhatTheyMeant(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	made := w.call(admin, "POST", "/clusters", map[string]any{
		"name": "c", "openshift_version": "4.20", "pull_secret": `{"auths":{}}`, "cluster_network_cidr": "10.128.0.0/14", "service_network_cidr": "172.30.0.0/16",
	})
	require.Equal(t, 201, made.status, made.raw)
	networks := func(a answer, kind string) string {
		raw, err := json.Marshal(a.body[kind+"_networks"])
		require.NoError(t, err)
		return string(raw)
	}
	assert.JSONEq(t, `[{"cidr":"10.128.0.0/14"}]`, networks(made, "cluster"))
	assert.JSONEq(t, `[{"cidr":"172.30.0.0/16"}]`, networks(made, "service"))
	cluster := "/clusters/" + made.text("id")
	changed := w.call(admin, "PATCH", cluster, map[string]any{"machine_network_cidr": "10.0.0.0/24", "cluster_network_cidr": "10.1.0.0/16", "cluster_networks": []any{map[string]any{"cidr": "10.2.0.0/16"}}})
	assert.JSONEq(t, `[{"cidr":"10.0.0.0/24"}]`, networks(changed, "machine"))
	assert.JSONEq(t, `[{"cidr":"10.2.0.0/16"}]`, networks(changed, "cluster"), "the list says more")
	assert.JSONEq(t, "[]", networks(w.call(admin, "PATCH", cluster, map[string]any{"machine_network_cidr": nil}), "machine"))
	assert.Equal(t, 400, w.call(admin, "PATCH", cluster, map[string]any{"machine_network_cidr": "10.0.0.0"}).status)
}

func TestADiskThatMustNotBeFormattedIsNotInstalledTo(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	host, _ := w.host(w.infraEnv(admin, "e"))
	skip := func(skipped bool) answer {
		a := w.call(admin, "PATCH", host, map[string]any{"disks_skip_formatting": []any{map[string]any{"disk_id": "d", "skip_formatting": skipped}}})
		require.Equal(t, 201, a.status, a.raw)
		return a
	}
	kept := skip(true)
	assert.Equal(t, "d", kept.text("skip_formatting_disks"))
	assert.Equal(t, "insufficient-unbound", kept.text("status"), "it has no other disk")
	assert.Equal(t, "d", skip(true).text("skip_formatting_disks"))
	chosen := w.call(admin, "PATCH", host, map[string]any{"disks_selected_config": []any{map[string]any{"id": "d", "role": "install"}}})
	assert.Contains(t, chosen.text("validations_info"), "must not be formatted: choose another")
	freed := skip(false)
	assert.NotContains(t, freed.body, "skip_formatting_disks")
	assert.Equal(t, "known-unbound", freed.text("status"))
	skip(true)
	assert.Equal(t, "d", w.call(admin, "PATCH", host, map[string]any{"disks_skip_formatting": nil}).text("skip_formatting_disks"), "null is not given")
	assert.NotContains(t, w.call(admin, "PATCH", host, map[string]any{"disks_skip_formatting": []any{}}).body, "skip_formatting_disks")
}

func TestAnInfraEnvIsDeletedWithItsFreeHosts(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, strings.Repeat("機", 200))
	host, _ := w.host(env)
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]string{"cluster_id": w.cluster(admin, "c")}).status)
	refused := w.call(admin, "DELETE", "/infra-envs/"+env, nil)
	assert.Equal(t, 409, refused.status)
	assert.Contains(t, refused.text("reason"), "unbind them first")
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/unbind", nil).status)
	assert.Equal(t, 204, w.call(admin, "DELETE", "/infra-envs/"+env, nil).status)
	assert.Equal(t, 404, w.call(admin, "GET", host, nil).status)
}

func TestUnusableImageSettingsAreRefused(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := "/infra-envs/" + w.infraEnv(admin, "e")
	for what, body := range map[string]any{
		"a line break in a kernel argument": map[string]any{"kernel_arguments": []map[string]string{{"operation": "append", "value": "\"a\nset x=1\nb\""}}},
		"a line break in a proxy":           map[string]any{"proxy": map[string]string{"http_proxy": "http://proxy\nb"}},
		"no YAML in a network":              map[string]any{"static_network_config": []map[string]string{{"network_yaml": ": : ["}}},
		"a pull secret that is a number":    map[string]any{"pull_secret": "5"},
		"more after the JSON":               `{"ssh_authorized_key":"ssh-ed25519 AAAA"} and more`,
		"two JSON values":                   `{"ssh_authorized_key":"ssh-ed25519 AAAA"}{}`,
	} {
		a := w.call(admin, "PATCH", env, body)
		assert.Equal(t, 400, a.status, "%s: %s", what, a.raw)
		assert.NotEmpty(t, a.text("reason"), what)
	}
	assert.NotContains(t, w.call(admin, "GET", env, nil).body, "ssh_authorized_key")
}

func TestListsArePaged(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	for range 5 {
		w.host(env)
	}
	seen := map[string]bool{}
	for offset := 0; offset < 5; offset += 2 {
		a := w.call(admin, "GET", fmt.Sprintf("/infra-envs/%s/hosts?limit=2&offset=%d", env, offset), nil)
		assert.Equal(t, "5", a.header.Get("X-Total-Count"))
		var page []map[string]any
		require.NoError(t, json.Unmarshal([]byte(a.raw), &page))
		assert.LessOrEqual(t, len(page), 2)
		for _, host := range page {
			seen[fmt.Sprint(host["id"])] = true
		}
	}
	assert.Len(t, seen, 5)
	var all []map[string]any
	require.NoError(t, json.Unmarshal([]byte(w.call(admin, "GET", "/infra-envs/"+env+"/hosts", nil).raw), &all))
	assert.Len(t, all, 5, "clients of the time before paging get everything")
}

func TestSecretsDoNotComeBack(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	const secret = `{"auths":{"registry.example.com":{"auth":"aHVzaDpodXNo"}}}`
	env := w.call(admin, "POST", "/infra-envs", map[string]any{"name": "e", "pull_secret": secret})
	cluster := w.call(admin, "POST", "/clusters", map[string]any{"name": "c", "openshift_version": "4.20", "pull_secret": secret})
	for _, a := range []answer{
		env, cluster, w.call(admin, "GET", "/infra-envs", nil), w.call(admin, "GET", "/clusters", nil),
		w.call(admin, "PATCH", "/infra-envs/"+env.text("id"), map[string]any{"pull_secret": secret}), w.call(admin, "GET", "/events", nil),
	} {
		assert.NotContains(t, a.raw, "aHVzaDpodXNo")
	}
	assert.Equal(t, true, env.body["pull_secret_set"])
	assert.Equal(t, true, cluster.body["pull_secret_set"])
}

func TestForbiddenObjectsLookLikeUnknownOnes(t *testing.T) {
	w := newTestEnv(t)
	jane, joe := w.person("jane"), w.person("joe")
	env, cluster := w.infraEnv(jane, "e"), w.cluster(jane, "c")
	host, _ := w.host(env)
	assert.Equal(t, 200, w.call(jane, "GET", host, nil).status)
	unknown := uuid.NewString()
	for _, c := range []struct{ method, path, other string }{
		{"GET", "/infra-envs/" + env, "/infra-envs/" + unknown}, {"DELETE", "/infra-envs/" + env, "/infra-envs/" + unknown},
		{"GET", host, "/infra-envs/" + unknown + host[strings.LastIndex(host, "/hosts/"):]},
		{"GET", "/clusters/" + cluster, "/clusters/" + unknown}, {"POST", "/clusters/" + cluster + "/actions/install", "/clusters/" + unknown + "/actions/install"},
		{"GET", "/clusters/" + cluster + "/downloads/credentials?file_name=kubeconfig", "/clusters/" + unknown + "/downloads/credentials?file_name=kubeconfig"},
		{"GET", "/infra-envs/" + env + "/hosts", "/infra-envs/" + unknown + "/hosts"},
	} {
		forbidden, missing := w.call(joe, c.method, c.path, nil), w.call(joe, c.method, c.other, nil)
		assert.Equal(t, 404, forbidden.status, "%s %s: %s", c.method, c.path, forbidden.raw)
		assert.Equal(t, missing.status, forbidden.status, c.path)
	}
	for _, list := range []string{"/infra-envs", "/clusters"} {
		assert.Equal(t, "[]", strings.TrimSpace(w.call(joe, "GET", list, nil).raw))
	}
	assert.Equal(t, 404, w.call(joe, "POST", host+"/actions/bind", map[string]string{"cluster_id": w.cluster(joe, "mine")}).status)
	assert.Equal(t, 401, w.call(nil, "GET", "/infra-envs", nil).status)
	_, raw, _ := strings.Cut(jane["Authorization"], " ")
	for _, credentials := range []string{"Bearer " + raw, "bearer " + raw, "BEARER  " + raw, raw} {
		assert.Equal(t, 200, w.call(caller{"Authorization": credentials}, "GET", host, nil).status, credentials)
	}
	assert.Equal(t, 401, w.call(caller{"Authorization": "Basic " + raw}, "GET", host, nil).status)
}

func TestATokenOpensNothingElseWhereverItStands(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, other, cluster := w.infraEnv(admin, "e"), w.infraEnv(admin, "other"), w.cluster(admin, "c")
	host, narrowed := w.host(env)
	neighbour, _ := w.host(env)
	foreign, _ := w.host(other)
	// Agents that send their boot_id take a token of their own.
	ours := uuid.NewString()
	require.Equal(t, 201, w.call(caller{"X-Secret-Key": w.image(env)}, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": ours, "boot_id": "1"}).status)
	own, id := "/infra-envs/"+env+"/hosts/"+ours, host[strings.LastIndex(host, "/")+1:]
	generations, err := w.service.TokenGenerations(t.Context(), env)
	require.NoError(t, err)
	short, err := w.authority.Short(env, generations)
	require.NoError(t, err)

	places := map[string]func(raw, path string) (caller, string){
		"X-Secret-Key":  func(raw, path string) (caller, string) { return caller{"X-Secret-Key": raw}, path },
		"Image-Token":   func(raw, path string) (caller, string) { return caller{"Image-Token": raw}, path },
		"Authorization": func(raw, path string) (caller, string) { return caller{"Authorization": "Bearer " + raw}, path },
		"api_key":       func(raw, path string) (caller, string) { return nil, path + separator(path) + "api_key=" + raw },
		"image_token":   func(raw, path string) (caller, string) { return nil, path + separator(path) + "image_token=" + raw },
	}
	for place, put := range places {
		for name, c := range map[string]struct {
			raw, method, path string
			body              any
			want              int
		}{
			"the host asks for itself":                    {narrowed, "GET", host, nil, 200},
			"the host asks for its neighbour":             {narrowed, "GET", neighbour, nil, 404},
			"the host polls for its neighbour":            {narrowed, "GET", neighbour + "/instructions", nil, 404},
			"the host asks elsewhere":                     {narrowed, "GET", foreign, nil, 404},
			"the host registers its neighbour":            {narrowed, "POST", "/infra-envs/" + env + "/hosts", map[string]string{"host_id": uuid.NewString()}, 404},
			"the image asks for its infra-env":            {w.image(env), "GET", "/infra-envs/" + env, nil, 200},
			"the image asks for another infra-env":        {w.image(env), "GET", "/infra-envs/" + other, nil, 404},
			"the image registers elsewhere":               {w.image(env), "POST", "/infra-envs/" + other + "/hosts", map[string]string{"host_id": uuid.NewString()}, 404},
			"the image polls for an agent that keeps it":  {w.image(env), "GET", host + "/instructions?wait=0", nil, 200},
			"the image asks for a host":                   {w.image(env), "GET", own, nil, 404},
			"the image polls for a host":                  {w.image(env), "GET", own + "/instructions?wait=0", nil, 404},
			"the image replies for a host":                {w.image(env), "POST", own + "/instructions", map[string]string{"step_type": "inventory"}, 404},
			"the image reports for a host":                {w.image(env), "PUT", own + "/progress", map[string]string{"current_stage": "Done"}, 404},
			"the image asks for a host's secrets":         {w.image(env), "GET", own + "/first-boot", nil, 404},
			"the image asks for a host's ignition":        {w.image(env), "GET", "/infra-env" + strings.TrimPrefix(own, "/infra-envs") + "/downloads/ignition", nil, 404},
			"the image tells a host's logs":               {w.image(env), "PUT", own + "/logs-progress", map[string]string{"logs_state": "completed"}, 404},
			"the image tells a host's event":              {w.image(env), "POST", "/events", map[string]string{"infra_env_id": env, "host_id": ours, "name": "n", "severity": "info", "message": "m", "event_time": "2026-01-01T00:00:00Z"}, 404},
			"the image asks for a cluster":                {w.image(env), "GET", "/clusters/" + cluster, nil, 403},
			"the host asks for credentials":               {narrowed, "GET", "/clusters/" + cluster + "/downloads/credentials?file_name=kubeconfig", nil, 403},
			"the host binds itself":                       {narrowed, "POST", host + "/actions/bind", map[string]string{"cluster_id": cluster}, 403},
			"the host reads another infra-env's events":   {narrowed, "GET", "/events?infra_env_id=" + other, nil, 404},
			"the host reads a cluster's events":           {narrowed, "GET", "/events?infra_env_id=" + env + "&cluster_id=" + cluster, nil, 404},
			"the host reads its events":                   {narrowed, "GET", "/events?infra_env_id=" + env, nil, 200},
			"the host reads its neighbour's events":       {narrowed, "GET", "/events?infra_env_id=" + env + "&host_id=" + ours, nil, 404},
			"the host reads some neighbours' events":      {narrowed, "GET", "/events?infra_env_id=" + env + "&host_ids=" + ours, nil, 404},
			"the host reads its events and a neighbour's": {narrowed, "GET", "/events?infra_env_id=" + env + "&host_ids=" + id + "," + ours, nil, 404},
			"an image URL's token polls":                  {short, "GET", host + "/instructions?wait=0", nil, 401},
		} {
			who, path := put(c.raw, c.path)
			a := w.call(who, c.method, path, c.body)
			if place == "Authorization" && c.raw == short {
				assert.Equal(t, 401, a.status, "%s in %s", name, place)
				continue
			}
			assert.Equal(t, c.want, a.status, "%s, token in %s: %s", name, place, a.raw)
		}
	}
	mixed := w.call(caller{"X-Secret-Key": narrowed, "Authorization": admin["Authorization"]}, "GET", "/clusters/"+cluster, nil)
	assert.Equal(t, 403, mixed.status, "a machine's token beside a person's narrows")
	listed := w.call(caller{"X-Secret-Key": w.image(env)}, "GET", "/infra-envs/"+env+"/hosts", nil)
	assert.Contains(t, listed.raw, id, "agents with the image's token may still read")
	assert.NotContains(t, listed.raw, ours)
	events := w.call(caller{"X-Secret-Key": narrowed}, "GET", "/events?infra_env_id="+env+"&cluster_level=true", nil)
	assert.Contains(t, events.raw, id)
	assert.NotContains(t, events.raw, "infra_env_registered", "the infra-env's own events are not the host's")
	twice := w.call(caller{"X-Secret-Key": w.image(other)}, "GET", "/infra-envs/"+env+"?api_key="+w.image(env), nil)
	assert.Equal(t, 404, twice.status, "every token has to open it")
}

func separator(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

func TestOfTwoMachinesWithOneIDOnlyOneIsTheHost(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, other, id := w.infraEnv(admin, "e"), w.infraEnv(admin, "other"), uuid.NewString()
	hosts := "/infra-envs/" + env + "/hosts"
	register := func(token, fingerprint string) answer {
		return w.call(caller{"X-Secret-Key": token}, "POST", hosts, map[string]any{"host_id": id, "boot_id": "1", "fingerprint": fingerprint})
	}
	poll := func(token string) answer {
		return w.call(caller{"X-Secret-Key": token}, "GET", hosts+"/"+id+"/instructions?wait=0", nil)
	}
	first := register(w.image(env), "one").text("token")
	require.Equal(t, 200, poll(first).status)
	// It boots the image of another infra-env for a while: this one hears no more of it.
	require.Equal(t, 201, w.call(caller{"X-Secret-Key": w.image(other)}, "POST", "/infra-envs/"+other+"/hosts", map[string]any{"host_id": id, "boot_id": "2", "fingerprint": "one"}).status)
	second := register(w.image(env), "two")
	require.Equal(t, 201, second.status, second.raw)
	for _, refused := range []answer{poll(first), register(first, "one")} {
		assert.Equal(t, 401, refused.status, refused.raw)
		assert.Contains(t, refused.text("reason"), "revoked")
	}
	assert.Equal(t, 409, register(w.image(env), "one").status, "the other one is alive")
	assert.Equal(t, 200, poll(second.text("token")).status)
	assert.Contains(t, w.call(admin, "GET", "/events?infra_env_id="+env, nil).raw, "from 127.0.0.1: registration failed")
}

func TestRotationEndsTheImageAndKeepsHosts(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	host, narrowed := w.host(env)
	old := caller{"X-Secret-Key": w.image(env)}
	require.Equal(t, 204, w.call(admin, "POST", "/infra-envs/"+env+"/regenerate-signing-key", nil).status)

	refused := w.call(old, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": uuid.NewString()})
	assert.Equal(t, 401, refused.status)
	assert.Contains(t, refused.text("reason"), "revoked")
	assert.Equal(t, 200, w.call(caller{"X-Secret-Key": narrowed}, "GET", host+"/instructions?wait=0", nil).status)
	assert.Equal(t, 201, w.call(caller{"X-Secret-Key": w.image(env)}, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": uuid.NewString()}).status)
}

func TestAgentsThatKeepTheTokenOfTheirImageOutliveARotation(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	old := caller{"X-Secret-Key": w.image(env)}
	running, _ := w.host(env) // sends no boot_id and takes no token, as agents of assisted-service
	id := uuid.NewString()
	own := "/infra-envs/" + env + "/hosts/" + id
	require.Equal(t, 201, w.call(old, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": id, "boot_id": "1"}).status)
	require.Equal(t, 204, w.call(admin, "POST", "/infra-envs/"+env+"/regenerate-signing-key", nil).status)

	assert.Equal(t, 200, w.call(old, "GET", running+"/instructions?wait=0", nil).status)
	report := map[string]any{"step_type": "inventory", "step_id": "inventory-1", "exit_code": 0, "output": inventory}
	assert.Equal(t, 204, w.call(old, "POST", running+"/instructions", report).status)
	for _, refused := range []answer{
		w.call(old, "GET", own+"/instructions?wait=0", nil), // this agent has a token of its own
		w.call(old, "GET", "/infra-envs/"+env+"/hosts/"+uuid.NewString()+"/instructions?wait=0", nil),
		w.call(old, "GET", "/infra-envs/"+env+"/hosts", nil),
		w.call(old, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": running[strings.LastIndex(running, "/")+1:]}), // it booted the old image again
	} {
		assert.Equal(t, 401, refused.status, refused.raw)
		assert.Contains(t, refused.text("reason"), "revoked")
	}
	_, err := w.service.RotateTokens(t.Context(), domain.Kubernetes, env, true)
	require.NoError(t, err)
	assert.Equal(t, 401, w.call(old, "GET", running+"/instructions?wait=0", nil).status, "a rotation can end running hosts, too")
}

func TestATokenThatExpiresIsRenewedOrReplacedByTheImages(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env := w.infraEnv(admin, "e")
	image := caller{"X-Secret-Key": w.image(env)}
	host, first := w.host(env)
	poll := func(token string) answer {
		return w.call(caller{"X-Secret-Key": token}, "GET", host+"/instructions?wait=0", nil)
	}
	assert.NotContains(t, poll(first).body, "token", "it is good for long")
	w.later(13 * time.Hour)
	renewed := poll(first).text("token")
	require.NotEmpty(t, renewed)
	w.later(12 * time.Hour)
	expired := poll(first)
	assert.Equal(t, 401, expired.status)
	assert.Contains(t, expired.text("reason"), "expired")
	assert.Equal(t, 200, poll(renewed).status)
	// An agent that was away for too long registers with what its image holds, and nothing of the host is lost.
	again := w.call(image, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": host[strings.LastIndex(host, "/")+1:]})
	require.Equal(t, 201, again.status, again.raw)
	assert.Equal(t, 200, poll(again.text("token")).status)
	// One that was never away goes on with its image's token after that has expired.
	w.later(500 * 24 * time.Hour)
	assert.Equal(t, 200, w.call(image, "GET", host+"/instructions?wait=0", nil).status)
	assert.Equal(t, 401, w.call(image, "POST", "/infra-envs/"+env+"/hosts", map[string]any{"host_id": uuid.NewString()}).status)
}

func TestAHeldPollIsAnsweredWhenTheHostIsBound(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, narrowed := w.host(env)
	agent := caller{"X-Secret-Key": narrowed}
	for w.call(agent, "GET", host+"/instructions?wait=0", nil).raw != `{"instructions":[],"next_instruction_seconds":1,"post_step_action":"continue"}`+"\n" {
	}
	answered := make(chan answer, 1)
	go func() { answered <- w.call(agent, "GET", host+"/instructions", nil) }()
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]string{"cluster_id": cluster}).status)
	a := <-answered
	assert.Equal(t, 200, a.status)
	assert.Contains(t, a.raw, "inventory")
	assert.Equal(t, "continue", a.text("post_step_action"), "binding needs no new registration")
}

func TestEventsAreFilteredAndStreamed(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	host, _ := w.host(env)
	a := w.call(admin, "GET", "/events?infra_env_id="+env+"&limit=1&severities=info", nil)
	require.Equal(t, 200, a.status, a.raw)
	assert.NotEqual(t, "0", a.header.Get("Event-Count"))
	assert.Equal(t, a.header.Get("Event-Count"), a.header.Get("Severity-Count-Info"))
	var one []map[string]any
	require.NoError(t, json.Unmarshal([]byte(a.raw), &one))
	assert.Len(t, one, 1)

	request, err := http.NewRequestWithContext(t.Context(), "GET", w.server.URL+"/api/assisted-install/v2/events/stream?infra_env_id="+env, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", admin["Authorization"])
	response, err := w.server.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines := bufio.NewScanner(response.Body)
	bound := false
	for !bound && lines.Scan() {
		if strings.Contains(lines.Text(), "infra_env_registered") {
			require.Equal(t, 200, w.call(admin, "POST", host+"/actions/bind", map[string]string{"cluster_id": cluster}).status)
		}
		bound = strings.Contains(lines.Text(), "host_bind_succeeded")
	}
	assert.True(t, bound, "news come as they happen")
}

func TestTheDocumentationIsServed(t *testing.T) {
	w := newTestEnv(t)
	for path, says := range map[string]string{"/docs": "actions/move", "/docs/openapi.yaml": "openapi: 3.0.3", "/healthz": "ok", "/readyz": "ok"} {
		response, err := w.server.Client().Get(w.server.URL + path)
		require.NoError(t, err)
		var text strings.Builder
		_, err = bufio.NewReader(response.Body).WriteTo(&text)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, 200, response.StatusCode, path)
		assert.Contains(t, text.String(), says)
		assert.NotContains(t, text.String(), "<script")
	}
}

func TestAllHostsAreListedThatOneMaySee(t *testing.T) {
	w := newTestEnv(t)
	admin, olga, carl := w.person("root", "admins"), w.person("olga"), w.person("carl")
	first, second := w.infraEnv(olga, "one"), w.infraEnv(carl, "two")
	host, _ := w.host(first)
	labelled, _ := w.host(first)
	w.host(second)
	cluster := w.cluster(olga, "c")
	w.bind(olga, host, cluster)
	require.Equal(t, 201, w.call(olga, "PATCH", labelled, map[string]any{"node_labels": []any{map[string]string{"key": "rack", "value": "r7"}}}).status)
	for _, c := range []struct {
		who   caller
		query string
		total string
	}{
		{admin, "", "3"}, {admin, "?limit=1", "3"}, {olga, "", "2"}, {carl, "", "1"}, {w.person("joe"), "", "0"},
		{admin, "?infra_env_id=" + second, "1"}, {olga, "?infra_env_id=" + second, "0"}, {admin, "?cluster_id=" + cluster, "1"}, {admin, "?unbound=true", "2"},
		{admin, "?status=known-unbound,insufficient-unbound", "2"}, {admin, "?status=installed", "0"}, {admin, "?role=master", "0"},
		{admin, "?label_selector=rack+in+(r7,r8)", "1"}, {olga, "?label_selector=rack%3Dr7&unbound=true", "1"}, {carl, "?label_selector=rack", "0"}, {admin, "?label_selector=!rack", "2"},
	} {
		a := w.call(c.who, "GET", "/hosts"+c.query, nil)
		require.Equal(t, 200, a.status, a.raw)
		assert.Equal(t, c.total, a.header.Get("X-Total-Count"), c.query)
	}
	for _, c := range []struct {
		who         caller
		query, want string
	}{
		{admin, "", `{"total": 3, "states": [{"status": "known", "count": 1}, {"status": "known-unbound", "count": 2}]}`}, {w.person("joe"), "", `{"total": 0, "states": []}`},
		{olga, "?unbound=true", `{"total": 1, "states": [{"status": "known-unbound", "count": 1}]}`}, {carl, "?infra_env_id=" + first, `{"total": 0, "states": []}`},
		{admin, "?role=master", `{"total": 0, "states": []}`}, {carl, "?search=no-such-name", `{"total": 0, "states": []}`},
	} {
		a := w.call(c.who, "GET", "/hosts/counts"+c.query, nil)
		require.Equal(t, 200, a.status, a.raw)
		assert.JSONEq(t, c.want, a.raw, c.query)
	}
	assert.JSONEq(t, `{"total": 1, "states": [{"status": "known-unbound", "count": 1}]}`, w.call(olga, "GET", "/hosts/counts?label_selector=rack", nil).raw)
	for _, path := range []string{"/hosts", "/hosts/counts"} {
		a := w.call(admin, "GET", path+"?label_selector=rack+in", nil)
		assert.Equal(t, 400, a.status)
		assert.Contains(t, a.raw, "label_selector: write a selector such as rack in (a,b),gpu")
	}
	assert.Equal(t, 403, w.call(caller{"X-Secret-Key": w.image(first)}, "GET", "/hosts/counts", nil).status)
	assert.NotContains(t, w.call(admin, "GET", "/hosts", nil).raw, "physical_bytes")
	assert.Contains(t, w.call(admin, "GET", "/hosts?with-inventory=true", nil).raw, "physical_bytes")
	assert.Equal(t, 400, w.call(admin, "GET", "/hosts?status=sleepy", nil).status)
	assert.Equal(t, 403, w.call(caller{"X-Secret-Key": w.image(first)}, "GET", "/hosts", nil).status)
}

func TestChangesAreStreamedThatOneMaySee(t *testing.T) {
	w := newTestEnv(t)
	olga, carl := w.person("olga"), w.person("carl")
	changes := func(who caller) <-chan string {
		request, err := http.NewRequestWithContext(t.Context(), "GET", w.server.URL+"/api/assisted-install/v2/changes/stream", http.NoBody)
		require.NoError(t, err)
		request.Header.Set("Authorization", who["Authorization"])
		response, err := w.server.Client().Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
		found := make(chan string, 1000)
		go func() {
			defer close(found)
			for lines := bufio.NewScanner(response.Body); lines.Scan(); {
				if strings.HasPrefix(lines.Text(), "event:") {
					found <- lines.Text()
				}
			}
		}()
		return found
	}
	own, others := changes(olga), changes(carl)
	require.Equal(t, "event: changed", <-own, "the client reads once the stream is there")
	require.Equal(t, "event: changed", <-others)
	env := w.infraEnv(olga, "one")
	require.Equal(t, "event: changed", <-own)
	host, _ := w.host(env)
	require.Equal(t, "event: changed", <-own)
	require.Equal(t, 204, w.call(olga, "DELETE", host, nil).status)
	require.Equal(t, "event: changed", <-own)
	w.infraEnv(carl, "two")
	require.Equal(t, "event: changed", <-others)
	assert.Empty(t, others, "carl was told of his own InfraEnv alone")
}
