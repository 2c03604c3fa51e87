// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// update writes the picture that README shows.
var update = flag.Bool("update", false, "write the picture of README")

const shownInReadme = "../../../docs/images/console.png"

// id is the last part of the address of the page.
func (b *tab) id() string {
	b.Helper()
	address := ask[string](b, `location.pathname`)
	return address[strings.LastIndex(address, "/")+1:]
}

// makeInfraEnv fills in the form, and returns the id of what was made.
func (b *tab) makeInfraEnv(name string) string {
	b.Helper()
	b.visit("/infra-envs")
	b.press("New InfraEnv")
	b.sees("h1", "New InfraEnv")
	b.looksFine("infraenv-form")
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), name), chromedp.SendKeys(chromedp.CSS("#pull_secret"), `{"auths":{}}`))
	b.press("Create")
	b.sees("h1", name)
	return b.id()
}

func (b *tab) makeCluster(name string) string {
	b.Helper()
	b.visit("/clusters/new")
	b.looksFine("cluster-form")
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), name), chromedp.SendKeys(chromedp.CSS("#version"), "live"), chromedp.SendKeys(chromedp.CSS("#machine_network"), "10.0.0.0/8"), chromedp.SendKeys(chromedp.CSS("#domain"), "example.com"),
		chromedp.SendKeys(chromedp.CSS("#api_vip"), "10.200.0.1"), chromedp.SendKeys(chromedp.CSS("#ingress_vip"), "10.200.0.2"), chromedp.SendKeys(chromedp.CSS("#pull_secret"), `{"auths":{}}`))
	b.press("Create")
	b.sees("h1", name)
	return b.id()
}

// TestAnAdministratorAndAUserWorkWithMachines is the main job, as people do it.
func TestAnAdministratorAndAUserWorkWithMachines(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	b := s.open(chromium, t, admin)
	b.looksFine("home-empty")

	// An InfraEnv is made, and its image downloaded.
	env := b.makeInfraEnv("rack-a")
	b.looksFine("infraenv-empty")
	downloads := b.download()
	b.press("Download the ISO")
	require.Eventually(t, func() bool {
		found, err := filepath.Glob(filepath.Join(downloads, "*.iso"))
		require.NoError(t, err)
		if len(found) == 0 {
			return false
		}
		info, err := os.Stat(found[0])
		return err == nil && info.Size() >= 4<<20
	}, patience, tick)
	b.press("Show the iPXE line")
	b.sees("textarea", "chain http")
	b.looksFine("infraenv-ipxe")

	// Machines appear while the page is open.
	b.visit("/infra-envs/" + env)
	b.sees("#live", "No machine has registered yet")
	ask[any](b, `window.loaded = "once"`)
	s.boot(s.imageToken(admin, env), env, "a", 5)
	b.sees("#live", "host-a-00004")
	b.until(`document.querySelectorAll("#live .badge.ok").length === 5`)
	assert.Equal(t, "once", ask[string](b, `window.loaded`), "the page was not loaded again")
	b.looksFine("infraenv")

	// Three of five are bound.
	cluster := b.makeCluster("blue")
	b.sees("#missing-title", "What is missing")
	b.sees(".card.warn .checks", "The cluster needs 3 hosts of the control plane and has 0")
	b.sees("#met summary", "Requirements that are met (4)")
	ask[any](b, `document.querySelector("#met summary").click(); null`)
	b.sees("#met .checks", "The pull secret is set")
	b.looksFine("cluster-empty")
	b.visit("/machines?state=free")
	b.until(`document.querySelectorAll("input[name=host]").length === 5`)
	b.looksFine("machines-free")
	ask[any](b, `Array.from(document.querySelectorAll("input[name=host]")).slice(0, 3).forEach(e => e.click()); null`)
	b.sees("#selected", "3 selected")
	b.picture("machines-selected")
	b.press("Bind…")
	b.sees("h1", "Bind 3 machines to blue")
	b.sees(".notice", "All 3 machines would be valid in cluster blue.")
	b.looksFine("plan")
	b.press("Bind selected machines")
	b.sees(".notice", "3 of 3 machines were changed.")
	b.looksFine("outcome")
	b.visit("/clusters/" + cluster)
	b.sees("#hosts-title", "Machines (3)")
	b.until(`document.querySelectorAll("tbody .badge.ok").length >= 3`)
	b.until(`document.querySelector("#missing-title") === null`)
	b.sees("#met summary", "Requirements that are met (5)")
	b.looksFine("cluster")

	// The machine's own page.
	ask[any](b, `document.querySelector("tbody th a").click(); null`)
	b.sees("h2", "Installation")
	b.sees("main", "/dev/nvme0n1")
	b.sees(".events", "bound to cluster")
	b.looksFine("machine")

	// One is moved, and moved back.
	b.visit("/clusters/" + cluster)
	other := b.makeCluster("green")
	b.visit("/machines?cluster=" + cluster)
	b.run(chromedp.Click(chromedp.CSS("input[name=host]")))
	b.set("#cluster", other)
	b.press("Move…")
	b.sees("h1", "Move 1 machine to green")
	b.press("Move selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")
	b.press("Undo…")
	b.sees("h1", "Move 1 machine to blue")
	b.press("Move selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")

	// One gets a role, and then the one that it had.
	b.visit("/machines?cluster=" + cluster)
	b.run(chromedp.Click(chromedp.CSS("input[name=host]")))
	b.set("#role", "worker")
	b.press("Set role…")
	b.sees("h1", "Give 1 machine the role Worker")
	b.press("Set the role of selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")
	b.press("Undo…")
	b.sees("h1", "Give 1 machine the role Automatic")
	b.press("Set the role of selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")

	// One that is too small is not bound: the API says why before anything is done.
	s.report(s.imageToken(admin, env), env, uuid.NewString(), map[string]any{
		"hostname": "edge-7", "cpu": map[string]any{"architecture": "x86_64", "count": 1}, "memory": map[string]any{"physical_bytes": 2 << 30, "usable_bytes": 2 << 30},
		"disks": []any{}, "system_vendor": map[string]any{"product_name": "Old desktop"},
		"interfaces": []any{map[string]any{"name": "eno1", "mac_address": "52:54:00:00:00:07", "ipv4_addresses": []string{"10.0.9.7/8"}}},
	})
	b.visit("/machines")
	b.until(`document.querySelectorAll("input[name=host]").length === 6`)
	b.sees("main", "edge-7")
	ask[any](b, `Array.from(document.querySelectorAll("tr")).filter(r => /edge-7|Free/.test(r.textContent)).forEach(r => r.querySelector("input[name=host]").click()); null`)
	b.sees("#selected", "3 selected")
	b.press("Bind…")
	b.sees(".notice", "1 of 3 machines would not be valid in cluster blue")
	b.sees("td", "CPU")
	assert.Equal(t, 2, ask[int](b, `document.querySelectorAll("input[name=host]:checked").length`))
	b.looksFine("plan-refused")

	b.visit("/machines")
	b.until(`document.querySelectorAll("input[name=host]").length === 6`)
	b.looksFine("machines")
	if *update {
		png, err := os.ReadFile(filepath.Join(t.ArtifactDir(), "machines-light.png"))
		require.NoError(t, err)
		require.Less(t, len(png), 200_000)
		require.NoError(t, os.MkdirAll(filepath.Dir(shownInReadme), 0o750))
		require.NoError(t, os.WriteFile(shownInReadme, png, 0o600))
	}
	b.visit("/")
	b.looksFine("home")
	b.visit("/clusters")
	b.looksFine("clusters")
	b.visit("/infra-envs")
	b.looksFine("infraenvs")

	// Another tenant sees nothing of it.
	joe := s.open(chromium, t, s.token("joe"))
	joe.visit("/machines")
	joe.sees("main", "There are no machines yet")
	for _, path := range []string{"/infra-envs/" + env, "/clusters/" + cluster, "/machines/" + env + "/" + uuid.NewString()} {
		joe.visit(path)
		joe.sees(".notice.bad", "")
		text := ask[string](joe, `document.body.innerText`)
		for _, secret := range []string{"rack-a", "blue", "host-a"} {
			assert.NotContains(t, text, secret, path)
		}
	}
	joe.looksFine("error")
}

// TestTextOfMachinesIsNeverMarkup: a machine calls itself and its disks what a browser could run.
func TestTextOfMachinesIsNeverMarkup(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	b := s.open(chromium, t, admin)
	var env struct{ ID string }
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "POST", "/infra-envs", map[string]any{"name": "<img src=x onerror=window.ran=1>", "pull_secret": `{"auths":{}}`}), &env))
	const evil = `<script>window.ran=1</script>"><svg onload=window.ran=1> javascript:window.ran=1`
	host := uuid.NewString()
	s.report(s.imageToken(admin, env.ID), env.ID, host, map[string]any{
		"hostname": evil, "cpu": map[string]any{"architecture": evil, "count": 16, "model_name": evil}, "memory": map[string]any{"physical_bytes": 64 << 30},
		"disks":      []any{map[string]any{"id": "d", "name": evil, "path": evil, "drive_type": evil, "model": evil, "serial": evil, "size_bytes": 480_000_000_000, "installation_eligibility": map[string]any{"not_eligible_reasons": []string{evil}}}},
		"interfaces": []any{map[string]any{"name": evil, "mac_address": evil, "ipv4_addresses": []string{evil}}}, "system_vendor": map[string]any{"manufacturer": evil, "product_name": evil, "serial_number": evil},
	})
	for _, path := range []string{"/", "/machines", "/machines/" + env.ID + "/" + host, "/infra-envs", "/infra-envs/" + env.ID} {
		b.visit(path)
		b.until(`document.readyState === "complete" && window.htmx !== undefined`)
		ask[any](b, `htmx.trigger(document.getElementById("live"), "sse:changed"); null`)
		b.sees("main", map[bool]string{true: "onerror=window.ran", false: "<script>window.ran"}[path == "/infra-envs"])
		assert.False(t, ask[bool](b, `window.ran !== undefined || document.querySelector("main script, main svg, main img") !== null`), path)
	}
	b.picture("markup")

	// The same on the way into a cluster, and there.
	tame := uuid.NewString()
	s.report(s.imageToken(admin, env.ID), env.ID, tame, map[string]any{"hostname": evil, "cpu": map[string]any{"architecture": "x86_64", "count": 16}, "memory": map[string]any{"physical_bytes": 64 << 30}})
	cluster := s.makeCluster(admin, "blue")
	runs := func(where string) {
		t.Helper()
		b.sees("main", "<script>window.ran")
		assert.False(t, ask[bool](b, `window.ran !== undefined || document.querySelector("main script, main svg, main img") !== null`), where)
	}
	b.visit("/machines")
	b.until(`document.querySelectorAll("input[name=host]").length === 2`)
	ask[any](b, `document.querySelectorAll("input[name=host]").forEach(e => e.click()); null`)
	b.press("Bind…")
	b.sees("h1", "Bind 2 machines to blue")
	runs("plan")
	ask[any](b, `document.querySelectorAll("input[name=host]").forEach(e => { e.checked = true }); null`)
	b.press("Bind selected machines")
	b.sees("#progress", "of 2 machines were changed.")
	runs("outcome")
	b.visit("/clusters/" + cluster)
	b.sees("#live tbody th", "<script>window.ran")
	b.sees(".events", "<script>window.ran")
	ask[any](b, `htmx.trigger(document.getElementById("live"), "sse:changed"); null`)
	runs("cluster")
}

// TestThePageGoesOnAfterARestart: the service restarts while the page is open.
func TestThePageGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	var env struct{ ID string }
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+admin, "POST", "/infra-envs", map[string]any{"name": "rack-b", "pull_secret": `{"auths":{}}`}), &env))
	token := s.imageToken(admin, env.ID)
	b := s.open(chromium, t, admin)
	b.visit("/machines")
	b.sees("main", "No machine matches")
	s.stop()
	b.sees("#connection.lost", "The connection to the service is lost")
	b.picture("connection-lost")
	s.start()
	b.sees("#connection.back", "The connection is back")
	s.boot(token, env.ID, "b", 1)
	b.sees("#live", "host-b-00000")
}

// TestThePagesKeepNoSecret looks where a browser keeps things, and what it is told.
func TestThePagesKeepNoSecret(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	b := s.open(chromium, t, admin)
	for _, path := range []string{"/", "/machines", "/infra-envs", "/clusters"} {
		b.visit(path)
		kept := ask[string](b, `document.documentElement.outerHTML + document.cookie + location.href + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)`)
		assert.NotContains(t, kept, admin[:40], path)
		assert.NotContains(t, kept, "muster-console", path)
	}
	b.run(chromedp.Click(chromedp.CSS("header button")))
	b.sees("h1", "Sign in")
	b.looksFine("signin")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), "wrong"))
	b.press("Sign in")
	b.sees(".notice.bad", "The API does not accept this token")
	b.visit("/machines")
	b.sees("h1", "Sign in")
}
