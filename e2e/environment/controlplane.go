// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/muster-io/muster/e2e/checkout"
)

// ControlPlane is a Kubernetes control plane on this machine: bin/controlplane as a child.
type ControlPlane struct {
	kubeconfig string
	cmd        *exec.Cmd
	stdin      io.WriteCloser
	ended      chan struct{}
}

// StartControlPlane starts one with its data in dir, and returns when it is ready. It ends with this process, or with Close.
func StartControlPlane(ctx context.Context, dir string, args ...string) (*ControlPlane, error) {
	program, err := checkout.Binary("controlplane")
	if err != nil {
		return nil, err
	}
	args = append([]string{"start", "--until-stdin-closes", "--dir=" + dir}, args...)
	cmd := exec.Command(program, args...) //nolint:noctx // it is ended by Close, in order
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	log := filepath.Join(filepath.Dir(dir), "controlplane.log")
	file, err := os.Create(log)
	if err != nil {
		return nil, fmt.Errorf("opening a log: %w", err)
	}
	defer func() { _ = file.Close() }()
	cmd.Stderr = file
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the control plane: %w", err)
	}
	c := &ControlPlane{cmd: cmd, stdin: stdin, ended: make(chan struct{})}
	line := make(chan string, 1)
	go func() {
		reader := bufio.NewReader(stdout)
		text, _ := reader.ReadString('\n')
		line <- strings.TrimSpace(text)
		_, _ = io.Copy(io.Discard, reader)
		_ = cmd.Wait()
		close(c.ended)
	}()
	select {
	case <-ctx.Done():
		c.Close()
		return nil, ctx.Err()
	case c.kubeconfig = <-line:
	}
	if c.kubeconfig == "" {
		c.Close()
		return nil, fmt.Errorf("the control plane did not start; the end of its log:\n%s", tail(log, 20))
	}
	return c, nil
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// Close ends the control plane and waits for its end.
func (c *ControlPlane) Close() {
	_ = c.stdin.Close()
	<-c.ended
}
