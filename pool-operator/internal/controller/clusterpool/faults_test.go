// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// fault is what happens to a write.
type fault string

const (
	// killedBefore: the process dies before the write reaches the API server.
	killedBefore fault = "killed before"
	// killedAfter: the process dies before it hears the answer.
	killedAfter fault = "killed after"
	// failsOnce: the write fails, and the process goes on.
	failsOnce fault = "fails once"
)

var errFault = errors.New("this write was made to fail")

// transport counts the writes of a client, and lets something happen to the n-th; 0 is none. Events and leases are not counted.
type transport struct {
	kind   fault
	n      int64
	writes atomic.Int64
	dead   atomic.Bool
	// died is closed when the process is dead.
	died chan struct{}
	once sync.Once

	mu   sync.Mutex
	seen map[string]int
}

func newTransport(kind fault, n int) *transport {
	return &transport{kind: kind, n: int64(n), died: make(chan struct{}), seen: map[string]int{}}
}

func (f *transport) wrap(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) { return f.pass(next, r) })
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/events") && !strings.Contains(r.URL.Path, "/leases")
}

func (f *transport) pass(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if f.dead.Load() {
		return nil, errFault
	}
	if !isWrite(r) {
		return next.RoundTrip(r)
	}
	n := f.writes.Add(1)
	f.mu.Lock()
	f.seen[r.Method+" "+resourceOf(r.URL.Path)]++
	f.mu.Unlock()
	if n != f.n {
		return next.RoundTrip(r)
	}
	switch f.kind {
	case killedBefore:
		f.die()
	case killedAfter:
		response, err := next.RoundTrip(r)
		if err == nil {
			_ = response.Body.Close()
		}
		f.die()
	case failsOnce:
	}
	return nil, errFault
}

func (f *transport) die() {
	f.dead.Store(true)
	f.once.Do(func() { close(f.died) })
}

// summary is how often what was written.
func (f *transport) summary() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.seen)
}

func resourceOf(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		if part == "namespaces" && i+2 < len(parts) {
			return parts[i+2] + suffix(parts, i+4)
		}
		if part == "namespaces" {
			return part
		}
	}
	return parts[len(parts)-1]
}

func suffix(parts []string, i int) string {
	if i < len(parts) {
		return "/" + parts[i]
	}
	return ""
}

// late lets the events of watches arrive so much later, as on a busy machine.
func late(lag time.Duration) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err == nil && lag > 0 && r.URL.Query().Get("watch") == "true" {
				response.Body = delayed(response.Body, lag)
			}
			return response, err
		})
	}
}

// delayed is what body gives, each part so much later.
func delayed(body io.ReadCloser, lag time.Duration) io.ReadCloser {
	type part struct {
		content []byte
		err     error
		due     time.Time
	}
	parts := make(chan part, 1<<14)
	go func() {
		defer close(parts)
		for {
			buffer := make([]byte, 32<<10)
			n, err := body.Read(buffer)
			parts <- part{buffer[:n], err, time.Now().Add(lag)}
			if err != nil {
				return
			}
		}
	}()
	reader, writer := io.Pipe()
	go func() {
		for p := range parts {
			<-time.After(time.Until(p.due))
			_, _ = writer.Write(p.content)
			if p.err != nil {
				_ = writer.CloseWithError(p.err)
			}
		}
	}()
	return lateBody{reader, body}
}

// lateBody is read late and closed at once.
type lateBody struct {
	io.Reader
	io.Closer
}
