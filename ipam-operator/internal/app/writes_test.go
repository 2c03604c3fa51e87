// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

var errDead = errors.New("the process is dead")

// writes counts the writes of a client, leases and events aside, and can end them.
type writes struct {
	mu   sync.Mutex
	seen []string
	// dieAt is the write after which nothing gets through any more; zero for never. Lost says that the answer to that
	// write is lost, and otherwise the write itself.
	dieAt int
	lost  bool
	dead  chan struct{}
}

func (w *writes) count(next http.RoundTripper) http.RoundTripper { return writesTripper{w, next} }

func (w *writes) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.seen)
}

func (w *writes) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.seen, "\n")
}

type writesTripper struct {
	w    *writes
	next http.RoundTripper
}

func (t writesTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	isWrite := req.Method != http.MethodGet && !strings.Contains(req.URL.Path, "/leases") && !strings.Contains(req.URL.Path, "/events")
	t.w.mu.Lock()
	if t.w.dieAt > 0 && len(t.w.seen) >= t.w.dieAt {
		t.w.mu.Unlock()
		return nil, errDead
	}
	dies := false
	if isWrite {
		t.w.seen = append(t.w.seen, fmt.Sprintf("%s %s", req.Method, req.URL.Path))
		if dies = len(t.w.seen) == t.w.dieAt; dies {
			close(t.w.dead)
		}
	}
	t.w.mu.Unlock()
	if dies && !t.w.lost {
		return nil, errDead
	}
	resp, err := t.next.RoundTrip(req)
	if dies && err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errDead
	}
	return resp, err
}
