// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"fmt"
	"syscall"
)

// This is the machine that the process runs on.
type This struct{}

// Sync implements Machine.
func (This) Sync() { syscall.Sync() }

// Logs implements Machine.
func (This) Logs() []byte {
	const readAll, size = 3, 10
	length, err := syscall.Klogctl(size, nil)
	if err != nil {
		return nil
	}
	text := make([]byte, length)
	n, err := syscall.Klogctl(readAll, text)
	if err != nil {
		return nil
	}
	return text[:n]
}

// Do ends the machine. It returns only where that fails.
func (This) Do(how Ending) error {
	syscall.Sync()
	action := syscall.LINUX_REBOOT_CMD_RESTART
	if how == SwitchOff {
		action = syscall.LINUX_REBOOT_CMD_POWER_OFF
	}
	if err := syscall.Reboot(action); err != nil {
		return fmt.Errorf("to %s the machine: %w", how, err)
	}
	return nil
}
