// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/liveinit"
)

type mount struct {
	kind, at string
	flags    uintptr
	data     string
}

func (m mount) mount() error {
	if err := os.MkdirAll(m.at, 0o755); err != nil && !errors.Is(err, unix.EROFS) { //nolint:gosec // world-readable
		return err
	}
	if err := unix.Mount(m.kind, m.at, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("mounting %s: %w", m.at, err)
	}
	return nil
}

const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// kernelMounts are the same in the RAM disk and in the system.
var kernelMounts = []mount{{"proc", "/proc", safe, ""}, {"sysfs", "/sys", safe, ""}, {"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"}}

func mountAll(mounts []mount) error {
	var errs []error
	for _, m := range mounts {
		errs = append(errs, m.mount())
	}
	return errors.Join(errs...)
}

const newRoot = "/sysroot"

// ramDisk starts the system; it returns only if it cannot.
func ramDisk() error {
	if err := mountAll(kernelMounts); err != nil {
		return err
	}
	if err := drivers(); err != nil {
		say("%v", err)
	}
	device, err := waitForPartition(RootLabel)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(newRoot, 0o755); err != nil { //nolint:gosec // world-readable
		return err
	}
	if err := unix.Mount(device, newRoot, "squashfs", unix.MS_RDONLY, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	for _, m := range kernelMounts {
		if err := unix.Mount(m.at, newRoot+m.at, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", m.at, err)
		}
	}
	// The RAM disk is memory that the system has use for.
	for _, path := range []string{"/init", "/lib", "/usr"} {
		if err := os.RemoveAll(path); err != nil {
			say("%v", err)
		}
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return err
	}
	return unix.Exec(initPath, []string{initPath}, []string{"PATH=" + searchPath, "HOME=/"})
}

// waitForPartition returns the device of a partition by its name.
func waitForPartition(label string) (string, error) {
	for deadline := time.Now().Add(diskPatience); ; await(50 * time.Millisecond) {
		if name := liveinit.Partition(liveinit.Devices, label); name != "" {
			return "/dev/" + name, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("no disk has a partition %q", label)
		}
	}
}

// systemMounts are what programs expect beside the kernel's.
func systemMounts() error {
	err := mountAll([]mount{
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=620,ptmxmode=000"}, {"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"mqueue", "/dev/mqueue", safe, ""}, {"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"}, {"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, ""},
		{"cgroup2", "/sys/fs/cgroup", safe, "nsdelegate"}, {"bpf", "/sys/fs/bpf", safe, "mode=0700"},
	})
	if _, missing := os.Stat("/sys/firmware/efi/efivars"); missing == nil {
		err = errors.Join(err, mount{"efivarfs", "/sys/firmware/efi/efivars", safe, ""}.mount())
	}
	// Volumes of pods are seen by the kubelet and by containers.
	return errors.Join(err, unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""))
}

// parameters are what the kubelet and pods need of the kernel.
func parameters() error {
	var errs []error
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1", "net/bridge/bridge-nf-call-iptables": "1", "net/bridge/bridge-nf-call-ip6tables": "1",
		"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
		"fs/inotify/max_user_instances": "8192", "fs/inotify/max_user_watches": "1048576", "kernel/pid_max": "4194304",
	} {
		errs = append(errs, os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0))
	}
	return errors.Join(errs...)
}

// identity gives the system an id of its own, by which the Node shows it.
func identity() error {
	const path = "/etc/machine-id"
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(hex.EncodeToString(id[:])+"\n"), 0o444) //nolint:gosec // it is no secret
}
