// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinetest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
)

// The user that the management controller of a Managed machine knows.
const (
	User     = "admin"
	Password = "right"
)

// Managed is an emulated machine behind a management controller, Debian's ipmi_sim, that switches it on and off.
type Managed struct {
	// Address is that of the management controller, for spec.bmc.address.
	Address string
	// Disk is the path of its disk. The machine has none where no file is there when it is started.
	Disk      string
	dir, port string
}

// NewManaged is a machine whose management controller does not run yet.
func NewManaged(t testing.TB) *Managed {
	t.Helper()
	Need(t)
	dir := t.TempDir()
	port := freeUDP(t)
	return &Managed{Address: "ipmi://127.0.0.1:" + port, Disk: filepath.Join(dir, "disk"), dir: dir, port: port}
}

// Manage starts the management controller of a machine that is off. Both end with the test.
func Manage(t testing.TB, hardware Hardware) *Managed {
	t.Helper()
	m := NewManaged(t)
	m.Start(t, nil, hardware.parts(t)...)
	return m
}

// Start starts the management controller, which hands the arguments to QEMU. It ends with the test, and the machine with it. Env are settings of hack/ironic/machine.
func (m *Managed) Start(t testing.TB, env []string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), script(), append([]string{m.dir}, arguments...)...)
	command.Env = append(append(os.Environ(), "IPMI_PORT="+m.port, "IPMI_USER="+User, "IPMI_PASSWORD="+Password), env...)
	log, err := os.Create(filepath.Join(m.dir, "log"))
	require.NoError(t, err)
	command.Stdout, command.Stderr = log, log
	require.NoError(t, command.Start())
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		if t.Failed() {
			console := m.Console()
			t.Logf("console of the machine: …%s", console[max(0, len(console)-8192):])
		}
		_ = command.Process.Signal(syscall.SIGTERM) // the script ends what it started
		t.Logf("the machine ended: %v", <-ended)
		_ = log.Close()
	})
	m.answers(t, ended)
}

// script is hack/ironic/machine of the checkout that the test runs in.
func script() string {
	name := filepath.Join("hack", "ironic", "machine")
	dir, err := os.Getwd()
	for err == nil && dir != filepath.Dir(dir) {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
		dir = filepath.Dir(dir)
	}
	return name
}

// freeUDP finds a port that nothing receives at. Package porttest keeps the datagram side of its ports for itself.
func freeUDP(t testing.TB) string {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(socket.LocalAddr().String())
	require.NoError(t, err)
	_ = socket.Close()
	return port
}

// answers waits until the management controller does.
func (m *Managed) answers(t testing.TB, ended chan error) {
	t.Helper()
	deadline := time.After(5 * time.Minute) // packages may have to be installed
	for {
		if m.chassis(t, "power", "status") == nil {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			needtest.Part(t, false, "no management controller (Debian: openipmi): "+strings.TrimSpace(string(text)))
		case <-deadline:
			require.FailNow(t, "the management controller of a machine does not answer")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// chassis asks the management controller.
func (m *Managed) chassis(t testing.TB, words ...string) error {
	connection := []string{"-I", "lanplus", "-N", "1", "-R", "1", "-H", "127.0.0.1", "-p", m.port, "-U", User, "-P", Password, "chassis"}
	return exec.CommandContext(t.Context(), "ipmitool", append(connection, words...)...).Run()
}

// SwitchOn switches the machine on, as its user does.
func (m *Managed) SwitchOn(t testing.TB) {
	t.Helper()
	require.NoError(t, m.chassis(t, "power", "on"))
}

// Console is what the machine has written to its serial console since it was started first.
func (m *Managed) Console() string {
	text, err := os.ReadFile(filepath.Join(m.dir, "console"))
	if err != nil {
		return ""
	}
	return string(text)
}

// On reports whether the machine runs.
func (m *Managed) On() bool { return m.Process() != 0 }

// Process is that of the machine, another one each time it is switched on; 0 while it is off.
func (m *Managed) Process() int {
	text, err := os.ReadFile(filepath.Join(m.dir, "machine.pid"))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}
