// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
)

// process is one running program of a control plane.
type process struct {
	name string
	dir  layout
	cmd  *exec.Cmd
	log  *boundedLog
	// ended is closed when the program has ended; state then says how.
	ended chan struct{}
	state string
}

// startProcess starts a program in run/ with its output in log/. It inherits the directory's lock and nothing of the
// environment that could hold a secret.
func startProcess(dir layout, lock *os.File, name, path string, args []string) (*process, error) {
	log, err := openLog(dir.log(name))
	if err != nil {
		return nil, asDiskFull(string(dir), fmt.Errorf("opening the log of %s: %w", name, err))
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it ends by Stop and Kill, gracefully, and not with a start's context
	cmd.Dir = dir.run()
	cmd.Env = inheritedEnvironment()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{lock}
	cmd.SysProcAttr = dieWithParent()
	p := &process{name: name, dir: dir, cmd: cmd, log: log, ended: make(chan struct{})}
	if err := launch(cmd); err != nil {
		log.close()
		return nil, asDiskFull(string(dir), fmt.Errorf("starting %s: %w", name, err))
	}
	p.writePid()
	go p.wait()
	return p, nil
}

// writePid records the process for the next owner of the directory if this one is killed. It is best effort: the inherited lock
// is what proves that no process is left.
func (p *process) writePid() {
	if id, err := identify(p.cmd.Process.Pid); err == nil {
		_ = os.WriteFile(p.dir.pid(p.name), []byte(id.String()), 0o600)
	}
}

func (p *process) wait() {
	err := p.cmd.Wait()
	p.log.close()
	p.state = "exit status 0"
	if err != nil {
		p.state = err.Error()
	}
	_ = os.Remove(p.dir.pid(p.name))
	close(p.ended)
}

// waitOrKill waits for the program to end and kills it when the context ends first. It returns when the program is gone.
func (p *process) waitOrKill(ctx context.Context) {
	select {
	case <-p.ended:
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// died is the error for a program that ended by itself.
func (p *process) died() error {
	tail := logTail(p.dir.log(p.name))
	for _, line := range tail {
		if strings.Contains(line, "no space left on device") {
			return &DiskFullError{Dir: string(p.dir)}
		}
	}
	return &ProcessDiedError{Process: p.name, State: p.state, LogTail: tail}
}

func inheritedEnvironment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TZ", "GOGC", "GOMEMLIMIT"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// launch starts a command from a thread that lives as long as this process. The kernel's death signal goes out when the
// parent thread ends, not the parent process, and the Go runtime ends a thread whose locked goroutine returns.
func launch(cmd *exec.Cmd) error {
	launcher.Do(func() {
		go func() {
			runtime.LockOSThread()
			for request := range launches {
				request.result <- request.cmd.Start()
			}
		}()
	})
	request := launchRequest{cmd: cmd, result: make(chan error, 1)}
	launches <- request
	return <-request.result
}

type launchRequest struct {
	cmd    *exec.Cmd
	result chan error
}

var (
	launcher sync.Once
	launches = make(chan launchRequest)
)
