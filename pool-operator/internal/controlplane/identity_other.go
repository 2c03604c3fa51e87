// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package controlplane

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// startTime returns when a process started, as ps prints it.
func startTime(pid int) (string, error) {
	out, err := exec.Command("ps", "-o", "lstart=", "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out)), err
}

func bootID() string { return "unknown" }

// dieWithParent has no equivalent here: the children of a killed process end when the directory is opened next.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
