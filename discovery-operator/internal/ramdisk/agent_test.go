// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const secret = "a-token"

// conductor is an Ironic as far as a ramdisk sees it.
type conductor struct {
	*httptest.Server
	mu      sync.Mutex
	reports []map[string]any
	beats   chan map[string]any
	// answers are statuses of the next requests by path, before all is well.
	answers map[string][]int
	masked  bool
}

func newConductor(t *testing.T) *conductor {
	t.Helper()
	c := &conductor{beats: make(chan map[string]any, 100), answers: map[string][]int{}}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *conductor) serve(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	if next := c.answers[r.URL.Path]; len(next) > 0 {
		c.answers[r.URL.Path] = next[1:]
		w.WriteHeader(next[0])
		return
	}
	switch r.URL.Path {
	case "/v1/continue":
		c.reports = append(c.reports, body)
		_, _ = io.WriteString(w, `{"uuid":"node-1"}`)
	case "/v1/lookup":
		token := secret
		if c.masked {
			token = "******"
		}
		_, _ = io.WriteString(w, `{"node":{"uuid":"node-1"},"config":{"agent_token":"`+token+`","heartbeat_timeout":300}}`)
	case "/v1/heartbeat/node-1":
		w.WriteHeader(http.StatusAccepted)
		c.beats <- body
	}
}

// fake is a machine that is not switched.
type fake struct{ syncs int }

func (f *fake) Sync()        { f.syncs++ }
func (f *fake) Logs() []byte { return []byte("the kernel says") }

// started is an agent that runs, with its API.
type started struct {
	*conductor
	disk     string
	callback string
	client   *http.Client
	ended    chan Ending
}

func start(t *testing.T, c *conductor, change ...func(*Options)) *started {
	t.Helper()
	dir := t.TempDir()
	s := &started{conductor: c, disk: filepath.Join(dir, "disk"), ended: make(chan Ending, 1)}
	require.NoError(t, os.WriteFile(s.disk, bytes.Repeat([]byte{7}, 8<<20), 0o600))
	report := filepath.Join(dir, "report")
	require.NoError(t, os.WriteFile(report, []byte(`{"inventory":{"hostname":"h","interfaces":[{"mac_address":"52:54:00:00:00:01"}],"disks":[]},"extra":1}`), 0o600))
	o := Default()
	o.Ironic, o.Report, o.Listen, o.Files, o.Inventory, o.Heartbeat = c.URL, c.URL+"/v1/continue", "127.0.0.1:0", []string{s.disk}, report, time.Second
	for _, f := range change {
		f(&o)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		how, err := New(o, &fake{}, t.Output()).Run(ctx)
		assert.NoError(t, err)
		s.ended <- how
	}()
	t.Cleanup(func() { cancel(); <-done })
	first := <-c.beats
	s.callback = first["callback_url"].(string)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM([]byte(first["agent_verify_ca"].(string))))
	s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *started) send(t *testing.T, query, name, params string) (int, map[string]any) {
	t.Helper()
	return s.ask(t, http.MethodPost, "/v1/commands/?"+query, `{"name":"`+name+`","params":`+params+`}`)
}

func (s *started) list(t *testing.T) (string, []any) {
	t.Helper()
	_, body := s.ask(t, http.MethodGet, "/v1/commands/", "")
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return string(text), body["commands"].([]any)
}

func (s *started) ask(t *testing.T, method, path, content string) (int, map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.callback+path, strings.NewReader(content))
	require.NoError(t, err)
	resp, err := s.client.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var body map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&body))
	return resp.StatusCode, body
}

const waited = "wait=true&agent_token=" + secret

func TestTheAgentReportsAndBeats(t *testing.T) {
	c := newConductor(t)
	c.answers["/v1/continue"], c.answers["/v1/lookup"] = []int{500}, []int{404}
	s := start(t, c)
	require.Len(t, c.reports, 1)
	inventory := c.reports[0]["inventory"].(map[string]any)
	assert.Equal(t, s.disk, inventory["disks"].([]any)[0].(map[string]any)["name"])
	assert.EqualValues(t, 1, c.reports[0]["extra"])
	beat := <-c.beats
	assert.Equal(t, secret, beat["agent_token"])
	assert.Equal(t, protocol, beat["agent_version"])
	assert.True(t, strings.HasPrefix(s.callback, "https://127.0.0.1:"))
	_, status := s.ask(t, http.MethodGet, "/v1/status", "")
	assert.Equal(t, protocol, status["version"])
}

func TestANodeThatIsGoneIsReportedAgain(t *testing.T) {
	c := newConductor(t)
	start(t, c)
	c.mu.Lock()
	c.answers["/v1/heartbeat/node-1"] = []int{404}
	c.mu.Unlock()
	for reported := 0; reported < 2; {
		<-c.beats
		c.mu.Lock()
		reported = len(c.reports)
		c.mu.Unlock()
	}
}

func TestATokenThatIsGivenToAnotherIsWaitedFor(t *testing.T) {
	c := newConductor(t)
	c.masked = true
	_, err := client{http: http.DefaultClient, ironic: c.URL}.lookup(t.Context(), "", []string{"52:54:00:00:00:01"})
	require.ErrorIs(t, err, errMasked)
	_, err = client{http: http.DefaultClient, ironic: c.URL + "/v1/"}.lookup(t.Context(), "node-1", nil)
	require.ErrorIs(t, err, errMasked, "the URL may have its version")
}

func TestCommandsNeedTheToken(t *testing.T) {
	s := start(t, newConductor(t))
	for _, query := range []string{"", "agent_token=", "agent_token=another"} {
		status, body := s.send(t, query+"&wait=true", "standby.power_off", "{}")
		assert.Equal(t, http.StatusUnauthorized, status)
		assert.Contains(t, body["faultstring"], "the token is not the one")
	}
	_, list := s.list(t)
	assert.Empty(t, list)
	select {
	case how := <-s.ended:
		t.Fatalf("it ended: %s", how)
	default:
	}
}

func TestCommandsThatAreRefused(t *testing.T) {
	s := start(t, newConductor(t))
	for name, says := range map[string]string{"standby.dance": `Unknown command "standby.dance"`, "sync": "Unknown command", "rescue.finalize_rescue": "Unknown command"} {
		status, body := s.send(t, waited, name, "{}")
		assert.Equal(t, http.StatusBadRequest, status)
		assert.Contains(t, body["faultstring"], says)
	}
	status, body := s.send(t, waited, "clean.execute_clean_step", `{"step":{"interface":"deploy","step":"dance"},"clean_version":{"MusterRamdisk":"1"}}`)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, failed, body["command_status"])
	assert.Equal(t, "this ramdisk has no step dance", body["command_error"].(map[string]any)["details"])
	_, body = s.send(t, waited, "clean.execute_clean_step", `{"step":{"interface":"deploy","step":"erase_devices"},"clean_version":{"Other":"1"}}`)
	assert.Equal(t, mismatch, body["command_status"])
	_, body = s.send(t, waited, "clean.execute_clean_step", `{"step":{"interface":"deploy","step":"dance"},"clean_version":null}`)
	assert.Equal(t, failed, body["command_status"], "Ironic has read no steps yet")
	_, body = s.send(t, waited, "deploy.execute_deploy_step", `{"step":{"interface":"deploy","step":"write_image","args":{"image_info":{"urls":["http://a"],"root_mb":1}}},"deploy_version":{"MusterRamdisk":"1"}}`)
	assert.Contains(t, body["command_error"].(map[string]any)["details"], "whole disks")
	data, err := os.ReadFile(s.disk)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(bytes.Repeat([]byte{7}, 8<<20), data))
}

func TestOneCommandAtATime(t *testing.T) {
	s := start(t, newConductor(t))
	release := make(chan struct{})
	image := []byte("an image")
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		_, _ = w.Write(image)
	}))
	t.Cleanup(images.Close)
	sum := sha256.Sum256(image)
	status, body := s.send(t, "agent_token="+secret, "deploy.execute_deploy_step", `{"step":{"interface":"deploy","step":"write_image","priority":80,"args":{"image_info":{"urls":["`+images.URL+
		`/hidden"],"os_hash_algo":"sha256","os_hash_value":"`+hex.EncodeToString(sum[:])+`"}}},"node":{"instance_info":{"root_device":{"name":"s== `+s.disk+`"}}},"deploy_version":{"MusterRamdisk":"1"}}`)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, running, body["command_status"])
	status, body = s.send(t, waited, "standby.sync", "{}")
	assert.Equal(t, http.StatusConflict, status)
	assert.Contains(t, body["faultstring"], "Agent is busy: it executes execute_deploy_step")
	close(release)
	var text string
	for { // a heartbeat follows the end of the command
		<-s.beats
		var list []any
		if text, list = s.list(t); list[0].(map[string]any)["command_status"] != running {
			body = list[0].(map[string]any)
			break
		}
	}
	assert.Equal(t, succeeded, body["command_status"], text)
	assert.Equal(t, "write_image", body["command_result"].(map[string]any)["deploy_step"].(map[string]any)["step"])
	assert.NotContains(t, text, "hidden", "the list needs no token, and tells no parameters")
	data, err := os.ReadFile(s.disk)
	require.NoError(t, err)
	assert.Equal(t, string(image), string(data[:len(image)]))
}

func TestSmallCommands(t *testing.T) {
	s := start(t, newConductor(t))
	_, body := s.send(t, waited, "clean.get_clean_steps", "{}")
	text, err := json.Marshal(body["command_result"])
	require.NoError(t, err)
	assert.JSONEq(t, `{"clean_steps":{"MusterRamdisk":[{"interface":"deploy","step":"erase_devices_metadata","priority":10,"reboot_requested":false,"abortable":true},
		{"interface":"deploy","step":"erase_devices","priority":0,"reboot_requested":false,"abortable":true}]},"hardware_manager_version":{"MusterRamdisk":"1"}}`, string(text))
	_, body = s.send(t, waited, "image.install_bootloader", `{"root_uuid":null,"target_boot_mode":"uefi"}`)
	assert.Contains(t, body["command_result"], "brings its boot loader")
	_, body = s.send(t, waited, "log.collect_system_logs", "{}")
	packed := body["command_result"].(map[string]any)["system_logs"].(string)
	unpacked, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, strings.NewReader(packed)))
	require.NoError(t, err)
	files := tar.NewReader(unpacked)
	for _, want := range []struct{ name, content string }{{"ramdisk.log", "executing log.collect_system_logs"}, {"kernel.log", "the kernel says"}} {
		header, err := files.Next()
		require.NoError(t, err)
		assert.Equal(t, want.name, header.Name)
		data, err := io.ReadAll(files)
		require.NoError(t, err)
		assert.Contains(t, string(data), want.content)
	}
	list, _ := s.list(t)
	assert.NotContains(t, list, packed, "logs are for the one who has the token")
}

func TestDisksThatTheNodeNamesAreNotErased(t *testing.T) {
	s := start(t, newConductor(t))
	clean := func(skip string) map[string]any {
		_, body := s.send(t, waited, "clean.execute_clean_step",
			`{"step":{"interface":"deploy","step":"erase_devices_metadata"},"node":{"properties":{"skip_block_devices":`+skip+`}},"clean_version":{"MusterRamdisk":"1"}}`)
		return body
	}
	assert.Equal(t, failed, clean(`[{}]`)["command_status"])
	assert.Equal(t, succeeded, clean(`[{"name":"` + s.disk + `"}]`)["command_status"])
	data, err := os.ReadFile(s.disk)
	require.NoError(t, err)
	assert.EqualValues(t, 7, data[0])
	assert.Equal(t, succeeded, clean(`[{"name":"/dev/another"}]`)["command_status"])
	data, err = os.ReadFile(s.disk)
	require.NoError(t, err)
	assert.Zero(t, data[0])
}

func TestTheEndIsAnsweredBeforeItComes(t *testing.T) {
	for name, want := range map[string]Ending{"standby.power_off": SwitchOff, "standby.run_image": Restart} {
		s := start(t, newConductor(t))
		status, body := s.send(t, "agent_token="+secret+"&wait=false", name, "{}")
		assert.Equal(t, http.StatusOK, status)
		assert.Equal(t, running, body["command_status"])
		s.client.CloseIdleConnections()
		assert.Equal(t, want, <-s.ended)
	}
}
