// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package machinetest gives tests machines that QEMU emulates, without help of the processor: what boots on them is real.
package machinetest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/programtest"
)

const (
	// MAC is the address of the network card of the first machine, which QEMU connects to a network of its own: there the machine gets 10.0.2.15 and the name
	// Hostname by DHCP, and reaches the loopback addresses of this machine as Gateway.
	MAC = "52:54:00:00:00:01"
	// Hostname is what DHCP calls a machine.
	Hostname = "machine"
	// Gateway is the address of this machine as the emulated one sees it.
	Gateway = "10.0.2.2"
	// Patience is how long a step of a machine may take: its processor is emulated, and the machine that does it may be busy.
	Patience = 15 * time.Minute

	firmware = "/usr/share/ovmf/OVMF.fd"
	interval = 200 * time.Millisecond
	// cores are as many as long walks of machines need beside other tests.
	cores = 4
)

// Need ends a test where no machine can be emulated.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("machines are booted, which takes a while")
	}
	_, err := exec.LookPath("qemu-system-x86_64")
	needtest.Part(t, err == nil, "there is no qemu-system-x86_64 (Debian: qemu-system-x86) to boot machines with")
}

// NeedCores is Need for a long walk: it is skipped on fewer than four cores, unless the environment variable that forced names is set.
func NeedCores(t testing.TB, forced string) {
	t.Helper()
	if runtime.NumCPU() < cores && os.Getenv(forced) == "" {
		t.Skipf("machines are emulated on %d cores or more; %s=1 does it here, too", cores, forced)
	}
	Need(t)
}

// Hardware is what a machine is made of.
type Hardware struct {
	// Number tells the machines of a test apart: identity, serial number of the disk, address of the card. It is 1 unless given, and at most 255.
	Number int
	// Tap is the interface of this machine that the network card is connected to; the empty one is a network of the machine's own.
	Tap string
	// Forward connects a port of this machine to one of a network of the machine's own, as QEMU's hostfwd: tcp:127.0.0.1:11000-10.0.2.15:22; empty for none.
	Forward string
	// MemoryMiB is 1,280 unless given.
	MemoryMiB int
	// Disk is the path of a raw image that the machine boots first; the empty one is no disk.
	Disk string
	// ISO is the path of the medium in its drive, which it boots where it cannot boot its disk; the empty one is no drive.
	ISO string
	// UEFI replaces the BIOS.
	UEFI bool
	// More are further arguments of qemu-system-x86_64.
	More []string
}

// BlankDisk makes the image of an empty disk of 8 GiB that ends with the test; it takes no room until it is written. It returns its path.
func BlankDisk(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, errors.Join(file.Truncate(8<<30), file.Close()))
	return path
}

// network is what QEMU connects the card to.
func (h Hardware) network() string {
	if h.Tap == "" && h.Forward != "" {
		return "user,hostname=" + Hostname + ",hostfwd=" + h.Forward
	}
	if h.Tap == "" {
		return "user,hostname=" + Hostname
	}
	return "tap,ifname=" + h.Tap + ",script=no,downscript=no"
}

// Machine is one that was switched on. String is all that it has said on its serial console.
type Machine struct {
	*programtest.Program
	monitor string
}

// PowerOn switches a machine on, until the test ends; if it fails, it prints what the machine said last.
func PowerOn(t testing.TB, hardware Hardware) *Machine {
	t.Helper()
	monitor := filepath.Join(t.TempDir(), "monitor")
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "qemu-system-x86_64", hardware.arguments(t, monitor)...)
	command.SysProcAttr = ownSession()
	return &Machine{programtest.Start(t, command), monitor}
}

func (h Hardware) arguments(t testing.TB, monitor string) []string {
	t.Helper()
	return append(h.parts(t), "-display", "none", "-serial", "stdio", "-monitor", "unix:"+monitor+",server,nowait")
}

// parts are the arguments for what a machine is made of, without its consoles.
func (h Hardware) parts(t testing.TB) []string {
	t.Helper()
	if h.MemoryMiB == 0 {
		h.MemoryMiB = 1280
	}
	h.Number = max(h.Number, 1)
	list := []string{
		"-machine", "pc", "-accel", "tcg,tb-size=256", "-cpu", "max", "-smp", "1", "-m", strconv.Itoa(h.MemoryMiB), "-uuid", fmt.Sprintf("5f1c0e5e-0000-4000-8000-%012x", h.Number),
		"-device", "virtio-rng-pci", "-nic", h.network() + fmt.Sprintf(",model=virtio-net-pci,mac=52:54:00:00:00:%02x", h.Number),
	}
	if h.Disk != "" {
		list = append(list, "-drive", "file="+h.Disk+",format=raw,if=none,id=disk,cache=unsafe", "-device", "virtio-blk-pci,drive=disk,serial="+fmt.Sprintf("MUSTER-%04d", h.Number)+",bootindex=1")
	}
	if h.ISO != "" {
		list = append(list, "-drive", "file="+h.ISO+",format=raw,if=none,id=medium,media=cdrom,readonly=on", "-device", "ide-cd,drive=medium,bootindex=2")
	}
	if h.UEFI {
		needtest.File(t, firmware, "there is no "+firmware+" (Debian: ovmf) to boot by UEFI")
		list = append(list, "-bios", firmware)
	}
	return append(list, h.More...)
}

// Until waits until something holds, as the function Until does beside this machine. The machine may be nil: one that is not on yet.
func (m *Machine) Until(t testing.TB, what string, holds func() error) {
	t.Helper()
	if m == nil {
		Until(t, what, holds)
		return
	}
	Until(t, what, holds, m)
}

// Until waits until something holds, and says how long it took. It ends the test when one of the machines is off before, or when Patience is at its end.
func Until(t testing.TB, what string, holds func() error, machines ...*Machine) {
	t.Helper()
	started := time.Now()
	for {
		err := holds()
		if err == nil {
			t.Logf("%6.1f s  %s", time.Since(started).Seconds(), what)
			return
		}
		require.Less(t, time.Since(started), Patience, "%s: %v", what, err)
		for _, m := range machines {
			select {
			case how := <-m.Ended():
				require.FailNow(t, "the machine is off", "%v: %s: %v", how, what, err)
			default:
			}
		}
		<-time.After(interval)
	}
}

// Says waits until the machine has said a text on its serial console.
func (m *Machine) Says(t testing.TB, text string) {
	t.Helper()
	m.Until(t, "the machine says "+text, func() error {
		if strings.Contains(m.String(), text) {
			return nil
		}
		return fmt.Errorf("it does not say %q", text)
	})
}

// PressPower presses the power button and waits until the system of the machine has switched it off.
func (m *Machine) PressPower(t testing.TB) {
	t.Helper()
	connection, err := (&net.Dialer{}).DialContext(t.Context(), "unix", m.monitor)
	require.NoError(t, err)
	defer func() { _ = connection.Close() }()
	_, err = connection.Write([]byte("system_powerdown\n"))
	require.NoError(t, err)
	select {
	case err := <-m.Ended():
		require.NoError(t, err)
	case <-time.After(Patience):
		require.FailNow(t, "the machine does not switch itself off")
	}
}
