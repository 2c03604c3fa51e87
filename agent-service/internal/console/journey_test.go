// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bytes"
	"encoding/json"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
)

// downloaded waits for a file that the browser keeps, and returns what is in it.
func (b *tab) downloaded(dir, pattern string, whole func(content []byte) bool) {
	b.Helper()
	require.Eventually(b, func() bool {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) == 0 {
			return false
		}
		content, err := os.ReadFile(found[0])
		return err == nil && whole(content)
	}, patience, tick)
}

// choose selects the machines of the list whose rows match.
func (b *tab) choose(rows string) {
	b.Helper()
	ask[any](b, `Array.from(document.querySelectorAll("tbody tr")).filter(r => /`+rows+`/.test(r.textContent)).forEach(r => r.querySelector("input[name=host]").click()); null`)
}

// TestAnAdministratorServesACreator is the whole story: machines of the one become a cluster of the other, and a stranger sees nothing of it.
func TestAnAdministratorServesACreator(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t, "--os-images="+systemsOf(t), "--oidc-organization-claim=org")
	admin, creator, stranger := s.member("root", "acme", "admins"), s.member("carl", "acme"), s.member("joe", "other")

	// The administrator makes an InfraEnv and downloads its image. Machines that boot it appear while the page is open, and are approved.
	root := s.open(chromium, t, admin)
	env := root.makeInfraEnv("rack-a")
	images := root.download()
	root.press("Download the ISO")
	root.downloaded(images, "*.iso", func(content []byte) bool { return len(content) >= 4<<20 })
	ask[any](root, `window.loaded = "once"`)
	token := s.imageToken(admin, env)
	s.boot(token, env, "a", 4)
	root.until(`document.querySelectorAll("#live .badge.ok").length === 4`)
	small := uuid.NewString()
	s.report(token, env, small, map[string]any{
		"hostname": "edge-7", "cpu": map[string]any{"architecture": "x86_64", "count": 1}, "memory": map[string]any{"physical_bytes": 2 << 30, "usable_bytes": 2 << 30}, "disks": []any{},
		"interfaces": []any{map[string]any{"name": "eno1", "mac_address": "52:54:00:00:00:07", "ipv4_addresses": []string{"10.0.9.7/8"}}},
	})
	root.sees("#live", "edge-7")
	assert.Equal(t, "once", ask[string](root, `window.loaded`), "the page was not loaded again")
	root.visit("/machines")
	root.until(`document.querySelectorAll("input[name=host]").length === 5`)
	assert.NotContains(t, ask[string](root, `document.querySelector("main").innerText`), "Not approved")

	// The creator picks three of five, sees why one would not do, and binds the others.
	carl := s.open(chromium, t, creator)
	blue := carl.makeCluster("blue")
	green := carl.makeCluster("green")
	carl.visit("/machines")
	carl.until(`document.querySelectorAll("input[name=host]").length === 5`)
	carl.choose("edge-7|host-a-0000[01]")
	carl.sees("#selected", "3 selected")
	carl.set("#cluster", blue)
	carl.press("Bind…")
	carl.sees(".notice", "1 of 3 machines would not be valid in cluster blue")
	carl.sees("td", "CPU")
	carl.press("Bind selected machines")
	carl.sees(".notice", "2 of 2 machines were changed.")
	carl.visit("/machines?state=free")
	carl.until(`document.querySelectorAll("input[name=host]").length === 2`)
	carl.choose("host-a-0000[23]")
	carl.set("#cluster", blue)
	carl.press("Bind…")
	carl.sees(".notice", "All 2 machines would be valid in cluster blue.")
	carl.press("Bind selected machines")
	carl.sees(".notice", "2 of 2 machines were changed.")

	// One is moved; the three others are installed.
	carl.visit("/machines?cluster=" + blue)
	carl.until(`document.querySelectorAll("input[name=host]").length === 4`)
	carl.choose("host-a-00003")
	carl.set("#cluster", green)
	carl.press("Move…")
	carl.sees("h1", "Move 1 machine to green")
	carl.press("Move selected machines")
	carl.sees(".notice", "1 of 1 machines were changed.")
	carl.visit("/clusters/" + green)
	carl.sees("#live", "host-a-00003")
	carl.visit("/clusters/" + blue)
	carl.sees("#hosts-title", "Machines (3)")
	carl.sees(".heading .badge", "Ready to install")
	carl.looksFine("cluster-ready")
	carl.press("Install")
	carl.sees(".stages", "Finalizing") // a stage that may be over before it is seen
	carl.until(`Array.from(document.querySelectorAll("#live tbody .badge")).filter(e => e.textContent === "Installed").length === 3`)
	ask[any](carl, `document.querySelectorAll("details").forEach(d => { d.open = true }); null`)
	carl.looksFine("cluster-installing")
	s.call("Authorization", "Bearer "+creator, "POST", "/clusters/"+blue+"/actions/complete-installation", map[string]any{"is_success": true, "data": map[string]any{"kubeconfig": "apiVersion: v1\nkind: Config\n"}})
	carl.sees(".heading .badge", "Installed")
	ask[any](carl, `document.querySelector("tbody th a").click(); null`)
	carl.sees(".stages li.done", "Done")
	carl.looksFine("machine-installed")
	carl.visit("/clusters/" + blue)
	files := carl.download()
	carl.press("Download the kubeconfig")
	carl.downloaded(files, "kubeconfig", func(content []byte) bool { return bytes.HasPrefix(content, []byte("apiVersion: v1")) })

	// Another tenant sees nothing of it.
	joe := s.open(chromium, t, stranger)
	for _, path := range []string{"/", "/machines", "/machines?cluster=" + blue, "/infra-envs", "/clusters", "/infra-envs/" + env, "/clusters/" + blue, "/machines/" + env + "/" + small, "/clusters/" + blue + "/credentials/kubeconfig"} {
		joe.visit(path)
		joe.sees(".person", "joe")
		text := ask[string](joe, `document.body.innerText`)
		for _, secret := range []string{"rack-a", "blue", "green", "host-a", "edge-7", "apiVersion"} {
			assert.NotContains(t, text, secret, path)
		}
	}
}

// TestLogsOfAMachineAreDownloaded from its page, by the creator of its cluster.
func TestLogsOfAMachineAreDownloaded(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	carl := s.token("carl")
	env := s.makeInfraEnv(carl, "rack-l")
	token, host := s.imageToken(carl, env), uuid.NewString()
	s.report(token, env, host, map[string]any{"hostname": "node-1", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	cluster := s.makeCluster(carl, "blue")
	s.call("Authorization", "Bearer "+carl, "POST", "/infra-envs/"+env+"/hosts/"+host+"/actions/bind", map[string]any{"cluster_id": cluster})
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("upfile", "logs.tar.gz")
	require.NoError(t, err)
	_, err = part.Write([]byte("what the machine logged"))
	require.NoError(t, err)
	require.NoError(t, form.Close())
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+api.Base+"/clusters/"+cluster+"/logs?logs_type=host&infra_env_id="+env+"&host_id="+host, &body)
	require.NoError(t, err)
	request.Header.Set("X-Secret-Key", token)
	request.Header.Set("Content-Type", form.FormDataContentType())
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusNoContent, response.StatusCode)
	s.call("X-Secret-Key", token, "PUT", "/infra-envs/"+env+"/hosts/"+host+"/logs-progress", map[string]any{"logs_state": "completed"})

	b := s.open(chromium, t, carl)
	b.visit("/machines/" + env + "/" + host)
	b.sees("dd", "(complete)")
	dir := b.download()
	b.press("Download")
	b.downloaded(dir, "logs*", func(content []byte) bool { return string(content) == "what the machine logged" })
}

// makeCluster makes one by the API, and returns its id.
func (s *site) makeCluster(person, name string) string {
	s.t.Helper()
	var made struct{ ID string }
	require.NoError(s.t, json.Unmarshal(s.call("Authorization", "Bearer "+person, "POST", "/clusters", map[string]any{
		"name": name, "openshift_version": "live", "base_dns_domain": "example.com", "pull_secret": `{"auths":{}}`, "control_plane_count": 1, "high_availability_mode": "None",
		"machine_networks": []any{map[string]any{"cidr": "10.0.0.0/8"}},
	}), &made))
	return made.ID
}

// reach presses the tabulator until an element has the focus.
func (b *tab) reach(selector string) {
	b.Helper()
	for range 60 {
		if ask[bool](b, `document.activeElement.matches(`+quoted(selector)+`)`) {
			return
		}
		b.run(chromedp.KeyEvent(kb.Tab))
	}
	assert.Fail(b, "the keyboard does not get there", selector)
}

func quoted(text string) string {
	raw, _ := json.Marshal(text) //nolint:errchkjson // a string
	return string(raw)
}

// TestMachinesAreBoundByTheKeyboardAlone: what is done by clicks is done by keys, and where the focus is can be seen.
func TestMachinesAreBoundByTheKeyboardAlone(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	carl := s.token("carl")
	env := s.makeInfraEnv(carl, "rack-k")
	s.report(s.imageToken(carl, env), env, uuid.NewString(), map[string]any{"hostname": "node-1", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	s.makeCluster(carl, "blue")
	b := s.open(chromium, t, carl)
	b.visit("/machines")
	b.sees("#live", "node-1")
	b.run(chromedp.KeyEvent(kb.Tab))
	assert.True(t, ask[bool](b, `document.activeElement.matches("a.skip")`), "the first key leads over the navigation")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.until(`location.hash === "#main"`)
	b.reach("input[name=host]")
	assert.NotEqual(t, "none", ask[string](b, `getComputedStyle(document.activeElement).outlineStyle`), "the focus is seen")
	b.run(chromedp.KeyEvent(" "))
	b.sees("#selected", "1 selected")
	b.reach("button[value=bind]")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees("h1", "Bind 1 machine to blue")
	b.reach("input[name=host]")
	if !ask[bool](b, `document.activeElement.checked`) { // whatever the dry run says
		b.run(chromedp.KeyEvent(" "))
	}
	b.reach("main button.primary")
	b.run(chromedp.KeyEvent(kb.Enter))
	b.sees(".notice", "1 of 1 machines were changed.")
}
