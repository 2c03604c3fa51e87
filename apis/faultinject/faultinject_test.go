// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package faultinject_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/faultinject"
)

func TestCallsOfAProcess(t *testing.T) {
	for name, c := range map[string]struct {
		injector *faultinject.Injector
		errs     []error
		arrived  []int
		crashed  bool
	}{
		"none crashes":    {faultinject.Never(), []error{nil, nil, nil}, []int{1, 2, 3}, false},
		"before the call": {faultinject.At(2, false), []error{nil, faultinject.ErrCrashed, faultinject.ErrCrashed}, []int{1}, true},
		"after the call":  {faultinject.At(2, true), []error{nil, faultinject.ErrCrashed, faultinject.ErrCrashed}, []int{1, 2}, true},
		"one call fails":  {faultinject.New(2, faultinject.FailOnce), []error{nil, faultinject.ErrFailed, nil}, []int{1, 3}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived []int
			for i, want := range c.errs {
				err := c.injector.Call(func() error { arrived = append(arrived, i+1); return nil })
				require.ErrorIs(t, err, want)
			}
			assert.Equal(t, c.arrived, arrived)
			assert.Equal(t, c.crashed, c.injector.Crashed())
			assert.Equal(t, 3, c.injector.Calls())
		})
	}
}

func TestRequestsOfAProcess(t *testing.T) {
	for name, c := range map[string]struct {
		injector *faultinject.Injector
		arrived  []string
		writes   []string
	}{
		"before the write": {faultinject.At(2, false), []string{"POST /a", "GET /a", "PUT /leases"}, []string{"POST /a", "PATCH /a"}},
		"after the write":  {faultinject.At(2, true), []string{"POST /a", "GET /a", "PUT /leases", "PATCH /a"}, []string{"POST /a", "PATCH /a"}},
		"one write fails": {
			faultinject.New(2, faultinject.FailOnce), []string{"POST /a", "GET /a", "PUT /leases", "GET /a", "DELETE /a"},
			[]string{"POST /a", "PATCH /a", "DELETE /a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var arrived []string
			server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				arrived = append(arrived, r.Method+" "+r.URL.Path)
			}))
			defer server.Close()
			client := &http.Client{Transport: c.injector.Transport(http.DefaultTransport, faultinject.IsWrite)}
			for _, request := range [][2]string{
				{http.MethodPost, "/a"}, {http.MethodGet, "/a"}, {http.MethodPut, "/leases"}, {http.MethodPatch, "/a"}, {http.MethodGet, "/a"}, {http.MethodDelete, "/a"},
			} {
				r, err := http.NewRequestWithContext(t.Context(), request[0], server.URL+request[1], http.NoBody)
				require.NoError(t, err)
				if response, err := client.Do(r); err == nil {
					_ = response.Body.Close()
				}
			}
			assert.Equal(t, c.arrived, arrived)
			assert.Equal(t, c.writes, c.injector.Writes())
		})
	}
}

func TestACrashAfterEveryCall(t *testing.T) {
	var arrived []int
	faultinject.CrashAfterEveryCall(t, func(_ *testing.T, i *faultinject.Injector) {
		n := 0
		for range 3 {
			_ = i.Call(func() error { n++; return nil })
		}
		arrived = append(arrived, n)
	})
	assert.Equal(t, []int{1, 2, 3, 3, 3}, arrived, "three that crash, and two that live to the end")
}
