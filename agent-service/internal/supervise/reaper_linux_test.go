// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/supervise"
)

// role in the environment makes this test binary one of the programs that are supervised.
const role = "SUPERVISE_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "":
		os.Exit(m.Run())
	case "fails":
		fmt.Println("cannot go on")
		os.Exit(3)
	case "serves":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("serving")
		<-terminated
		fmt.Println("stopping")
	case "stubborn":
		terminated := make(chan os.Signal, 1)
		signal.Notify(terminated, syscall.SIGTERM)
		fmt.Println("serving")
		for range terminated {
			fmt.Println("not yet")
		}
	case "leaves an orphan":
		child, err := os.StartProcess(os.Args[0], os.Args[:1], &os.ProcAttr{Env: []string{role + "=serves"}, Files: []*os.File{nil, os.Stdout, nil}})
		if err != nil {
			os.Exit(1)
		}
		fmt.Println("orphan", child.Pid)
	}
}

// output is what a program writes. Said is closed when it has the text.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	want string
	said chan struct{}
}

func expect(want string) *output { return &output{want: want, said: make(chan struct{})} }

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := strings.Contains(o.text.String(), o.want)
	o.text.Write(p)
	if !before && strings.Contains(o.text.String(), o.want) {
		close(o.said)
	}
	return len(p), nil
}

// String is all that was written.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// reaper is the only one of this process: two would take each other's children.
var reaper = sync.OnceValue(func() *supervise.Reaper {
	r := &supervise.Reaper{}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	go r.Reap(context.Background())
	return r
})

func command(as string, out *output) supervise.Command {
	return supervise.Command{Path: os.Args[0], Env: []string{role + "=" + as}, Output: out, Grace: time.Minute, Reaper: reaper()}
}

func TestTheEndOfAProcessIsReported(t *testing.T) {
	out := expect("cannot")
	require.EqualError(t, command("fails", out).Run(t.Context()), "exit status 3")
	assert.Equal(t, "cannot go on\n", out.String())
}

func TestAProcessThatCannotStartIsReported(t *testing.T) {
	c := command("fails", expect("x"))
	c.Path = "/no/such/program"
	require.ErrorContains(t, c.Run(t.Context()), "/no/such/program")
}

func TestAProcessIsAskedToEnd(t *testing.T) {
	out := expect("serving")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- command("serves", out).Run(ctx) }()
	<-out.said
	stop()
	require.NoError(t, <-ended)
	assert.Equal(t, "serving\nstopping\n", out.String())
}

func TestAProcessThatDoesNotEndIsKilled(t *testing.T) {
	out := expect("serving")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	c := command("stubborn", out)
	c.Grace = 10 * time.Millisecond
	go func() { ended <- c.Run(ctx) }()
	<-out.said
	stop()
	require.EqualError(t, <-ended, "signal killed")
}

// The first process adopts orphans. They hold the output of the program open, and become zombies unless they are collected.
func TestOrphansAreCollected(t *testing.T) {
	out := expect("orphan")
	require.NoError(t, command("leaves an orphan", out).Run(t.Context()))
	var pid int
	_, said, _ := strings.Cut(out.String(), "orphan ")
	_, err := fmt.Sscan(said, &pid)
	require.NoError(t, err)
	require.NoError(t, unix.Kill(pid, unix.SIGKILL))
	require.Eventually(t, func() bool { return unix.Kill(pid, 0) == unix.ESRCH }, time.Minute, time.Millisecond)
}
