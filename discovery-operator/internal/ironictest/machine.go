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
	// Disk is the path of its disk.
	Disk      string
	dir, port string
}

// StartMachine starts the management controller of a machine that is off and has a small system on its disk. Both end with the test.
func StartMachine(t testing.TB) *Machine {
	t.Helper()
	m := newMachine(t)
	if err := os.WriteFile(m.Disk, System(), 0o600); err != nil {
		t.Fatalf("writing the disk of a machine: %v", err)
	}
	m.start(t, nil)
	return m
}

// newMachine is one that is not started.
func newMachine(t testing.TB) *Machine {
	t.Helper()
	machinetest.Need(t)
	dir := t.TempDir()
	port := freeUDP(t)
	return &Machine{Address: "ipmi://127.0.0.1:" + port, Disk: filepath.Join(dir, "disk"), dir: dir, port: port}
}

// start starts the management controller, which gives the arguments to QEMU.
func (m *Machine) start(t testing.TB, env []string, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), script("machine"), append([]string{m.dir}, arguments...)...)
	command.Env = append(append(os.Environ(), "IPMI_PORT="+m.port, "IPMI_USER=admin", "IPMI_PASSWORD=right"), env...)
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
		if t.Failed() {
			t.Logf("console of the machine: %s", m.Console())
		}
		_ = command.Process.Signal(syscall.SIGTERM) // the script ends what it started
		t.Logf("the machine ended: %v", <-ended)
		_ = log.Close()
	})
	m.answers(t, ended)
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
func (m *Machine) answers(t testing.TB, ended chan error) {
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
			t.Fatal("the management controller of a machine does not answer")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// chassis asks the management controller.
func (m *Machine) chassis(t testing.TB, words ...string) error {
	connection := []string{"-I", "lanplus", "-N", "1", "-R", "1", "-H", "127.0.0.1", "-p", m.port, "-U", "admin", "-P", "right", "chassis"}
	return exec.CommandContext(t.Context(), "ipmitool", append(connection, words...)...).Run()
}

// SwitchOn switches the machine on, as its user does.
func (m *Machine) SwitchOn(t testing.TB) {
	t.Helper()
	if err := m.chassis(t, "power", "on"); err != nil {
		t.Fatalf("switching a machine on: %v", err)
	}
}

// Console is what the machine has written to its serial console since it was started first.
func (m *Machine) Console() string {
	text, err := os.ReadFile(filepath.Join(m.dir, "console"))
	if err != nil {
		return ""
	}
	return string(text)
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
func (m *Machine) Boots() int { return strings.Count(m.Console(), Booted) }

// Qcow2 is a disk as an image of that format, compressed.
func Qcow2(t testing.TB, disk []byte) []byte {
	t.Helper()
	program, err := exec.LookPath("qemu-img")
	needtest.Part(t, err == nil, "there is no qemu-img (Debian: qemu-utils) to make images of qcow2 with")
	from, to := filepath.Join(t.TempDir(), "disk.raw"), filepath.Join(t.TempDir(), "disk.qcow2")
	if err := os.WriteFile(from, disk, 0o600); err != nil {
		t.Fatalf("making an image: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "convert", "-c", "-f", "raw", "-O", "qcow2", from, to).CombinedOutput(); err != nil {
		t.Fatalf("making an image: %v\n%s", err, out)
	}
	image, err := os.ReadFile(to)
	if err != nil {
		t.Fatalf("making an image: %v", err)
	}
	return image
}

// System is a disk whose boot sector writes Booted to the first serial port, and halts.
func System() []byte {
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
