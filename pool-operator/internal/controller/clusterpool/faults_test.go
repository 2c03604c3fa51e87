// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpool_test

import (
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/apis/faultinject"
)

// through leads the requests of a client through an injector of faults. Events and leases are no writes.
func through(f *faultinject.Injector) func(*rest.Config) {
	return func(config *rest.Config) {
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return f.Transport(next, faultinject.IsWrite) })
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// summary is how often what was written.
func summary(f *faultinject.Injector) map[string]int {
	seen := map[string]int{}
	for _, write := range f.Writes() {
		method, path, _ := strings.Cut(write, " ")
		seen[method+" "+resourceOf(path)]++
	}
	return seen
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
