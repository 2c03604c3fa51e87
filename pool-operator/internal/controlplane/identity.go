// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// identity tells one process from every other that had or will have the same pid.
type identity struct {
	pid int
	// started is the start time in the unit of the platform, boot the identity of the system's boot.
	started, boot string
}

// identify returns the identity of a living process.
func identify(pid int) (identity, error) {
	started, err := startTime(pid)
	if err != nil {
		return identity{}, fmt.Errorf("identifying process %d: %w", pid, err)
	}
	return identity{pid: pid, started: started, boot: bootID()}, nil
}

// readIdentity reads a pid file; the zero identity stands for none.
func readIdentity(path string) identity {
	content, err := os.ReadFile(path)
	if err != nil {
		return identity{}
	}
	fields := strings.Split(strings.TrimSpace(string(content)), "\n")
	if len(fields) != 3 {
		return identity{}
	}
	pid, err := strconv.Atoi(fields[0])
	if err != nil || pid <= 1 {
		return identity{}
	}
	return identity{pid: pid, started: fields[1], boot: fields[2]}
}

// String is the content of a pid file.
func (i identity) String() string {
	return fmt.Sprintf("%d\n%s\n%s\n", i.pid, i.started, i.boot)
}

// alive reports whether exactly this process still runs.
func (i identity) alive() bool {
	if i.pid <= 1 || i.boot != bootID() {
		return false
	}
	started, err := startTime(i.pid)
	return err == nil && started == i.started
}

// kill ends the process at once, if it is still the same one.
func (i identity) kill() {
	if i.alive() {
		// The only error is that it has just ended.
		_ = unix.Kill(i.pid, unix.SIGKILL)
	}
}
