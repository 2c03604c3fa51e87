// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheFormOfClustersKeepsTheVersion that a person chose, and begins with the one that the service says is the default.
func TestTheFormOfClustersKeepsTheVersion(t *testing.T) {
	p := signIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/openshift-versions"):
			_, _ = io.WriteString(w, `{"1.30":{"display_name":"1.30"},"1.31":{"display_name":"1.31"},"1.32":{"display_name":"1.32","default":true}}`)
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"reason":"machine_networks.0.cidr: no network"}`)
		default:
			newSlowAPI(0).ServeHTTP(w, r)
		}
	}), nil)
	_, page := p.read(p.Get(p.base + "/clusters/new"))
	assert.Contains(t, page, "<option selected>1.32</option>")
	assert.Equal(t, 3, strings.Count(page, "1.3"), page)
	_, page = p.read(p.PostForm(p.base+"/clusters", url.Values{"csrf": {p.csrf}, "name": {"blue"}, "version": {"1.31"}, "machine_network": {"10.0.0.0/99"}}))
	assert.Contains(t, page, "machine_networks.0.cidr: no network")
	assert.Contains(t, page, "<option selected>1.31</option>")
	assert.NotContains(t, page, "<option selected>1.32</option>")
}

// TestAFormOfAnEndedSessionIsGivenBack with all that was written, and can be sent once the person has signed in.
func TestAFormOfAnEndedSessionIsGivenBack(t *testing.T) {
	done := 0
	p := signIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			done++
		}
		newSlowAPI(0).ServeHTTP(w, r)
	}), nil)
	signedIn := p.Jar
	for path, field := range map[string]string{"/infra-envs": "no_proxy", "/clusters": "machine_network"} {
		form := url.Values{"csrf": {p.csrf}, "name": {"mine"}, "pull_secret": {"my secret"}, field: {"10.0.0.0/<8>"}, "version": {"1.31"}}
		p.Jar = nil
		status, page := p.read(p.PostForm(p.base+path, form))
		assert.Equal(t, http.StatusForbidden, status)
		for _, written := range []string{`value="mine"`, ">my secret</textarea>", `value="10.0.0.0/&lt;8&gt;"`, "Your session has ended", `href="/console/sign-in?next=` + url.QueryEscape("/console"+path) + `" target="_blank"`} {
			assert.Contains(t, page, written)
		}
		p.Jar = signedIn
		form.Set("csrf", "older")
		status, page = p.read(p.PostForm(p.base+path, form))
		assert.Equal(t, http.StatusForbidden, status)
		for _, written := range []string{`value="mine"`, ">my secret</textarea>", "You have signed in since", p.csrf} {
			assert.Contains(t, page, written)
		}
	}
	assert.Zero(t, done, "nothing was made")
	p.Jar = nil
	p.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := p.PostForm(p.base+"/machines/plan", url.Values{"action": {"bind"}})
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, "/console/sign-in", response.Header.Get("Location"), "any other form leads to the sign-in")
}

// TestTheAddressOfAnActionLeadsToItsPage, where it is opened from the history, from a bookmark, or by a colleague who was sent it.
func TestTheAddressOfAnActionLeadsToItsPage(t *testing.T) {
	a := newSlowAPI(0)
	p := signIn(t, a, nil)
	env := "/infra-envs/" + a.env.String()
	for from, to := range map[string]string{"/machines/plan": "/machines", "/machines/apply": "/machines", env + "/wipe": env, env + "/ipxe": env, env + "/rotate": env} {
		response, err := p.Get(p.base + from)
		status, page := p.read(response, err)
		assert.Equal(t, http.StatusOK, status, page)
		assert.Equal(t, "/console"+to, response.Request.URL.Path, from)
	}
	status, _ := p.read(p.Get(p.base + "/infra-envs/x/wipe"))
	assert.Equal(t, http.StatusNotFound, status)
}

// TestAFormOfATokenThatEndedIsGivenBack: the session of the browser outlives its token.
func TestAFormOfATokenThatEndedIsGivenBack(t *testing.T) {
	var ended atomic.Bool
	p := signIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ended.Load() {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"reason":"the token has expired"}`)
			return
		}
		newSlowAPI(0).ServeHTTP(w, r)
	}), nil)
	at, err := url.Parse(p.base)
	require.NoError(t, err)
	session := p.Jar.Cookies(at)
	for _, cookie := range session {
		cookie.Path = "/console"
	}
	ended.Store(true)
	for path, field := range map[string]string{"/infra-envs": "no_proxy", "/clusters": "machine_network"} {
		p.Jar.SetCookies(at, session)
		form := url.Values{"csrf": {p.csrf}, "name": {"mine"}, "pull_secret": {"my secret"}, field: {"10.0.0.0/8"}, "version": {"1.31"}}
		status, page := p.read(p.PostForm(p.base+path, form))
		assert.Equal(t, http.StatusForbidden, status)
		for _, written := range []string{`value="mine"`, ">my secret</textarea>", `value="10.0.0.0/8"`, "Your session has ended"} {
			assert.Contains(t, page, written)
		}
		assert.Empty(t, p.Jar.Cookies(at), "the session is over")
	}
}
