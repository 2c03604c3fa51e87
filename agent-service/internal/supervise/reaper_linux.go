// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reaper starts processes and collects the ends of all children of this process, also of those that it adopted: the first
// process of a system is the parent of every orphan. While it runs, nothing else in this process waits for children.
type Reaper struct {
	mu       sync.Mutex
	children map[int]chan<- unix.WaitStatus
}

// Reap collects children until ctx is done.
func (r *Reaper) Reap(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		r.collect()
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if child, ours := r.children[pid]; ours {
			child <- status
			delete(r.children, pid)
		}
	}
}

// start starts a process. Its status comes through the channel when it has ended.
func (r *Reaper) start(path string, args []string, attributes *os.ProcAttr) (int, <-chan unix.WaitStatus, error) {
	// A process that ends at once is not collected before it is known.
	r.mu.Lock()
	defer r.mu.Unlock()
	process, err := os.StartProcess(path, args, attributes)
	if err != nil {
		return 0, nil, err
	}
	pid := process.Pid
	ended := make(chan unix.WaitStatus, 1)
	if r.children == nil {
		r.children = map[int]chan<- unix.WaitStatus{}
	}
	r.children[pid] = ended
	return pid, ended, process.Release()
}

// Command is a program that is a process.
type Command struct {
	Path string
	Args []string
	Env  []string
	// Dir is the working directory, that of this process where it is empty.
	Dir string
	// Output gets what the process writes to its standard output and error.
	Output io.Writer
	// Grace is how long the process has to end after SIGTERM; then it is killed.
	Grace time.Duration
	// Reaper collects the process.
	Reaper *Reaper
}

// drainTime bounds how long the output of a process is read after its end: its children may hold it open.
const drainTime = time.Second

// Run runs the process until it ends or ctx is done.
func (c Command) Run(ctx context.Context) error {
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return errors.Join(err, read.Close(), write.Close())
	}
	attributes := &os.ProcAttr{Dir: c.Dir, Env: c.Env, Files: []*os.File{null, write, write}, Sys: &syscall.SysProcAttr{Setsid: true}}
	pid, ended, err := c.Reaper.start(c.Path, append([]string{c.Path}, c.Args...), attributes)
	if err := errors.Join(err, null.Close(), write.Close()); err != nil {
		return errors.Join(err, read.Close())
	}
	copied := make(chan struct{})
	go func() {
		_, _ = io.Copy(c.Output, read)
		close(copied)
	}()
	status := c.wait(ctx, pid, ended)
	select {
	case <-copied:
	case <-time.After(drainTime):
	}
	err = read.Close()
	<-copied
	return errors.Join(failure(status), err)
}

// wait ends the process when ctx is done.
func (c Command) wait(ctx context.Context, pid int, ended <-chan unix.WaitStatus) unix.WaitStatus {
	select {
	case status := <-ended:
		return status
	case <-ctx.Done():
	}
	_ = unix.Kill(pid, unix.SIGTERM)
	select {
	case status := <-ended:
		return status
	case <-time.After(c.Grace):
	}
	_ = unix.Kill(pid, unix.SIGKILL)
	return <-ended
}

func failure(status unix.WaitStatus) error {
	switch {
	case status.Signaled():
		return fmt.Errorf("signal %s", status.Signal())
	case status.ExitStatus() != 0:
		return fmt.Errorf("exit status %d", status.ExitStatus())
	}
	return nil
}
