// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
)

const (
	linkedService = "-X github.com/muster-io/muster/apis/buildinfo.version="
	linkedAgent   = "-X github.com/muster-io/muster/agent-service/internal/agent.Version="
)

// TestAnAgentIsUpgradedInPlace runs real agents that are older than the service's: one that can be replaced, and one whose replacement cannot be had.
func TestAnAgentIsUpgradedInPlace(t *testing.T) {
	agents := t.TempDir()
	build(t, filepath.Join(agents, "agent"), "../../cmd/agent", linkedAgent+"v1.3.0")
	p := startProcess(t, linkedService+"v1.3.0", "--agent-directory="+agents)
	env := p.post("/infra-envs", "", map[string]any{"name": "e", "pull_secret": `{"auths":{}}`}, http.StatusCreated)["id"].(string)
	run := func(version string) (host string, pid int, program string) {
		program = filepath.Join(t.TempDir(), "agent")
		build(t, program, "../../cmd/agent", linkedAgent+version)
		host = uuid.NewString()
		command := exec.CommandContext(t.Context(), program, "--url="+p.url, "--infra-env-id="+env, "--host-id="+host)
		command.Stderr = os.Stderr
		require.NoError(t, command.Start())
		t.Cleanup(func() {
			_ = command.Process.Signal(syscall.SIGKILL)
			_ = command.Wait()
		})
		return host, command.Process.Pid, program
	}
	older, pid, program := run("v1.2.9")
	newer, _, _ := run("v1.4.0")
	path := "/infra-envs/" + env + "/hosts/"
	require.Eventually(t, func() bool { return p.get(path + older)["discovery_agent_version"] == "v1.3.0" }, patience, 100*time.Millisecond, "it registers again")
	served, err := os.ReadFile(filepath.Join(agents, "agent"))
	require.NoError(t, err)
	own, err := os.ReadFile(program)
	require.NoError(t, err)
	assert.Equal(t, served, own)
	assert.NoFileExists(t, program+".next")
	require.NoError(t, syscall.Kill(pid, 0), "it is the same process")
	require.Eventually(t, func() bool { return p.get(path + older)["status"] == p.get(path + newer)["status"] }, patience, 100*time.Millisecond)
	assert.Equal(t, "v1.4.0", p.get(path + newer)["discovery_agent_version"], "a newer agent stays")

	// The service serves another version than it announces: the running agent goes on.
	build(t, filepath.Join(agents, "agent"), "../../cmd/agent", linkedAgent+"v1.2.0")
	other, _, program := run("v1.1.0")
	before, err := os.ReadFile(program)
	require.NoError(t, err)
	var events []map[string]any
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+api.Base+"/events?infra_env_id="+env+"&host_id="+other+"&message=not+upgraded", http.NoBody)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close() //nolint:errcheck // it is only read
		return json.NewDecoder(response.Body).Decode(&events) == nil && len(events) > 0
	}, patience, 100*time.Millisecond)
	assert.Contains(t, events[0]["message"], "v1.2.0")
	after, err := os.ReadFile(program)
	require.NoError(t, err)
	assert.Equal(t, before, after)
	assert.Equal(t, "v1.1.0", p.get(path + other)["discovery_agent_version"])
}
