// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is a child with its output in a file.
type process struct {
	name, log string
	cmd       *exec.Cmd
	ended     chan struct{}
	err       error
}

// startProcess starts a program. It gets an interrupt of the terminal only from us, in our order.
func startProcess(name, log, path string, args ...string) (*process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	cmd := exec.Command(path, args...) //nolint:noctx // it is ended by stop, in order
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	p := &process{name: name, log: log, cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// stop ends the process in an orderly way, and hard after a grace period.
func (p *process) stop(grace time.Duration) {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		p.kill()
	}
}

// kill ends the process without asking it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// failure says that the process has ended by itself, with the last lines of its log.
func (p *process) failure() error {
	return fmt.Errorf("%s has ended (%v); the end of its log:\n%s", p.name, p.cmd.ProcessState, tail(p.log, 20))
}

func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  | " + strings.ReplaceAll(string(bytes.Join(all, []byte("\n"))), "\n", "\n  | ")
}
