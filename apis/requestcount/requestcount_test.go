// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package requestcount_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/requestcount"
)

type answer func(*http.Request) (*http.Response, error)

func (f answer) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestRequestsAreCounted(t *testing.T) {
	requests := requestcount.New("pool_operator_client_requests_total")
	lost := errors.New("connection reset")
	transport := requests.Wrap(answer(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return nil, lost
		}
		return &http.Response{StatusCode: http.StatusConflict}, nil
	}))
	for _, method := range []string{http.MethodPut, http.MethodPut, http.MethodGet} {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://server/apis/hive.openshift.io/v1/namespaces/a/clusterpools/p/status", http.NoBody)
		require.NoError(t, err)
		response, err := transport.RoundTrip(request) //nolint:bodyclose // there is none
		if method == http.MethodGet {
			require.ErrorIs(t, err, lost)
		} else {
			require.NoError(t, err)
			require.Equal(t, http.StatusConflict, response.StatusCode)
		}
	}
	require.NoError(t, testutil.CollectAndCompare(requests, strings.NewReader(`
# HELP pool_operator_client_requests_total Requests to the API server, by verb (get, list, watch, create, update, patch, apply, delete), resource[/subresource] and status code.
# TYPE pool_operator_client_requests_total counter
pool_operator_client_requests_total{code="409",resource="clusterpools/status",verb="update"} 2
pool_operator_client_requests_total{code="error",resource="clusterpools/status",verb="get"} 1
`)))
}
