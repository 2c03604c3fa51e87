// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// TestWhatAMachineCosts counts the requests that grow with the machines of a rack: three writes until a machine is a host, then a read and a write for its HardwareData.
func TestWhatAMachineCosts(t *testing.T) {
	w := newTestEnv(t)
	const machines = 60
	for i := 1; i <= machines; i++ {
		w.enrol(i)
	}
	counted := &requestCounter{seen: map[string]int{}}
	w.wrap = append(w.wrap, func(next http.RoundTripper) http.RoundTripper { return counted.before(next) })
	w.operate()
	d := w.discover("all")
	w.status(d, "all are hosts", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts.Hosts == machines && s.Counts.Waiting == 0
	})
	w.eventually("each host has HardwareData", func() bool {
		var list metal3v1.HardwareDataList
		return w.List(t.Context(), &list, client.InNamespace(w.ns)) == nil && len(list.Items) == machines
	})
	seen := counted.requests()
	perMachine := map[string]int{}
	maps.Copy(perMachine, seen)
	maps.DeleteFunc(perMachine, func(_ string, n int) bool { return n < machines/2 })
	assert.Equal(t, map[string]int{
		"POST leases": machines, "POST baremetalhosts": machines, "PATCH baremetalhosts status": machines,
		"GET baremetalhosts one": machines, "PATCH hardwaredata one": machines,
	}, perMachine, "%v", seen)
}

// requestCounter counts requests by verb and resource.
type requestCounter struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *requestCounter) before(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		c.mu.Lock()
		c.seen[r.Method+" "+resourceOf(r.URL.Path)]++
		c.mu.Unlock()
		return next.RoundTrip(r)
	})
}

func (c *requestCounter) requests() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}

// resourceOf names what a path asks of the API server: a resource, one object of it, or a subresource.
func resourceOf(p string) string {
	_, rest, namespaced := strings.Cut(p, "/namespaces/")
	parts := strings.Split(rest, "/")
	switch {
	case !namespaced || len(parts) < 2:
		return path.Base(p)
	case len(parts) == 2:
		return parts[1]
	case len(parts) == 3:
		return parts[1] + " one"
	default:
		return parts[1] + " " + parts[3]
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls the function.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
