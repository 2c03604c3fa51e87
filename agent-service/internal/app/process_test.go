// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
)

// process is a service in a process of its own, with the limit of memory that its deployment has.
type process struct {
	t   *testing.T
	pid int
	url string
}

func startProcess(t *testing.T, linked string, arguments ...string) *process {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "agent-service")
	build(t, program, "../../cmd/agent-service", linked)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	arguments = append(arguments, "--listen="+address, "--metrics-bind-address=0", "--database="+filepath.Join(dir, "a.db"), "--token-key="+filepath.Join(dir, "a.key"))
	command := exec.CommandContext(t.Context(), program, arguments...)
	command.Env = append(os.Environ(), "GOMEMLIMIT=850MiB", "GOGC=") // how it collects garbage is its own choice, not that of the tests
	command.Stderr = os.Stderr
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	p := &process{t: t, pid: command.Process.Pid, url: "http://" + address}
	require.Eventually(t, func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/readyz", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		defer response.Body.Close() //nolint:errcheck // it is only read
		return response.StatusCode == http.StatusOK
	}, patience, 20*time.Millisecond)
	return p
}

// build compiles a program as it is deployed, with values that are linked into it.
func build(t *testing.T, program, of, linked string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w "+linked, "-o", program, of)
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}

// send reports a step. It runs in goroutines of tests, too.
func (p *process) send(path, token string, body []byte) (int, http.Header) {
	status, header, err := p.request(http.MethodPost, path, token, bytes.NewReader(body), nil)
	if err != nil {
		p.t.Error(err)
	}
	return status, header
}

func (p *process) post(path, token string, body any, want int) (answer map[string]any) {
	encoded, err := json.Marshal(body)
	if err != nil {
		p.t.Error(err)
		return nil
	}
	status, _, err := p.request(http.MethodPost, path, token, bytes.NewReader(encoded), &answer)
	if err != nil {
		p.t.Error(err)
		return nil
	}
	assert.Equal(p.t, want, status)
	return answer
}

// get reads an object; one that is not there yet has no fields.
func (p *process) get(path string) (answer map[string]any) {
	if _, _, err := p.request(http.MethodGet, path, "", http.NoBody, &answer); err != nil {
		p.t.Error(err)
	}
	return answer
}

// request sends a request and reads the JSON of the answer into answer, unless that is nil.
func (p *process) request(method, path, token string, body io.Reader, answer any) (status int, header http.Header, err error) {
	request, err := http.NewRequestWithContext(p.t.Context(), method, p.url+api.Base+path, body)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if token != "" {
		request.Header.Set("X-Secret-Key", token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	if answer == nil {
		_, err = io.Copy(io.Discard, response.Body)
	} else {
		err = json.NewDecoder(response.Body).Decode(answer)
	}
	return response.StatusCode, response.Header, err
}

// mostMemory is the largest resident set that the process ever had, in bytes.
func (p *process) mostMemory() int {
	p.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(p.t, err)
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			require.NoError(p.t, err)
			return kib << 10
		}
	}
	require.Fail(p.t, "the kernel does not tell the memory of the process")
	return 0
}
