// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// holders are the devices that are made of a disk, of its partitions, or of another such device.
func (m *Real) holders(device string) (found []string) {
	at := filepath.Join(m.Sys, "block", device)
	parts, _ := filepath.Glob(filepath.Join(at, "*", "partition"))
	for _, directory := range append([]string{at}, parts...) {
		entries, _ := os.ReadDir(filepath.Join(strings.TrimSuffix(directory, "/partition"), "holders"))
		for _, entry := range entries {
			if !slices.Contains(found, entry.Name()) {
				found = append(found, entry.Name())
			}
		}
	}
	return found
}

// takeApart stops what is made of a device: volumes, encrypted devices and software RAIDs, the uppermost first. No disk is written to, and what is mounted stays.
func (m *Real) takeApart(device string) error {
	for _, holder := range m.holders(device) {
		err := m.takeApart(holder)
		if err == nil {
			err = m.stopHolder(holder)
		}
		if err != nil {
			return fmt.Errorf("%s is made of it: %w", holder, err)
		}
	}
	return nil
}

// stopHolder stops one device that is made of others.
func (m *Real) stopHolder(name string) error {
	if m.stop != nil {
		return m.stop(name)
	}
	at := filepath.Join(m.Sys, "block", name)
	state := filepath.Join(at, "md/array_state")
	if _, err := os.Stat(state); err == nil {
		return os.WriteFile(state, []byte("clear"), 0o200)
	}
	if mapped := content(filepath.Join(at, "dm/name")); mapped != "" {
		return removeMapped(mapped)
	}
	return errors.New("it is not known how to stop it")
}

// mapperRequest is struct dm_ioctl of the kernel.
type mapperRequest struct {
	version                          [3]uint32
	dataSize, dataStart, targetCount uint32
	openCount                        int32
	flags, eventNumber, _            uint32
	device                           uint64
	name                             [128]byte
	_                                [129]byte
	_                                [7]byte
}

// removeDevice is DM_DEV_REMOVE of the kernel.
const removeDevice = 0xc138fd04

// removeMapped removes a device of the device mapper: a volume of LVM, or an encrypted device. One that is open stays.
func removeMapped(name string) error {
	request := mapperRequest{version: [3]uint32{4}}
	request.dataSize = uint32(unsafe.Sizeof(request))
	if copy(request.name[:len(request.name)-1], name) < len(name) {
		return errors.New("its name is too long")
	}
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer control.Close() //nolint:errcheck // it has nothing to write
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), removeDevice, uintptr(unsafe.Pointer(&request)))
	if errno != 0 {
		return errno
	}
	return nil
}
