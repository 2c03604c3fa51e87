// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/operator"
)

func TestMetricsAnswerBadTokensWith401(t *testing.T) {
	config := controlplanetest.Start(t)
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	filter, err := operator.MetricsServer("", filters.WithAuthenticationAndAuthorization).FilterProvider(config, client)
	require.NoError(t, err)
	handler, err := filter(logr.Discard(), http.NotFoundHandler())
	require.NoError(t, err)
	for _, token := range []string{"nonsense", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJuby1vbmUifQ.c2lnbmF0dXJl"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		request.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		assert.Equal(t, http.StatusUnauthorized, recorder.Code, token)
	}
}
