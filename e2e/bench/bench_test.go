// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bench_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/e2e/bench"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i))
	}
	assert.Equal(t, time.Duration(50), bench.Percentile(hundred, 0.5))
	assert.Equal(t, time.Duration(99), bench.Percentile(hundred, 0.99))
	assert.Equal(t, time.Duration(100), bench.Percentile(hundred, 1))
	assert.Equal(t, time.Duration(7), bench.Percentile([]time.Duration{7}, 0.99))
	assert.Zero(t, bench.Percentile(nil, 0.99))
	assert.Equal(t, time.Duration(20), bench.Percentile(hundred[80:], 0.99), "of few, the worst counts")
}

func TestRequestsAreCountedByKind(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/namespaces/taken" {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer server.Close()
	counter := bench.NewCounter()
	client := &http.Client{Transport: counter.Wrap(http.DefaultTransport)}
	for _, call := range []struct{ method, path, contentType string }{
		{http.MethodPost, "/api/v1/namespaces", ""},
		{http.MethodPatch, "/api/v1/namespaces/taken", "application/merge-patch+json"},
		{http.MethodPut, "/api/v1/namespaces/a/finalize", ""},
		{http.MethodPatch, "/apis/hive.openshift.io/v1/namespaces/a/clusterdeployments/a/status", "application/apply-patch+yaml"},
		{http.MethodGet, "/apis/hive.openshift.io/v1/clusterpools", ""},
		{http.MethodGet, "/apis/hive.openshift.io/v1/clusterpools?watch=true", ""},
		{http.MethodGet, "/apis/hive.openshift.io/v1/namespaces/a/clusterpools/p", ""},
		{http.MethodPost, "/apis/events.k8s.io/v1/namespaces/a/events", ""},
		{http.MethodGet, "/version", ""},
	} {
		request, err := http.NewRequestWithContext(t.Context(), call.method, server.URL+call.path, http.NoBody)
		require.NoError(t, err)
		request.Header.Set("Content-Type", call.contentType)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
	}
	requests := counter.Requests()
	assert.Equal(t, map[bench.Kind]int{
		{Verb: "create", Resource: "namespaces"}:               1,
		{Verb: "patch", Resource: "namespaces"}:                1,
		{Verb: "update", Resource: "namespaces/finalize"}:      1,
		{Verb: "apply", Resource: "clusterdeployments/status"}: 1,
	}, requests.Writes())
	assert.Equal(t, map[bench.Kind]int{{Verb: "create", Resource: "events"}: 1}, requests.Apart())
	assert.Equal(t, 1, requests.FailedWrites())
	for _, read := range []bench.Kind{{Verb: "list", Resource: "clusterpools"}, {Verb: "watch", Resource: "clusterpools"}, {Verb: "get", Resource: "clusterpools"}, {Verb: "list", Resource: "none"}} {
		assert.Equal(t, 1, requests[bench.Request{Kind: read, Code: "200"}], read)
	}
	assert.Empty(t, counter.Requests().Since(requests))
}

func TestBareWritesAreAsManyAsAreAskedFor(t *testing.T) {
	often, rare := bench.Kind{Verb: "create", Resource: "often"}, bench.Kind{Verb: "patch", Resource: "rare"}
	var mu sync.Mutex
	done := map[bench.Kind]int{}
	last := map[int]bench.Kind{}
	b := bench.Bare{
		Writers: 3, Items: 7, Writes: map[bench.Kind]int{often: 16, rare: 2}, Order: []bench.Kind{rare, often},
		Write: func(_ context.Context, kind bench.Kind, item, _ int) error {
			mu.Lock()
			defer mu.Unlock()
			assert.False(t, kind == rare && last[item] == often, "an item's writes are done in order")
			last[item] = kind
			done[kind]++
			return nil
		},
	}
	_, err := b.Run(t.Context())
	require.NoError(t, err)
	assert.Equal(t, b.Writes, done)

	b.Order = b.Order[:1]
	_, err = b.Run(t.Context())
	require.ErrorContains(t, err, "create often", "a kind without a bare write is an error, not a smaller count")
}

func TestABenchmarkThatTakesLongRunsByName(t *testing.T) {
	all := []bench.Benchmark{{Name: "a"}, {Name: "b", ByName: true}, {Name: "c"}}
	names := func(wanted ...string) (out []string) {
		selected, err := bench.Select(all, wanted)
		require.NoError(t, err)
		for _, b := range selected {
			out = append(out, b.Name)
		}
		return out
	}
	assert.Equal(t, []string{"a", "c"}, names())
	assert.Equal(t, []string{"b", "c"}, names("c", "b"))
	_, err := bench.Select(all, []string{"a", "d"})
	require.ErrorContains(t, err, "a, d")
}
