// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinetest

import "syscall"

// ownSession has a program begin a session, and end with the test that started it. Linux divides processors between sessions first: an emulated processor
// has a share as large as that of all other tests together, which wait where it computes.
func ownSession() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
