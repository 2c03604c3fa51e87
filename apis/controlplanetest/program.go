// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplanetest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	programVariable = "MUSTER_CONTROLPLANE"
	// exitMissing is the exit status of the program when it lacks etcd or a Kubernetes program.
	exitMissing = 3
)

// missingError says what has to be built before tests can have a control plane.
type missingError struct {
	message string
}

func (e *missingError) Error() string { return e.message }

// workspace returns the directory above the working directory that holds go.work.
func workspace() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the workspace: %w", err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", &missingError{"no go.work above the working directory: set " + programVariable + " to the path of bin/controlplane"}
		}
	}
}

// findProgram returns the path of bin/controlplane.
func findProgram() (string, error) {
	if path := os.Getenv(programVariable); path != "" {
		return path, nil
	}
	dir, err := workspace()
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "bin", "controlplane")
	if _, err := os.Stat(program); err != nil {
		return "", &missingError{program + ` is missing: run "make controlplane"`}
	}
	return program, nil
}

// startProgram runs the control plane, with further flags, until this process ends and returns the path of its kubeconfig.
func startProgram(program string, flags ...string) (string, error) {
	//nolint:noctx // it lives as long as this process, not as the test that happens to come first
	cmd := exec.Command(program, append([]string{"start", "--unsafe-no-fsync", "--until-stdin-closes", "--prepared"}, flags...)...)
	// The write end of standard input is open for as long as this process lives; nothing ever writes to it. Output goes
	// through pipes, since a child that holds the standard error of a test makes "go test" wait for it.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return "", err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	stderr := &tail{}
	cmd.Stderr = stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	line := make(chan string, 1)
	go func() {
		first, _ := bufio.NewReader(stdout).ReadString('\n')
		line <- strings.TrimSpace(first)
	}()
	select {
	case kubeconfig := <-line:
		if kubeconfig != "" {
			// It ends with this process; until then this keeps the pipe that it lives by.
			go func() { _ = cmd.Wait() }()
			return kubeconfig, nil
		}
		return "", explain(cmd.Wait(), stderr)
	case <-time.After(startTimeout):
		_ = stdin.Close()
		return "", explain(errors.New("not ready after "+startTimeout.String()), stderr)
	}
}

func explain(err error, stderr *tail) error {
	message := stderr.String()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitMissing {
		return &missingError{message}
	}
	return fmt.Errorf("%w\n%s", err, message)
}

// tail keeps the last bytes that were written to it.
type tail struct {
	mu      sync.Mutex
	content []byte
}

const tailSize = 8 << 10

func (t *tail) Write(content []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.content = append(t.content, content...)
	t.content = t.content[max(0, len(t.content)-tailSize):]
	return len(content), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.content))
}
