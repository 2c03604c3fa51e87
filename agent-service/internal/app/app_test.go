// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/muster-io/muster/agent-service/internal/validate"
)

const patience = 3 * time.Minute

func TestOptionsSayWhatIsWrong(t *testing.T) {
	for argument, says := range map[string]string{
		"--log-level=loud":       "write debug, info or error",
		"--base-url=muster":      "write http(s)://host:port",
		"--disconnect-after=1s":  "write 10s or more",
		"--event-retention=1m":   "write 1h or more",
		"--tls-key=a":            "give both or none",
		"--oidc-issuer=":         "write the issuer's URL, kubernetes, or none",
		"surplus":                "all settings are flags",
		"--base-url=http://a.b/": "write http(s)://host:port",
	} {
		_, err := ParseOptions([]string{argument})
		require.ErrorContains(t, err, says, argument)
	}
	_, err := ParseOptions(nil)
	require.NoError(t, err)
}

func TestAnImageBringsATemplateOfItsFirstBootData(t *testing.T) {
	dir := t.TempDir()
	o := Options{OSImages: filepath.Join(dir, "systems.json")}
	list := `[{"version":"1","url":"http://images.example.com/1","sha256":"` + strings.Repeat("0", 64) + `","firstBootTemplate":"user-data.tmpl"}]`
	require.NoError(t, os.WriteFile(o.OSImages, []byte(list), 0o600))
	_, err := o.osImages()
	require.ErrorContains(t, err, "firstBootTemplate of version 1")
	for template, wrong := range map[string]string{"name: {{json .Hostname}}": "", "{{": "unclosed action", "{{nothing .Hostname}}": "not defined"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "user-data.tmpl"), []byte(template), 0o600))
		images, err := o.osImages()
		if wrong != "" {
			require.ErrorContains(t, err, wrong)
			continue
		}
		require.NoError(t, err)
		require.Len(t, images, 1)
		assert.Equal(t, template, images[0].Template)
	}
}

func TestHostMinimumsAreConfigured(t *testing.T) {
	o := Options{HostMinimums: filepath.Join(t.TempDir(), "minimums.json")}
	require.NoError(t, os.WriteFile(o.HostMinimums, []byte(`{"worker":{"cpus":1,"memoryGiB":2,"diskGB":3}}`), 0o600))
	minimums, err := o.hostMinimums()
	require.NoError(t, err)
	assert.Equal(t, validate.Minimum{CPUs: 1, MemoryGiB: 2, DiskGB: 3}, minimums["worker"])
	assert.Equal(t, validate.DefaultMinimums["master"], minimums["master"], "roles that are left out keep their defaults")
	assert.NotEqual(t, minimums["worker"], validate.DefaultMinimums["worker"])
	require.NoError(t, os.WriteFile(o.HostMinimums, []byte(`{"queen":{}}`), 0o600))
	_, err = o.hostMinimums()
	require.ErrorContains(t, err, `there is no role "queen"`)
}

func call(t *testing.T, method, url, body string) (int, map[string]any) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	var object map[string]any
	_ = json.Unmarshal(content, &object)
	return response.StatusCode, object
}

func TestOurOwnLiveImageIsTheDefault(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "bin", "agent-service")
	assert.Empty(t, ownLiveImages(program))
	list := `[{"version":"live","cpuArchitecture":"x86_64","url":"live.iso","sha256":"` + strings.Repeat("0", 64) + `"}]`
	for _, at := range []string{"share/muster/live", "bin/live"} { // the later one is nearer
		path := filepath.Join(dir, at)
		require.NoError(t, os.MkdirAll(path, 0o750))
		require.NoError(t, os.WriteFile(filepath.Join(path, "live.json"), []byte(list), 0o600))
		found, err := (&Process{LiveImages: ownLiveImages(program)}).liveImages()
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, filepath.Join(path, "live.iso"), found[0].URL)
	}
}

func TestTheServiceStartsAloneAndStops(t *testing.T) {
	dir := t.TempDir()
	o, err := ParseOptions([]string{"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0"})
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := "http://" + listener.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- RunWith(ctx, o, zaptest.NewLogger(t), listener) }()
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/readyz", nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, 10*time.Millisecond)

	code, cluster := call(t, http.MethodPost, base+"/api/assisted-install/v2/clusters", `{"name":"c","openshift_version":"4.18","pull_secret":"{\"auths\":{}}"}`)
	require.Equal(t, http.StatusCreated, code, cluster)
	code, _ = call(t, http.MethodGet, base+"/api/assisted-install/v2/clusters/"+uuid.NewString(), "")
	assert.Equal(t, http.StatusNotFound, code)
	code, env := call(t, http.MethodPost, base+"/api/assisted-install/v2/infra-envs", `{"name":"e","pull_secret":"{\"auths\":{}}"}`)
	require.Equal(t, http.StatusCreated, code, env)
	code, refusal := call(t, http.MethodGet, base+"/api/assisted-install/v2/infra-envs/"+env["id"].(string)+"/downloads/image-url", "")
	assert.Equal(t, http.StatusConflict, code)
	assert.Contains(t, refusal["reason"], "make live-image")
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(patience):
		t.Fatal("the service does not stop")
	}
}
