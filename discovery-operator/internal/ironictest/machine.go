// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironictest

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

	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
)

// Booted is what the system on the disk of a Machine writes to its serial console when it boots.
const Booted = "the machine is up\r\n"

// Machine is an emulated machine behind a management controller that switches it on and off.
type Machine struct {
	// Address is that of the management controller, for spec.bmc.address. It takes the user admin with the password right.
	Address string
	dir     string
}

// StartMachine starts the management controller of a machine that is off and has a small system on its disk. Both end with the test.
func StartMachine(t testing.TB) *Machine {
	t.Helper()
	machinetest.Need(t)
	port := freeUDP(t)
	m := &Machine{Address: "ipmi://127.0.0.1:" + port, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(m.dir, "disk"), system(), 0o600); err != nil {
		t.Fatalf("writing the disk of a machine: %v", err)
	}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), script("machine"), m.dir)
	command.Env = append(os.Environ(), "IPMI_PORT="+port, "IPMI_USER=admin", "IPMI_PASSWORD=right")
	log, err := os.Create(filepath.Join(m.dir, "log"))
	if err != nil {
		t.Fatalf("starting a machine: %v", err)
	}
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		t.Fatalf("starting a machine: %v", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM) // the script ends what it started
		t.Logf("the machine ended: %v", <-ended)
		_ = log.Close()
	})
	m.answers(t, port, ended)
	return m
}

// freeUDP finds a port that nothing receives at. Package porttest keeps the datagram side of its ports for itself.
func freeUDP(t testing.TB) string {
	t.Helper()
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatalf("finding a port: %v", err)
	}
	_, port, err := net.SplitHostPort(socket.LocalAddr().String())
	if err != nil {
		t.Fatalf("finding a port: %v", err)
	}
	_ = socket.Close()
	return port
}

// answers waits until the management controller does.
func (m *Machine) answers(t testing.TB, port string, ended chan error) {
	t.Helper()
	deadline := time.After(5 * time.Minute) // packages may have to be installed
	for {
		ask := exec.CommandContext(t.Context(), "ipmitool", "-I", "lanplus", "-N", "1", "-R", "1", "-H", "127.0.0.1", "-p", port, "-U", "admin", "-P", "right",
			"chassis", "power", "status")
		if ask.Run() == nil {
			return
		}
		select {
		case err := <-ended:
			ended <- err
			text, _ := os.ReadFile(filepath.Join(m.dir, "log"))
			needtest.Part(t, false, "no management controller (Debian: openipmi): "+strings.TrimSpace(string(text)))
		case <-deadline:
			t.Fatal("the management controller of a machine does not answer")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// On reports whether the machine runs.
func (m *Machine) On() bool {
	text, err := os.ReadFile(filepath.Join(m.dir, "machine.pid"))
	if err != nil {
		return false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return err == nil && syscall.Kill(pid, 0) == nil
}

// Boots is how often the system on the disk has booted.
func (m *Machine) Boots() int {
	text, err := os.ReadFile(filepath.Join(m.dir, "console"))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), Booted)
}

// system is a disk whose boot sector writes Booted to the first serial port, and halts.
func system() []byte {
	code := []byte{
		0x31, 0xC0, // xor ax, ax
		0x8E, 0xD8, // mov ds, ax
		0xBE, 0x15, 0x7C, // mov si, the text behind the code
		0xAC,       // next: lodsb
		0x84, 0xC0, // test al, al
		0x74, 0x06, // jz end
		0xBA, 0xF8, 0x03, // mov dx, 0x3F8
		0xEE,       // out dx, al
		0xEB, 0xF5, // jmp next
		0xF4,       // end: hlt
		0xEB, 0xFD, // jmp end
	}
	disk := make([]byte, 1<<20)
	copy(disk, append(code, Booted...))
	disk[510], disk[511] = 0x55, 0xAA
	return disk
}
