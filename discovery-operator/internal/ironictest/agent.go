// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironictest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// Agent answers Ironic as the agent of a ramdisk does, without a machine: it looks its node up, sends heartbeats, and takes commands. Images are
// downloaded, compared with their checksums, and written nowhere. A reboot ends it.
type Agent struct {
	ironic *Ironic
	macs   []string
	server *httptest.Server
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu          sync.Mutex
	node, token string
	commands    []map[string]any
	written     []string
	config      any
	off         bool
}

// BootAgent makes a machine with one of the MACs run an agent, until the test ends.
func (i *Ironic) BootAgent(t testing.TB, macs ...string) *Agent {
	t.Helper()
	a := &Agent{ironic: i, macs: macs}
	a.server = httptest.NewServer(http.HandlerFunc(a.serve))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	a.stop = cancel
	a.done.Go(func() { a.beat(ctx) })
	t.Cleanup(a.end)
	return a
}

func (a *Agent) end() {
	a.stop()
	a.done.Wait()
	a.server.Close()
}

// Written are the URLs of the images that were written, Config is the config drive of the last one.
func (a *Agent) Written() (urls []string, config any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string{}, a.written...), a.config
}

// Restart makes the machine boot the ramdisk again, as its user does.
func (a *Agent) Restart() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.token, a.commands, a.off = "", nil, false
}

// Off reports whether Ironic has ended the agent, to have the machine boot what is on its disk.
func (a *Agent) Off() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.off
}

// beat sends a heartbeat every second. Ironic gives the token once, to who looks the node up first.
func (a *Agent) beat(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		if !a.Off() {
			a.heartbeat(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (a *Agent) heartbeat(ctx context.Context) {
	a.mu.Lock()
	node, token := a.node, a.token
	a.mu.Unlock()
	if token == "" {
		var found struct {
			Node struct {
				UUID string `json:"uuid"`
			} `json:"node"`
			Config struct {
				Token string `json:"agent_token"`
			} `json:"config"`
		}
		if a.call(ctx, http.MethodGet, "lookup?addresses="+strings.Join(a.macs, ","), nil, &found) != nil || strings.Contains(found.Config.Token, "*") {
			return
		}
		node, token = found.Node.UUID, found.Config.Token
		a.mu.Lock()
		a.node, a.token = node, token
		a.mu.Unlock()
	}
	_ = a.call(ctx, http.MethodPost, "heartbeat/"+node, map[string]any{
		"callback_url": a.server.URL, "agent_version": "9.4.0", "agent_token": token,
	}, nil)
}

func (a *Agent) call(ctx context.Context, method, path string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("writing a request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(a.ironic.Endpoint, "/")+"/"+path, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	req.Header.Set("X-OpenStack-Ironic-API-Version", "1.68")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("calling Ironic: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("calling Ironic: %s", resp.Status)
	}
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading an answer: %w", err)
	}
	return nil
}

// serve takes commands, and lists those that were taken.
func (a *Agent) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method != http.MethodPost {
		a.mu.Lock()
		defer a.mu.Unlock()
		_ = json.NewEncoder(w).Encode(map[string]any{"commands": a.commands})
		return
	}
	var command struct {
		Name   string         `json:"name"`
		Params map[string]any `json:"params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&command); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	_, name, _ := strings.Cut(command.Name, ".")
	result, err := a.execute(r.Context(), name, command.Params)
	answer := map[string]any{
		"id": fmt.Sprint(time.Now().UnixNano()), "command_name": name, "command_status": "SUCCEEDED", "command_result": result, "command_error": nil,
		"command_params": command.Params,
	}
	if err != nil {
		answer["command_status"] = "FAILED"
		answer["command_error"] = map[string]any{"code": 500, "type": "ImageChecksumError", "message": "Error verifying image checksum", "details": err.Error()}
	}
	a.mu.Lock()
	a.commands = append(a.commands, answer)
	a.mu.Unlock()
	_ = json.NewEncoder(w).Encode(answer)
}

func (a *Agent) execute(ctx context.Context, name string, params map[string]any) (any, error) {
	version := map[string]any{"generic_hardware_manager": "1.1"}
	step, _ := params["step"].(map[string]any)
	switch name {
	case "get_clean_steps":
		erase := map[string]any{"step": "erase_devices_metadata", "priority": 10, "interface": "deploy", "reboot_requested": false, "abortable": true}
		return map[string]any{"clean_steps": map[string]any{"GenericHardwareManager": []any{erase}}, "hardware_manager_version": version}, nil
	case "get_deploy_steps":
		write := map[string]any{"step": "write_image", "priority": 0, "interface": "deploy", "reboot_requested": false}
		return map[string]any{"deploy_steps": map[string]any{"GenericHardwareManager": []any{write}}, "hardware_manager_version": version}, nil
	case "execute_clean_step":
		return map[string]any{"clean_result": nil, "clean_step": step}, nil
	case "execute_deploy_step":
		args, _ := step["args"].(map[string]any)
		info, _ := args["image_info"].(map[string]any)
		return map[string]any{"deploy_result": nil, "deploy_step": step}, a.write(ctx, info)
	case "run_image", "power_off":
		a.mu.Lock()
		a.off = true
		a.mu.Unlock()
	}
	return nil, nil
}

// write downloads an image and compares it with its checksum.
func (a *Agent) write(ctx context.Context, info map[string]any) error {
	urls, _ := info["urls"].([]any)
	if len(urls) == 0 {
		return fmt.Errorf("there is no image")
	}
	url := fmt.Sprint(urls[0])
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", url, err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("downloading %s: %w", url, err)
	}
	defer func() { _ = resp.Body.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, resp.Body); err != nil {
		return fmt.Errorf("downloading %s: %w", url, err)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != info["os_hash_value"] {
		return fmt.Errorf("image %s has checksum %s, not %v", url, sum, info["os_hash_value"])
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written, a.config = append(a.written, url), info["configdrive"]
	return nil
}
