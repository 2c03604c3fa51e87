// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ramdisk

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	running   = "RUNNING"
	succeeded = "SUCCEEDED"
	failed    = "FAILED"
	mismatch  = "VERSION_MISMATCH"
	// kept is how many commands are listed.
	kept = 32
	// maxCommand bounds a command: a config drive of 64 MiB can be in it, packed and in base64, twice.
	maxCommand = 192 << 20
)

// command is one that Ironic has sent. Its parameters are not told: the list needs no token, and a config drive is secret.
type command struct {
	ID     string         `json:"id"`
	Name   string         `json:"command_name"`
	Params map[string]any `json:"command_params"`
	Status string         `json:"command_status"`
	Error  *fault         `json:"command_error"`
	Result any            `json:"command_result"`
}

// fault is an error in the form of Ironic's agents.
type fault struct {
	Code    int    `json:"code"`
	Type    string `json:"type"`
	Message string `json:"message"`
	Details string `json:"details"`
	// Fault is how Ironic reads an answer with a status of 400 or more.
	Fault string `json:"faultstring,omitempty"`
}

// commands runs one command at a time and lists those that ran.
type commands struct {
	execute func(ctx context.Context, name string, params json.RawMessage) (any, error)
	// ended is called after a command that was not waited for.
	ended func()
	work  sync.WaitGroup

	mu   sync.Mutex
	last int
	list []*command
}

// busy is the command that runs; nil for none.
func (c *commands) busy() *command {
	if len(c.list) > 0 && c.list[len(c.list)-1].Status == running {
		return c.list[len(c.list)-1]
	}
	return nil
}

// snapshot copies the list, or one command of it.
func (c *commands) snapshot(id string) []command {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]command, 0, len(c.list))
	for _, one := range c.list {
		if id == "" || one.ID == id {
			out = append(out, *one)
		}
	}
	return out
}

// reset forgets what ran.
func (c *commands) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy() == nil {
		c.list = nil
	}
}

// begin takes a command, unless one runs.
func (c *commands) begin(name string) (*command, *fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.busy(); b != nil {
		return nil, &fault{Code: http.StatusConflict, Type: "AgentIsBusy", Message: "Agent is busy", Details: "Agent is busy: it executes " + b.Name}
	}
	c.last++
	one := &command{ID: strconv.Itoa(c.last), Name: name, Params: map[string]any{}, Status: running}
	if c.list = append(c.list, one); len(c.list) > kept {
		c.list = c.list[1:]
	}
	return one, nil
}

// end notes the result of a command. The result of a command that was waited for is in its answer, and not kept.
func (c *commands) end(one *command, result any, err error, waited bool) command {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := *one
	done.Result, done.Status = result, succeeded
	switch {
	case errors.Is(err, errVersion):
		done.Status = mismatch
	case err != nil:
		done.Status, done.Error = failed, &fault{Code: http.StatusInternalServerError, Type: "CommandExecutionError", Message: "Command execution failed", Details: err.Error()}
	}
	*one = done
	if waited {
		one.Result = nil
	}
	return done
}

// server is the agent's API.
type server struct {
	*commands
	// token is empty before Ironic has given it.
	token   func() string
	started time.Time
	// ctx ends with the agent, and what it executes with it.
	ctx context.Context //nolint:containedctx // a command lives longer than its request
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.versions)
	mux.HandleFunc("GET /v1", s.versions)
	mux.HandleFunc("GET /v1/{$}", s.versions)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]any{"started_at": s.started.Unix(), "version": protocol})
	})
	mux.HandleFunc("GET /v1/commands", s.all)
	mux.HandleFunc("GET /v1/commands/{$}", s.all)
	mux.HandleFunc("GET /v1/commands/{id}", s.one)
	mux.HandleFunc("POST /v1/commands", s.run)
	mux.HandleFunc("POST /v1/commands/{$}", s.run)
	return mux
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // a client that is gone reads no error
}

func refuse(w http.ResponseWriter, f fault) {
	f.Fault = f.Details
	answer(w, f.Code, f)
}

func (s *server) versions(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"name": "Muster's ramdisk", "versions": []any{map[string]any{"id": "v1"}}})
}

func (s *server) all(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"commands": s.snapshot("")})
}

func (s *server) one(w http.ResponseWriter, r *http.Request) {
	found := s.snapshot(r.PathValue("id"))
	if len(found) == 0 {
		refuse(w, fault{Code: http.StatusNotFound, Type: "RequestedObjectNotFoundError", Message: "Not found", Details: "there is no command " + r.PathValue("id")})
		return
	}
	answer(w, http.StatusOK, found[0])
}

// run executes a command; with wait=true it answers when that has ended.
func (s *server) run(w http.ResponseWriter, r *http.Request) {
	token, query := s.token(), r.URL.Query()
	if token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(query.Get("agent_token"))) != 1 {
		refuse(w, fault{Code: http.StatusUnauthorized, Type: "Unauthorized", Message: "Token required", Details: "the token is not the one that Ironic gave to this machine"})
		return
	}
	var asked struct {
		Name   string          `json:"name"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCommand)).Decode(&asked); err != nil {
		refuse(w, fault{Code: http.StatusBadRequest, Type: "InvalidContentError", Message: "Invalid request body", Details: "the command is no JSON: " + err.Error()})
		return
	}
	_, short, dotted := strings.Cut(asked.Name, ".")
	if !dotted || !known[asked.Name] {
		refuse(w, fault{
			Code: http.StatusBadRequest, Type: "InvalidCommandError", Message: "Invalid command", Details: fmt.Sprintf("Unknown command %q: this ramdisk does not have it", asked.Name),
		})
		return
	}
	one, busy := s.begin(short)
	if busy != nil {
		refuse(w, *busy)
		return
	}
	if wait, _ := strconv.ParseBool(query.Get("wait")); wait {
		result, err := s.execute(s.ctx, asked.Name, asked.Params) //nolint:contextcheck // it goes on where Ironic gives up waiting
		answer(w, http.StatusOK, s.end(one, result, err, true))
		return
	}
	begun := *one
	s.work.Go(func() {
		result, err := s.execute(s.ctx, asked.Name, asked.Params)
		s.end(one, result, err, false)
		s.ended()
	})
	answer(w, http.StatusOK, begun)
}
