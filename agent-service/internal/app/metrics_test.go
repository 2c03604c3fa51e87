// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/apis/controlplanetest"
)

func TestMetricsAnswerBadTokensWith401(t *testing.T) {
	handler, err := (&Process{Kubeconfig: controlplanetest.Kubeconfig(t)}).authorized(http.NotFoundHandler(), zap.NewNop())
	require.NoError(t, err)
	for _, token := range []string{"nonsense", "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJuby1vbmUifQ.c2lnbmF0dXJl"} {
		request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		request.Header.Set("Authorization", "Bearer "+token)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, request)
		assert.Equal(t, http.StatusUnauthorized, recorder.Code, token)
	}
}
