// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"

	"github.com/muster-io/muster/agent-service/internal/httpapi"
	"github.com/muster-io/muster/agent-service/internal/token"
)

// TestPagesOfOtherSitesChangeNothing: where no token is asked for, any page that a browser shows could make requests of a service that the browser reaches.
func TestPagesOfOtherSitesChangeNothing(t *testing.T) {
	w := newTestEnv(t)
	handler, err := httpapi.New(httpapi.Options{
		Service: w.service, Authority: w.authority, People: token.Anonymous{}, BaseURL: "http://muster.example.com:8090", Release: "test", Log: zaptest.NewLogger(t),
	})
	require.NoError(t, err)
	send := func(method string, headers caller) *httptest.ResponseRecorder {
		body := strings.NewReader(`{"name":"e","pull_secret":"{\"auths\":{}}"}`) // without a Content-Type, as a page can send it
		r := httptest.NewRequestWithContext(t.Context(), method, "http://192.0.2.1:8090/api/assisted-install/v2/infra-envs", body)
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, r)
		return answer
	}
	for name, c := range map[string]struct {
		headers caller
		want    int
	}{
		"a program":                                  {nil, http.StatusCreated},
		"a page of another site":                     {caller{"Origin": "https://evil.example.com", "Sec-Fetch-Site": "cross-site"}, http.StatusForbidden},
		"the same without TLS":                       {caller{"Origin": "http://evil.example.com"}, http.StatusForbidden},
		"a page without an origin":                   {caller{"Origin": "null"}, http.StatusForbidden},
		"an address that only contains ours":         {caller{"Origin": "http://muster.example.com.evil.example.com"}, http.StatusForbidden},
		"a user interface on the same host":          {caller{"Origin": "http://192.0.2.1:8080"}, http.StatusCreated},
		"a user interface at the URL of the service": {caller{"Origin": "http://Muster.example.com:8080"}, http.StatusCreated},
		"a page of its own":                          {caller{"Origin": "https://proxy.example.com", "Sec-Fetch-Site": "same-origin"}, http.StatusCreated},
	} {
		answer := send(http.MethodPost, c.headers)
		assert.Equal(t, c.want, answer.Code, "%s: %s", name, answer.Body)
	}
	assert.Equal(t, http.StatusOK, send(http.MethodGet, caller{"Origin": "https://evil.example.com"}).Code, "the page cannot read the answer")
	admin := w.person("root", "admins")
	admin["Origin"], admin["Sec-Fetch-Site"] = "https://ui.example.com", "cross-site"
	assert.Equal(t, http.StatusCreated, w.call(admin, "POST", "/infra-envs", map[string]any{"name": "e", "pull_secret": `{"auths":{}}`}).status, "a page that has a token was given it")
}
