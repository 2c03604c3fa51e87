// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/console/location"
)

func TestASignInLeadsToPagesOfTheConsoleAlone(t *testing.T) {
	for name, one := range map[string]struct{ given, want string }{
		"a list with filters":           {"/console/machines?cluster=a&state=free", "/console/machines?cluster=a&state=free"},
		"a page":                        {"/console/machines/a/b", "/console/machines/a/b"},
		"home":                          {"/console/", "/console/"},
		"a fragment is left out":        {"/console/machines#x", "/console/machines"},
		"nothing":                       {"", "/console/"},
		"another path":                  {"/api/assisted-install/v2/infra-envs", "/console/"},
		"a path that begins alike":      {"/console.evil.example.com", "/console/"},
		"another site":                  {"https://evil.example.com/console/", "/console/"},
		"another site without a scheme": {"//evil.example.com/console/", "/console/"},
		"backslashes":                   {`/\evil.example.com/console/`, "/console/"},
		"backslashes further on":        {`/console/\evil.example.com`, "/console/"},
		"backslashes, encoded":          {"/console/%5c%5cevil.example.com", "/console/"},
		"slashes, encoded":              {"/%2Fevil.example.com", "/console/"},
		"two slashes":                   {"/console//evil.example.com", "/console/"},
		"two slashes, encoded":          {"/console/%2Fevil.example.com", "/console/"},
		"up and out":                    {"/console/..//evil.example.com", "/console/"},
		"up and out, encoded":           {"/console/%2e%2e//evil.example.com", "/console/"},
		"a scheme that runs":            {"javascript:alert(1)//console/", "/console/"},
		"a line break":                  {"/console/\r\nSet-Cookie: a=b", "/console/"},
		"a tab":                         {"/console/\t/evil.example.com", "/console/"},
		"the sign-in itself":            {"/console/sign-in?next=%2Fconsole%2Fsign-in", "/console/"},
		"a start of a flow":             {"/console/sign-in/oidc", "/console/"},
		"too long":                      {"/console/machines?search=" + strings.Repeat("a", 2048), "/console/"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, one.want, location.Local(one.given))
			c := served(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("[]")) })
			answer := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodGet, signInURL, http.NoBody)
			r.URL.RawQuery = url.Values{location.NextField: {one.given}}.Encode()
			c.ServeHTTP(answer, r)
			require.Equal(t, http.StatusSeeOther, answer.Code, "no token is asked for")
			assert.Equal(t, one.want, answer.Header().Get("Location"))
		})
	}
}

// TestALinkOfAnotherSiteIsFollowedOnce: only a navigation is, as the browser sends the session along with the next one.
func TestALinkOfAnotherSiteIsFollowedOnce(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	ask := func(site, destination string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, Base+"/machines?state=free&search=%22%3E%3Cb%3E", http.NoBody)
		r.Header.Set("Sec-Fetch-Site", site)
		r.Header.Set("Sec-Fetch-Dest", destination)
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		return answer
	}
	answer := ask("cross-site", "document")
	require.Equal(t, http.StatusOK, answer.Code)
	assert.Contains(t, answer.Body.String(), `data-follow href="/console/machines?state=free&amp;search=%22%3E%3Cb%3E"`)
	for site, destination := range map[string]string{"same-origin": "document", "none": "document", "cross-site": "iframe", "": ""} {
		answer = ask(site, destination)
		require.Equal(t, http.StatusSeeOther, answer.Code, site)
		assert.Equal(t, "/console/sign-in?next=%2Fconsole%2Fmachines%3Fstate%3Dfree%26search%3D%2522%253E%253Cb%253E", answer.Header().Get("Location"))
	}
}

// TestASessionThatEndsInAPartOfAPageLeadsBackToThePage: what a field offers is none.
func TestASessionThatEndsInAPartOfAPageLeadsBackToThePage(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	for current, want := range map[string]string{
		"http://muster.example.com/console/machines?state=free#x": "/console/machines?state=free",
		"http://muster.example.com/elsewhere":                     "/console/clusters/options?cluster=a",
		"//":                                                      "/console/clusters/options?cluster=a",
		"":                                                        "/console/clusters/options?cluster=a",
	} {
		r := httptest.NewRequest(http.MethodGet, Base+"/clusters/options?cluster=a", http.NoBody)
		r.Header.Set("HX-Request", "true")
		r.Header.Set("HX-Current-URL", current)
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		assert.Equal(t, location.SignInFor(want), answer.Header().Get("HX-Redirect"), current)
	}
}

func TestAnEndedSessionEndsTheStream(t *testing.T) {
	c := served(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	ended := httptest.NewRecorder()
	require.NoError(t, vaultOf(t).Begin(ended, "ended", false))
	for name, r := range map[string]*http.Request{"no session": httptest.NewRequest(http.MethodGet, streamURL, http.NoBody), "a token that ended": jar(ended)} {
		r.URL.Path = streamURL
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		assert.Equal(t, http.StatusOK, answer.Code, name)
		assert.Equal(t, "text/event-stream", answer.Header().Get("Content-Type"), name)
		assert.Equal(t, "event: ended\ndata:\n\n", answer.Body.String(), name)
	}
}
