// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/muster-io/muster/apis/tracing"
	"github.com/muster-io/muster/apis/tracingtest"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
)

func TestRequestsAreSpansOfTheirReconcileWithoutCredentials(t *testing.T) {
	collector, stop := tracingtest.Trace(t, "discovery-operator")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-OpenStack-Ironic-API-Maximum-Version", "1.96")
		if r.URL.Path == "/v1/nodes" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(server.Close)
	client, err := ironic.New(ironic.Config{Endpoint: server.URL + "/v1", Auth: ironic.AuthHTTPBasic, Username: "admin", Password: "s3cr3t"}, nil)
	require.NoError(t, err)
	_, err = tracing.Reconciler("pass", reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		_, err := client.Nodes(ctx, "")
		return reconcile.Result{}, err
	})).Reconcile(t.Context(), reconcile.Request{})
	require.Error(t, err)
	stop()

	pass := collector.Wait(t, func(s tracingtest.Span) bool { return s.Name == "pass" })
	calls := collector.Spans(func(s tracingtest.Span) bool { return s.Parent == pass.ID })
	require.Len(t, calls, 2, "%+v", calls)
	assert.Equal(t, "ironic version", calls[0].Name)
	assert.False(t, calls[0].Failed)
	assert.True(t, calls[1].Failed)
	assert.Equal(t, "403 Forbidden", calls[1].Message)
	assert.Equal(t, map[string]string{"http.request.method": "GET", "server.address": server.Listener.Addr().String()}, calls[1].Attributes)
	assert.NotContains(t, fmt.Sprint(collector.Spans(func(tracingtest.Span) bool { return true })), "s3cr3t")
}
