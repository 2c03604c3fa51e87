// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package query

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// patience is how long a query may take.
	patience = 2 * time.Second
	// memory is how many bytes a query may use.
	memory = 64 << 20
	// begin is how long the process may take to begin.
	begin = time.Minute
)

// role in the environment makes a program the process that answers queries.
const role = "MUSTER_ANSWERS_QUERIES"

// ErrExceeded says that a query took more than it may.
var ErrExceeded = fmt.Errorf("the query takes more than %v or %d MiB", patience, memory>>20)

// Serve answers queries until nothing is asked any more. False means that this process was started for something else.
func Serve() bool {
	if os.Getenv(role) == "" {
		return false
	}
	limitMemory()
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for said, next := (answer{}), (question{}); out.Encode(said) == nil && in.Decode(&next) == nil; next = (question{}) {
		end := time.AfterFunc(2*patience, func() { os.Exit(1) }) // the process that asked may be gone
		said = answerTo(next)
		end.Stop()
	}
	return true
}

// limitMemory has the process end where it takes more memory than a query may have, beside what it has when it begins.
func limitMemory() {
	debug.SetMemoryLimit(memory)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	var kilobytes uint64
	_, after, _ := strings.Cut(string(status), "VmData:")
	if _, err := fmt.Sscan(after, &kilobytes); err != nil {
		return
	}
	limit := kilobytes<<10 + memory
	_ = syscall.Setrlimit(syscall.RLIMIT_DATA, &syscall.Rlimit{Cur: limit, Max: limit})
}

// Process is the process that answers queries. It is started when one is asked, and again after one that took too much.
type Process struct {
	mu    sync.Mutex
	end   func()
	ended chan struct{} // nil before it was started
	ask   *json.Encoder
	said  *json.Decoder
}

// Matches asks a query about an input. What is wrong with the query is failed, ErrExceeded where it took too much; an error is no fault of the query.
func (p *Process) Matches(ctx context.Context, query string, input json.RawMessage) (matches bool, failed, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.runs() {
		if err := p.start(ctx); err != nil {
			return false, nil, fmt.Errorf("starting the process that answers queries: %w", err)
		}
	}
	said, err := p.exchange(ctx, patience, &question{query, input})
	switch {
	case err == nil:
		matches, failed = said.outcome()
		return matches, failed, nil
	case ctx.Err() != nil:
		return false, nil, ctx.Err()
	default:
		return false, ErrExceeded, nil
	}
}

func (p *Process) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return p.ended != nil
	}
}

// thisProgram is the file of this program, also where another one has its name by now.
func thisProgram() (string, error) {
	const running = "/proc/self/exe"
	if _, err := os.Stat(running); err == nil {
		return running, nil
	}
	return os.Executable()
}

// start starts the process, and waits until it is ready.
func (p *Process) start(ctx context.Context) error {
	program, err := thisProgram()
	if err != nil {
		return err
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	command := exec.CommandContext(life, program)
	command.Args, command.Env = []string{"agent-service-queries"}, []string{role + "=1", "GOTRACEBACK=none"}
	in, inErr := command.StdinPipe()
	out, outErr := command.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		end()
		return err
	}
	if err := command.Start(); err != nil {
		end()
		return err
	}
	ended := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	p.end, p.ended, p.ask, p.said = end, ended, json.NewEncoder(in), json.NewDecoder(out)
	_, err = p.exchange(ctx, begin, nil)
	return err
}

// exchange asks, if there is something to ask, and waits for an answer. Without one the process is ended.
func (p *Process) exchange(ctx context.Context, within time.Duration, asked *question) (said answer, err error) {
	late, cancelled := time.AfterFunc(within, p.end), context.AfterFunc(ctx, p.end)
	if asked != nil {
		err = p.ask.Encode(asked)
	}
	if err == nil {
		err = p.said.Decode(&said)
	}
	if inTime, wanted := late.Stop(), cancelled(); err == nil && inTime && wanted {
		return said, nil
	}
	p.end()
	<-p.ended
	return answer{}, errors.Join(err, os.ErrProcessDone)
}
