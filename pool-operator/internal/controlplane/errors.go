// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// MissingBinaryError says that a program of the control plane was found nowhere.
type MissingBinaryError struct {
	// Name of the program, for example "etcd".
	Name string
	// Looked holds the directories that were searched, in order.
	Looked []string
}

func (e *MissingBinaryError) Error() string {
	return fmt.Sprintf("%s is missing (looked in %s, and on the PATH for the pinned minor version): run \"make controlplane\", or set KUBEBUILDER_ASSETS to a directory that holds it",
		e.Name, strings.Join(e.Looked, ", "))
}

// PortTakenError says that the port of a control plane is in use by another program. The port stands in kubeconfigs
// that were handed out, so it is not changed.
type PortTakenError struct {
	// Address is host:port.
	Address string
}

func (e *PortTakenError) Error() string {
	return fmt.Sprintf("port taken: another program listens on %s", e.Address)
}

// NoFreePortError says that every port of the configured range is in use.
type NoFreePortError struct {
	Range PortRange
}

func (e *NoFreePortError) Error() string {
	return fmt.Sprintf("no free port between %d and %d", e.Range.First, e.Range.Last)
}

// ProcessDiedError says that a process of the control plane ended without being asked to.
type ProcessDiedError struct {
	// Process is the program's name.
	Process string
	// State is how it ended, for example "exit status 1" or "signal: killed".
	State string
	// LogTail holds the last lines of its log, without secrets.
	LogTail []string
}

func (e *ProcessDiedError) Error() string {
	message := fmt.Sprintf("%s died (%s)", e.Process, e.State)
	if len(e.LogTail) == 0 || strings.HasPrefix(e.State, "signal:") {
		// A killed process did not log why it ended.
		return message
	}
	return message + ": " + essence(e.LogTail[len(e.LogTail)-1])
}

// DiskFullError says that the file system of the data directory has no space left.
type DiskFullError struct {
	Dir string
}

func (e *DiskFullError) Error() string {
	return "disk full: no space left for " + e.Dir
}

// InUseError says that another living process owns the data directory.
type InUseError struct {
	Dir string
	// PID is the owner's, 0 when it is unknown.
	PID int
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return e.Dir + " is in use by another process"
	}
	return fmt.Sprintf("%s is in use by process %d", e.Dir, e.PID)
}

// NotReadyError says that the processes run but the API server did not become ready in time.
type NotReadyError struct {
	// Waited is for how long, for example "1m0s".
	Waited string
	// Last is what the last probe said.
	Last string
	// LogTail holds the last lines of the API server's log, without secrets.
	LogTail []string
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("the API server was not ready after %s: %s", e.Waited, e.Last)
}

// DamagedError says that a file of the data directory is there and cannot be used. It is not replaced, since clients
// depend on what it held.
type DamagedError struct {
	File string
	// Cause never holds content of the file.
	Cause error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %v", e.File, e.Cause)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Cause }

// asDiskFull turns a write error into a DiskFullError where that is its cause.
func asDiskFull(dir string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &DiskFullError{Dir: dir}
	}
	return err
}
