// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsauth_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/apis/metricsauth"
)

type filter func(logr.Logger, http.Handler) (http.Handler, error)

// review is a filter that asks server about every request, and answers as the one of controller-runtime does.
func review(server string, known bool) func(*rest.Config, *http.Client) (filter, error) {
	return func(_ *rest.Config, client *http.Client) (filter, error) {
		return func(_ logr.Logger, handler http.Handler) (http.Handler, error) {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				request, err := http.NewRequestWithContext(r.Context(), http.MethodPost, server+"/apis/authentication.k8s.io/v1/tokenreviews", http.NoBody)
				if err == nil {
					var response *http.Response
					if response, err = client.Do(request); err == nil {
						err = response.Body.Close()
					}
				}
				if err != nil || !known {
					http.Error(w, "Authentication failed", http.StatusInternalServerError)
					return
				}
				handler.ServeHTTP(w, r)
			}), nil
		}, nil
	}
}

func TestUnknownTokensAreAnsweredWith401(t *testing.T) {
	answering := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(answering.Close)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	t.Cleanup(refusing.Close)
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	for name, test := range map[string]struct {
		server string
		known  bool
		page   http.HandlerFunc
		want   int
	}{
		"a token that the API server does not know":   {answering.URL, false, nil, http.StatusUnauthorized},
		"a token that it knows":                       {answering.URL, true, func(http.ResponseWriter, *http.Request) {}, http.StatusOK},
		"an API server that does not answer":          {away.URL, true, nil, http.StatusInternalServerError},
		"an API server that cannot answer":            {refusing.URL, false, nil, http.StatusInternalServerError},
		"a page that fails for a reason of its own":   {answering.URL, true, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) }, http.StatusInternalServerError},
		"a page whose own status is none of the kind": {answering.URL, true, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) }, http.StatusTeapot},
	} {
		t.Run(name, func(t *testing.T) {
			provided, err := metricsauth.RefuseUnknownTokens(review(test.server, test.known))(&rest.Config{}, &http.Client{})
			require.NoError(t, err)
			handler, err := provided(logr.Discard(), test.page)
			require.NoError(t, err)
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
			assert.Equal(t, test.want, recorder.Code)
		})
	}
}
