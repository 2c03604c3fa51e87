// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/muster-io/muster/apis/apirequest"
)

// Kind is a kind of request: what is done to which resource, subresource included, as in patch clusterdeployments/status.
type Kind struct {
	Verb, Resource string
}

// Request is a kind of request with the code of the answer.
type Request struct {
	Kind
	Code string
}

// Requests are numbers of requests.
type Requests map[Request]int

// writing are the verbs that change something.
var writing = []string{"create", "update", "patch", "apply", "delete"}

// apart are resources whose writes are listed apart: they belong to the operator's own running, or tell what was done.
var apart = []string{"leases", "events", "tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews"}

// Since returns what came on top of earlier numbers.
func (q Requests) Since(earlier Requests) Requests {
	out := Requests{}
	for request, n := range q {
		if n -= earlier[request]; n != 0 {
			out[request] = n
		}
	}
	return out
}

// All returns the numbers of requests by kind, whatever their answers were; leases, events and reviews are left out.
func (q Requests) All() map[Kind]int {
	out := map[Kind]int{}
	for request, n := range q {
		if !slices.Contains(apart, request.Resource) {
			out[request.Kind] += n
		}
	}
	return out
}

// Writes returns the numbers of writes by kind, failed ones included; leases, events and reviews are left out.
func (q Requests) Writes() map[Kind]int {
	out := map[Kind]int{}
	for request, n := range q {
		if slices.Contains(writing, request.Verb) && !slices.Contains(apart, request.Resource) {
			out[request.Kind] += n
		}
	}
	return out
}

// Reads returns the numbers of requests by kind that write nothing, watches and discovery left out.
func (q Requests) Reads() map[Kind]int {
	out := map[Kind]int{}
	for request, n := range q {
		if (request.Verb == "get" || request.Verb == "list") && !slices.Contains(apart, request.Resource) {
			out[request.Kind] += n
		}
	}
	return out
}

// Apart returns the numbers of writes that Writes leaves out.
func (q Requests) Apart() map[Kind]int {
	out := map[Kind]int{}
	for request, n := range q {
		if slices.Contains(writing, request.Verb) && slices.Contains(apart, request.Resource) {
			out[request.Kind] += n
		}
	}
	return out
}

// FailedWrites returns how many writes were refused.
func (q Requests) FailedWrites() int {
	failed := 0
	for request, n := range q {
		if slices.Contains(writing, request.Verb) && !slices.Contains(apart, request.Resource) && !strings.HasPrefix(request.Code, "2") {
			failed += n
		}
	}
	return failed
}

// Total adds up the numbers of the kinds that keep lets through; nil lets all through.
func Total(kinds map[Kind]int, keep func(Kind) bool) int {
	total := 0
	for kind, n := range kinds {
		if keep == nil || keep(kind) {
			total += n
		}
	}
	return total
}

// Sum adds numbers of kinds.
func Sum(all ...map[Kind]int) map[Kind]int {
	out := map[Kind]int{}
	for _, kinds := range all {
		for kind, n := range kinds {
			out[kind] += n
		}
	}
	return out
}

// Describe lists kinds with their numbers, most frequent first.
func Describe(kinds map[Kind]int) string {
	if len(kinds) == 0 {
		return "none"
	}
	keys := slices.SortedFunc(maps.Keys(kinds), func(a, b Kind) int {
		if kinds[a] != kinds[b] {
			return kinds[b] - kinds[a]
		}
		return strings.Compare(a.Resource+a.Verb, b.Resource+b.Verb)
	})
	var words []string
	for _, kind := range keys {
		words = append(words, fmt.Sprintf("%d %s %s", kinds[kind], kind.Verb, kind.Resource))
	}
	return strings.Join(words, ", ")
}

// Counter counts requests at a client's transport.
type Counter struct {
	mu       sync.Mutex
	requests Requests
}

// NewCounter returns a counter that has seen nothing.
func NewCounter() *Counter { return &Counter{requests: Requests{}} }

// Requests returns what was counted so far.
func (c *Counter) Requests() Requests {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.requests)
}

// Wrap counts what goes through next. It fits rest.Config.Wrap.
func (c *Counter) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		code := "error"
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}
		verb, resource := apirequest.Of(request)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests[Request{Kind{verb, resource}, code}]++
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
