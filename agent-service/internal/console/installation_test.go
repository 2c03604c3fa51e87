// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// systemsOf lists a system that machines install, from a server of the test.
func systemsOf(t *testing.T) string {
	t.Helper()
	content := bytes.Repeat([]byte("system"), 1<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(content)
	list, err := json.Marshal([]map[string]string{{"version": "live", "cpuArchitecture": "x86_64", "url": server.URL + "/disk.raw", "sha256": hex.EncodeToString(sum[:])}})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "systems.json")
	require.NoError(t, os.WriteFile(path, list, 0o600))
	return path
}

// TestTheCreatorWatchesAnInstallationAndGetsItsCredentials in the browser; others do not get them.
func TestTheCreatorWatchesAnInstallationAndGetsItsCredentials(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t, "--os-images="+systemsOf(t))
	carl := s.token("carl")
	env := s.makeInfraEnv(carl, "rack-c")
	var cluster struct{ ID string }
	require.NoError(t, json.Unmarshal(s.call("Authorization", "Bearer "+carl, "POST", "/clusters", map[string]any{
		"name": "blue", "openshift_version": "live", "base_dns_domain": "example.com", "pull_secret": `{"auths":{}}`, "control_plane_count": 1, "high_availability_mode": "None",
		"machine_networks": []any{map[string]any{"cidr": "10.0.0.0/8"}},
	}), &cluster))
	s.boot(s.imageToken(carl, env), env, "c", 1)

	b := s.open(chromium, t, carl)
	b.visit("/machines?state=free")
	b.sees("#live", "host-c-00000")
	b.run(chromedp.Click(chromedp.CSS("input[name=host]")))
	b.press("Bind…")
	b.sees(".notice", "would be valid in cluster blue")
	b.press("Bind selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")
	b.visit("/clusters/" + cluster.ID)
	b.sees(".heading .badge", "Ready to install")
	watching := s.open(chromium, t, carl)
	watching.visit("/clusters/" + cluster.ID)
	watching.sees(".heading .badge", "Ready to install")
	ask[any](watching, `window.loaded = "once"`)
	b.press("Install")
	watching.sees("#live tbody .badge.ok", "Installed")
	assert.Equal(t, "once", ask[string](watching, `window.loaded`), "the page was not loaded again")
	s.call("Authorization", "Bearer "+carl, "POST", "/clusters/"+cluster.ID+"/actions/complete-installation", map[string]any{"is_success": true, "data": map[string]any{"kubeconfig": "apiVersion: v1\nkind: Config\n"}})
	b.sees(".heading .badge", "Installed")
	b.looksFine("cluster-installed")

	downloads := b.download()
	b.press("Download the kubeconfig")
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(filepath.Join(downloads, "kubeconfig"))
		return err == nil && bytes.HasPrefix(content, []byte("apiVersion: v1"))
	}, patience, tick)

	joe := s.open(chromium, t, s.token("joe"))
	joe.visit("/clusters/" + cluster.ID + "/credentials/kubeconfig")
	joe.sees(".notice.bad", "")
	assert.NotContains(t, ask[string](joe, `document.body.innerText`), "apiVersion")
}
