// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package programtest runs programs beside a test, and shows what they printed when it fails.
package programtest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// shown is how many bytes of what a program printed last a failed test shows.
const shown = 12 << 10

// Program is one that was started.
type Program struct {
	output output
	ended  chan error
	// kill ends the program and returns when it is gone.
	kill func()
}

// Start starts a program, which is killed when the test ends unless it ended before. Its output is kept.
func Start(t testing.TB, command *exec.Cmd) *Program {
	t.Helper()
	p := &Program{ended: make(chan error, 1)}
	command.Stdout, command.Stderr = &p.output, &p.output
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		p.ended <- command.Wait()
		close(gone)
	}()
	p.kill = func() {
		_ = command.Process.Kill()
		<-gone
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text := p.String()
			t.Logf("%s: %s", filepath.Base(command.Path), text[max(0, len(text)-shown):])
		}
	})
	return p
}

// Kill ends the program by SIGKILL, and returns when it is gone. One that ended before stays as it is.
func (p *Program) Kill() { p.kill() }

// Ended tells once how the program ended: nil is exit code 0. It is a channel that never tells for a nil program, one that is not started yet.
func (p *Program) Ended() <-chan error {
	if p == nil {
		return nil
	}
	return p.ended
}

// String is all that the program has printed.
func (p *Program) String() string {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	return p.output.text.String()
}

// output keeps what a program prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(content []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(content)
}
