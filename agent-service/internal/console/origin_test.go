// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/console"
)

// sends posts the form for signing in, as a browser does that shows the console at an origin, by a proxy that passes another host on.
func sends(t *testing.T, o console.Options, origin string, headers map[string]string) (status int, page string) {
	t.Helper()
	o.API, o.Key, o.Log = newUnapproved(0), []byte("key"), zap.NewNop()
	c, err := console.New(o)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent-service:8090/console/sign-in", strings.NewReader(url.Values{"token": {"secret"}}.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", origin)
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	raw, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(raw)
}

// TestFormsComeFromTheAddressOfTheConsole: a proxy may pass its own name for the service on as the host, as nginx does; browsers send no Sec-Fetch headers without TLS.
func TestFormsComeFromTheAddressOfTheConsole(t *testing.T) {
	o := console.Options{URL: "http://muster.example.com"}
	status, page := sends(t, o, "http://muster.example.com", nil)
	assert.Equal(t, http.StatusSeeOther, status, page)
	for _, other := range []string{"http://evil.example.com", "https://muster.example.com", "http://muster.example.com:8080"} {
		status, _ = sends(t, o, other, nil)
		assert.Equal(t, http.StatusForbidden, status, other)
	}
	status, _ = sends(t, o, "http://muster.example.com", map[string]string{"Sec-Fetch-Site": "cross-site"})
	assert.NotEqual(t, http.StatusInternalServerError, status)
	status, page = sends(t, console.Options{URL: "https://muster.example.com/behind/a/path"}, "https://muster.example.com", nil)
	assert.Equal(t, http.StatusSeeOther, status, page)
}

// TestASessionThatTheBrowserWouldNotKeepIsNotBegun: its cookie is Secure, so that the page for signing in would come again, without a word.
func TestASessionThatTheBrowserWouldNotKeepIsNotBegun(t *testing.T) {
	o := console.Options{URL: "https://muster.example.com", HTTPS: true}
	status, page := sends(t, o, "http://agent-service:8090", nil)
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, page, "https://muster.example.com/console")
	for _, fine := range []string{"https://muster.example.com", "http://localhost:8090", "http://127.0.0.1:8090"} {
		status, page = sends(t, o, fine, map[string]string{"Sec-Fetch-Site": "same-origin"})
		assert.Equal(t, http.StatusSeeOther, status, page)
	}
}
