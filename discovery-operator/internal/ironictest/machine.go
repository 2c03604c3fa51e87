// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironictest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
)

// Booted is what the system on the disk of a Machine writes to its serial console when it boots.
const Booted = "the machine is up\r\n"

// Machine is an emulated machine behind a management controller that switches it on and off.
type Machine struct{ *machinetest.Managed }

// StartMachine starts the management controller of a machine that is off and has a small system on its disk. Both end with the test.
func StartMachine(t testing.TB) *Machine {
	t.Helper()
	m := machinetest.NewManaged(t)
	if err := os.WriteFile(m.Disk, System(), 0o600); err != nil {
		t.Fatalf("writing the disk of a machine: %v", err)
	}
	m.Start(t, nil)
	return &Machine{m}
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
