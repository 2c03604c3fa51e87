// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironictest

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-io/muster/apis/programtest"
)

// diskSize is that of the disk of an Agent, of which little is written.
const diskSize = 5 << 30

// Agent is a machine that runs the ramdisk's agent: the program of cmd/ramdisk as a process, which reports what a test says, and has a file as its disk.
type Agent struct {
	// Disk is the path of the file.
	Disk    string
	program string
	args    []string
	running *programtest.Program
	stop    context.CancelFunc
	ended   bool
}

// NewAgent makes a machine that is off, and whose hardware is that of a report.
func (i *Ironic) NewAgent(t testing.TB, report []byte) *Agent {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{Disk: filepath.Join(dir, "disk"), program: filepath.Join(dir, "ramdisk")}
	file := filepath.Join(dir, "report.json")
	for path, content := range map[string][]byte{a.Disk: nil, file: report} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatalf("making a machine: %v", err)
		}
	}
	if err := os.Truncate(a.Disk, diskSize); err != nil {
		t.Fatalf("making the disk of a machine: %v", err)
	}
	// Without cgo, as the program is built: with it, the libraries below it would be compiled for this test alone.
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", a.program, "github.com/muster-io/muster/discovery-operator/cmd/ramdisk")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("compiling the agent: %v\n%s", err, out)
	}
	a.args = []string{"--ironic=" + i.Endpoint, "--report-to=" + i.ReportTo(), "--listen=127.0.0.1:0", "--heartbeat=2s", "--disk=" + a.Disk, "--inventory=" + file}
	return a
}

// ReportTo is the URL that ramdisks post their reports to.
func (i *Ironic) ReportTo() string {
	if i.Inspector != "" {
		return strings.TrimRight(i.Inspector, "/") + "/continue"
	}
	return strings.TrimRight(i.Endpoint, "/") + "/continue_inspection"
}

// Boot makes the machine boot the ramdisk, again if it runs it, as its user does.
func (a *Agent) Boot(t testing.TB) {
	t.Helper()
	a.SwitchOff(t)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	a.stop, a.ended = cancel, false
	a.running = programtest.Start(t, exec.CommandContext(ctx, a.program, a.args...))
}

// SwitchOff ends the ramdisk, if it runs, as a machine without power.
func (a *Agent) SwitchOff(t testing.TB) {
	t.Helper()
	if a.running == nil || a.Off(t) {
		return
	}
	a.stop()
	if err := <-a.running.Ended(); err != nil {
		t.Logf("the machine was switched off: %v", err)
	}
	a.ended = true
}

// Off reports whether Ironic has ended the agent, to have the machine boot what is on its disk.
func (a *Agent) Off(t testing.TB) bool {
	t.Helper()
	select {
	case err := <-a.running.Ended():
		if err != nil {
			t.Logf("the agent ended: %v", err)
		}
		a.ended = true
	default:
	}
	return a.ended
}

// Said is what the agent has printed since the machine booted.
func (a *Agent) Said() string { return a.running.String() }

// Content reads a part of the disk.
func (a *Agent) Content(t testing.TB, at, length int64) []byte {
	t.Helper()
	f, err := os.Open(a.Disk)
	if err != nil {
		t.Fatalf("reading the disk of a machine: %v", err)
	}
	defer func() { _ = f.Close() }()
	content := make([]byte, length)
	if at < 0 {
		at += diskSize
	}
	if _, err := f.ReadAt(content, at); err != nil {
		t.Fatalf("reading the disk of a machine: %v", err)
	}
	return content
}

// TakeToken takes the token of the node with a MAC, which Ironic gives once, as the ramdisk of a machine does that is restarted before its first heartbeat.
func (i *Ironic) TakeToken(t testing.TB, mac string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimRight(i.Endpoint, "/")+"/lookup?addresses="+mac, http.NoBody)
	if err != nil {
		t.Fatalf("taking a token: %v", err)
	}
	req.Header.Set("X-OpenStack-Ironic-API-Version", "1.68")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("taking a token: %v", err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Config struct {
			Token string `json:"agent_token"`
		} `json:"config"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Config.Token) < 32 {
		t.Fatalf("taking a token: %s: %v", resp.Status, err)
	}
}
