// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/supervise"
)

// journal notes what happens, with the time since its beginning.
type journal struct {
	mu    sync.Mutex
	since time.Time
	lines []string
}

func newJournal() *journal { return &journal{since: time.Now()} }

func (j *journal) note(format string, values ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf("%s "+format, append([]any{time.Since(j.since)}, values...)...))
}

func (j *journal) with(part string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []string
	for _, line := range j.lines {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

func silent(string, ...any) {}

// serving runs until it is stopped, and takes a second for that.
func (j *journal) serving(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		j.note("start %s", name)
		<-ctx.Done()
		<-time.After(time.Second)
		j.note("stop %s", name)
		return nil
	}
}

func after(delay time.Duration) func(context.Context) error {
	began := time.Now()
	return func(context.Context) error {
		if time.Since(began) < delay {
			return errors.New("not yet")
		}
		return nil
	}
}

func TestProgramsStartInOrderAndStopInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		ctx, stop := context.WithCancel(t.Context())
		s := supervise.Supervisor{Say: silent, Programs: []supervise.Program{
			{Name: "containerd", Run: j.serving("containerd"), Ready: after(2 * time.Second)},
			{Name: "certificate", After: []string{"containerd"}, Once: true, Run: func(context.Context) error {
				<-time.After(3 * time.Second)
				return nil
			}},
			{Name: "kubelet", After: []string{"containerd"}, Run: j.serving("kubelet")},
			{Name: "kube-proxy", After: []string{"certificate", "kubelet"}, Run: j.serving("kube-proxy")},
		}}
		ended := make(chan error)
		go func() { ended <- s.Run(ctx) }()
		<-time.After(time.Minute)
		stop()
		require.NoError(t, <-ended)
		assert.Equal(t, []string{
			"0s start containerd", "2s start kubelet", "5s start kube-proxy",
			"1m1s stop kube-proxy", "1m2s stop kubelet", "1m3s stop containerd",
		}, j.lines)
	})
}

func TestAProgramThatEndsStartsAgainWithABackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
		defer stop()
		runs := 0
		s := supervise.Supervisor{Say: j.note, Programs: []supervise.Program{{Name: "kubelet", Run: func(ctx context.Context) error {
			runs++
			if runs == 8 { // one that runs for some time begins anew
				select {
				case <-time.After(time.Minute):
				case <-ctx.Done():
				}
			}
			return errors.New("exit status 1")
		}}}}
		require.NoError(t, s.Run(ctx))
		assert.Equal(t, []string{
			"0s kubelet starts", "1s kubelet starts", "3s kubelet starts", "7s kubelet starts", "15s kubelet starts", "31s kubelet starts", "1m1s kubelet starts",
			"1m31s kubelet starts", "2m32s kubelet starts", "2m34s kubelet starts",
		}, j.with("kubelet starts")[:10])
		assert.Contains(t, j.lines, "0s kubelet ended (exit status 1) and starts again in 1s")
	})
}

func TestAProgramThatIsNeverReadyHoldsBackOnlyThoseAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		s := supervise.Supervisor{Say: silent, Programs: []supervise.Program{
			{Name: "network", Run: j.serving("network"), Ready: after(2 * time.Hour)},
			{Name: "kubelet", After: []string{"network"}, Run: j.serving("kubelet")},
			{Name: "agent", Run: j.serving("agent")},
		}}
		require.NoError(t, s.Run(ctx))
		assert.ElementsMatch(t, []string{"0s start network", "0s start agent", "1h0m1s stop network", "1h0m1s stop agent"}, j.lines)
	})
}

func TestAOneTimeTaskIsRetriedUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal()
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		tries := 0
		s := supervise.Supervisor{Say: j.note, Programs: []supervise.Program{{Name: "report", Once: true, Run: func(context.Context) error {
			if tries++; tries < 3 {
				return errors.New("no route")
			}
			return nil
		}}}}
		require.NoError(t, s.Run(ctx))
		assert.Equal(t, 3, tries)
		assert.Equal(t, "3s report is done", j.lines[len(j.lines)-1])
	})
}

func TestAListThatCannotBeOrderedIsRefused(t *testing.T) {
	run := func(context.Context) error { return nil }
	for says, programs := range map[string][]supervise.Program{
		`two programs "a"`:                {{Name: "a", Run: run}, {Name: "a", Run: run}},
		`"a" is after "b", which is not`:  {{Name: "a", After: []string{"b"}, Run: run}, {Name: "b", Run: run}},
		`"a" is after "a", which is not `: {{Name: "a", After: []string{"a"}, Run: run}},
	} {
		assert.ErrorContains(t, supervise.Supervisor{Programs: programs, Say: silent}.Run(t.Context()), says)
	}
}
