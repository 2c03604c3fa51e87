// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultinject ends processes of tests in the middle of what they do, or makes one of their calls fail.
package faultinject

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Errors of calls.
var (
	// ErrCrashed is returned for each call of a process that has crashed.
	ErrCrashed = errors.New("the process has crashed")
	// ErrFailed is returned for the one call that fails.
	ErrFailed = errors.New("this call was made to fail")
)

// NotServed is what an API server answers to a request for a kind that it does not serve: 404, as for an object that is gone.
func NotServed(resource schema.GroupResource) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resource, "", "404 page not found", 0, true)
}

// Fault is what is done to the n-th call.
type Fault string

const (
	// CrashBefore crashes the process before the call arrives.
	CrashBefore Fault = "crash before"
	// CrashAfter crashes the process after the call arrived, before it learns of the answer.
	CrashAfter Fault = "crash after"
	// FailOnce makes the call fail; the process goes on.
	FailOnce Fault = "fail once"
)

// Injector injects one fault into the calls of a process: its writes to the API server, or requests to another system. From a crash on,
// no call arrives.
type Injector struct {
	at    int
	fault Fault

	mu      sync.Mutex
	calls   int
	writes  []string
	crashed chan struct{}
}

// New injects the fault into the n-th call; zero is never.
func New(n int, fault Fault) *Injector {
	return &Injector{at: n, fault: fault, crashed: make(chan struct{})}
}

// At crashes at the n-th call. With late, that call arrives and the process does not learn of it.
func At(n int, late bool) *Injector {
	if late {
		return New(n, CrashAfter)
	}
	return New(n, CrashBefore)
}

// CrashAfterEveryCall runs a scenario again and again as a subtest, which must not be parallel: its process crashes after the first call,
// then after the second, until two runs in a row end without a crash, so that no call is left out where some runs need fewer. A crash
// before a call leaves what one after the call before it leaves.
func CrashAfterEveryCall(t *testing.T, scenario func(t *testing.T, i *Injector)) {
	t.Helper()
	for n, whole := 1, 0; whole < 2; n++ {
		i := At(n, true)
		ended := false
		passed := t.Run(fmt.Sprintf("crash after call %d", n), func(t *testing.T) {
			scenario(t, i)
			ended = true
		})
		switch {
		case !passed:
			return
		case !ended:
			t.Fatal("a scenario is skipped or parallel: whether its process crashed is not known yet")
		case i.Crashed():
			whole = 0
		default:
			whole++
		}
	}
}

// Never does not crash, unless Kill is called.
func Never() *Injector { return New(0, CrashBefore) }

// Call makes a call, or fails with ErrCrashed or ErrFailed.
func (i *Injector) Call(call func() error) error {
	n, dead := i.begin("")
	switch {
	case dead:
		return ErrCrashed
	case n != i.at:
		return call()
	case i.fault == FailOnce:
		return ErrFailed
	case i.fault == CrashAfter:
		_ = call()
	}
	i.Kill()
	return ErrCrashed
}

// begin counts a call, and reports whether the process is dead by then.
func (i *Injector) begin(write string) (n int, dead bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls++
	dead = i.dead() || i.at > 0 && i.fault != FailOnce && i.calls > i.at
	if write != "" && !dead {
		i.writes = append(i.writes, write)
	}
	return i.calls, dead
}

// Kill crashes the process now.
func (i *Injector) Kill() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.dead() {
		close(i.crashed)
	}
}

func (i *Injector) dead() bool {
	select {
	case <-i.crashed:
		return true
	default:
		return false
	}
}

// Dead is closed by the crash.
func (i *Injector) Dead() <-chan struct{} { return i.crashed }

// Crashed reports whether the process has crashed.
func (i *Injector) Crashed() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.dead()
}

// Calls is the number of calls so far, including those that failed.
func (i *Injector) Calls() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls
}

// Writes are the requests that Transport counted, in their order, each as "PATCH /api/v1/namespaces/ns/secrets/a".
func (i *Injector) Writes() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.writes)
}

// IsWrite reports whether a request to the API server writes, but for events and leases.
func IsWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "/leases")
}

// Transport is the way to the API server as the process uses it. The requests of which counts is true are calls; after a crash, none arrives.
func (i *Injector) Transport(next http.RoundTripper, counts func(*http.Request) bool) http.RoundTripper {
	return transport{i, next, counts}
}

type transport struct {
	injector *Injector
	next     http.RoundTripper
	counts   func(*http.Request) bool
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	i := t.injector
	if !t.counts(r) {
		if i.Crashed() {
			return nil, ErrCrashed
		}
		return t.next.RoundTrip(r)
	}
	n, dead := i.begin(r.Method + " " + r.URL.Path)
	switch {
	case dead:
		return nil, ErrCrashed
	case n != i.at:
		return t.next.RoundTrip(r)
	case i.fault == FailOnce:
		return nil, ErrFailed
	case i.fault == CrashAfter:
		if response, err := t.next.RoundTrip(r); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
	}
	i.Kill()
	return nil, ErrCrashed
}
