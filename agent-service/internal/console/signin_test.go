// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/console/oidc"
	"github.com/muster-io/muster/agent-service/internal/console/session"
	"github.com/muster-io/muster/agent-service/internal/console/words"
)

// signInAt is a console whose people sign in at an issuer, before an API that accepts the token "good".
func signInAt(t *testing.T, issuer string) http.Handler {
	t.Helper()
	api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte("[]"))
	})
	c, err := New(Options{API: api, Key: []byte("key"), Log: zap.NewNop(), SignIn: &oidc.Client{
		Issuer: issuer, ID: "muster", Redirect: "http://console" + Callback, Verify: func(context.Context, string) error { return session.ErrNone },
	}})
	require.NoError(t, err)
	return c
}

func TestAnIssuerThatIsAwayOrHangsLeavesTokens(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(hangs.Close)
	t.Cleanup(func() { close(ended) })
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	wrong := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"issuer":"https://another","authorization_endpoint":"https://another/a","token_endpoint":"https://another/t"}`))
	}))
	t.Cleanup(wrong.Close)
	for name, issuer := range map[string]string{"away": gone.URL, "hangs": hangs.URL, "another": wrong.URL} {
		t.Run(name, func(t *testing.T) {
			c := signInAt(t, issuer)
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, flowPath, http.NoBody))
			assert.Equal(t, http.StatusBadGateway, answer.Code)
			assert.Contains(t, answer.Body.String(), words.Of("signin.issuer.away"))
			form := httptest.NewRequest(http.MethodPost, Base+"/sign-in", strings.NewReader(url.Values{"token": {"good"}}.Encode()))
			form.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			answer = httptest.NewRecorder()
			c.ServeHTTP(answer, form)
			assert.Equal(t, http.StatusSeeOther, answer.Code)
		})
	}
}

func TestAnEndedOrDeniedFlowIsASentence(t *testing.T) {
	c, v := signInAt(t, "http://issuer"), vaultOf(t)
	for name, given := range map[string]struct {
		label, query, want string
		until              time.Duration
		status             int
	}{
		"it took too long":         {flowCookie, "state=s&code=c", words.Of("signin.issuer.expired"), -time.Second, http.StatusBadRequest},
		"a session is no flow":     {session.CookieName, "state=s&code=c", words.Of("signin.issuer.expired"), time.Minute, http.StatusBadRequest},
		"without a state":          {flowCookie, "code=c", words.Of("signin.issuer.expired"), time.Minute, http.StatusBadRequest},
		"of another browser":       {flowCookie, "state=another&code=c", words.Of("signin.issuer.expired"), time.Minute, http.StatusBadRequest},
		"the issuer denied":        {flowCookie, "state=s&error=access_denied", words.Of("signin.issuer.denied", "access_denied"), time.Minute, http.StatusUnauthorized},
		"an error that is no code": {flowCookie, "state=s&error=%3Cb%3E", words.Of("signin.issuer.denied", "unknown error"), time.Minute, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			sealed, err := v.Seal(given.label, oidc.Flow{State: "s", Nonce: "n", Verifier: "v", Until: time.Now().Add(given.until)})
			require.NoError(t, err)
			r := httptest.NewRequest(http.MethodGet, Callback+"?"+given.query, http.NoBody)
			r.AddCookie(&http.Cookie{Name: flowName("s"), Value: sealed})
			answer := httptest.NewRecorder()
			c.ServeHTTP(answer, r)
			assert.Equal(t, given.status, answer.Code)
			assert.Contains(t, answer.Body.String(), given.want)
			require.Len(t, answer.Result().Cookies(), 1)
			assert.Negative(t, answer.Result().Cookies()[0].MaxAge, "the flow is over")
		})
	}
}

// TestAFlowUnderTheNameOfAnotherIsRefused: the cookie says itself which flow it is of.
func TestAFlowUnderTheNameOfAnotherIsRefused(t *testing.T) {
	sealed, err := vaultOf(t).Seal(flowCookie, oidc.Flow{State: "s", Nonce: "n", Verifier: "v", Until: time.Now().Add(time.Minute)})
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, Callback+"?state=another&code=c", http.NoBody)
	r.AddCookie(&http.Cookie{Name: flowName("another"), Value: sealed})
	answer := httptest.NewRecorder()
	signInAt(t, "http://issuer").ServeHTTP(answer, r)
	assert.Equal(t, http.StatusBadRequest, answer.Code)
	assert.Contains(t, answer.Body.String(), words.Of("signin.issuer.state"))
}

// TestFlowsThatAreNotFinishedAreForgotten, the oldest first: a proxy refuses requests with many cookies.
func TestFlowsThatAreNotFinishedAreForgotten(t *testing.T) {
	issuer := httptest.NewUnstartedServer(nil)
	address := "http://" + issuer.Listener.Addr().String()
	issuer.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"issuer":"` + address + `","authorization_endpoint":"` + address + `/a","token_endpoint":"` + address + `/t"}`))
	})
	issuer.Start()
	t.Cleanup(issuer.Close)
	c := signInAt(t, address)
	var kept []*http.Cookie
	for range 50 {
		r := httptest.NewRequest(http.MethodGet, flowPath, http.NoBody)
		for _, cookie := range kept {
			r.AddCookie(cookie)
		}
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, r)
		require.Equal(t, http.StatusSeeOther, answer.Code)
		for _, cookie := range answer.Result().Cookies() {
			if cookie.MaxAge < 0 {
				require.Equal(t, kept[0].Name, cookie.Name)
				kept = kept[1:]
				continue
			}
			kept = append(kept, cookie)
		}
		assert.Less(t, len(r.Header.Get("Cookie")), 4096)
	}
	assert.Greater(t, len(kept), 2)
}
