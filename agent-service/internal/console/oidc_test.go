// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/oauth2"

	"github.com/muster-io/muster/agent-service/internal/console/oidc"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/apis/programtest"
)

const (
	dexClient, dexSecret    = "muster", "client secret"
	dexEmail, dexPassword   = "jane@example.com", "correct horse"
	startPath, callbackPath = "/console/sign-in/oidc", "/console/sign-in/oidc/callback"
)

// startDex runs dex, which sends people back to the console at a URL, and returns its issuer.
func startDex(t *testing.T, consoleURL string) string {
	t.Helper()
	issuer, _ := startDexFor(t, consoleURL, dexSecret)
	return issuer
}

// startDexFor runs dex for a client with a secret, or for a public one where that is empty.
func startDexFor(t *testing.T, consoleURL, secret string) (issuer string, process *os.Process) {
	t.Helper()
	program := filepath.Join("..", "..", "..", "bin", "dex")
	needtest.File(t, program, "there is no bin/dex here: make dex builds it")
	issuer = "http://127.0.0.1:" + porttest.Free(t)
	command := exec.Command(program, "-issuer="+issuer, "-client="+dexClient, "-secret="+secret, "-redirect="+consoleURL+callbackPath, "-email="+dexEmail, "-password="+dexPassword)
	programtest.Start(t, command)
	require.Eventually(t, func() bool {
		response, err := http.Get(issuer + "/.well-known/openid-configuration")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusOK
	}, patience, tick)
	return issuer, command.Process
}

// newOIDCSite starts the service with dex as issuer, for browsers that reach it at a URL.
func newOIDCSite(t *testing.T, issuer, consoleURL string, flags ...string) *site {
	t.Helper()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte(dexSecret+"\n"), 0o600))
	return newSite(t, append([]string{"--oidc-issuer=" + issuer, "--oidc-key-file=", "--oidc-user-claim=email", "--console-client-id=" + dexClient, "--console-client-secret-file=" + secret, "--console-url=" + consoleURL}, flags...)...)
}

// dexToken gets an id token without a browser, by the password grant.
func dexToken(t *testing.T, issuer string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, issuer+"/token", strings.NewReader(url.Values{"grant_type": {"password"}, "username": {dexEmail}, "password": {dexPassword}, "scope": {"openid email"}}.Encode()))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.SetBasicAuth(url.QueryEscape(dexClient), url.QueryEscape(dexSecret))
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	var issued struct {
		IDToken string `json:"id_token"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&issued))
	require.NotEmpty(t, issued.IDToken, response.Status)
	return issued.IDToken
}

// TestAPersonSignsInAtAnIssuerThroughTwoReplicas: one replica begins the sign-in, and the other one finishes it.
func TestAPersonSignsInAtAnIssuerThroughTwoReplicas(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	front := httptest.NewUnstartedServer(nil)
	address := front.Listener.Addr().String()
	issuer := startDex(t, "http://"+address)
	shared := "--token-key=" + filepath.Join(t.TempDir(), "a.key")
	one, other := newOIDCSite(t, issuer, "http://"+address, shared), newOIDCSite(t, issuer, "http://"+address, shared)
	starts, others := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: one.address}), httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: other.address})
	others.FlushInterval = -1
	front.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == startPath {
			starts.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
	front.Start()
	t.Cleanup(front.CloseClientConnections)
	token := dexToken(t, issuer)
	env := other.makeInfraEnv(token, "rack-one")
	other.report(other.imageToken(token, env), env, uuid.NewString(), map[string]any{"hostname": "node-of-jane", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})

	reached := *other
	reached.address = address
	page := reached.tab(chromium, t)
	page.visit("/machines?search=of-jane")
	page.sees("h1", "Sign in")
	page.looksFine("sign-in-oidc")
	page.press("Sign in with " + strings.TrimPrefix(issuer, "http://"))
	page.run(chromedp.SendKeys(chromedp.CSS("#login"), dexEmail), chromedp.SendKeys(chromedp.CSS("#password"), dexPassword), chromedp.Click(chromedp.CSS("#submit-login")))
	page.sees("h1", "Machines")
	page.sees(".person", dexEmail)
	assert.Equal(t, "http://"+address+"/console/machines?search=of-jane", ask[string](page, `location.href`))
	page.sees("main", "node-of-jane")
}

// visitor is a browser without scripts. Its requests stop before the console's callback.
type visitor struct {
	*testing.T
	client *http.Client
	site   *site
}

func newVisitor(t *testing.T, s *site) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &visitor{t, &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == callbackPath {
			return http.ErrUseLastResponse
		}
		return nil
	}}, s}
}

// gets sends a request, with a form where there is one.
func (v *visitor) gets(address string, form url.Values) (*http.Response, string) {
	v.Helper()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	request, err := http.NewRequestWithContext(v.Context(), method, address, strings.NewReader(form.Encode()))
	require.NoError(v, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := v.client.Do(request)
	require.NoError(v, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	body, err := io.ReadAll(response.Body)
	require.NoError(v, err)
	return response, string(body)
}

// callback signs in at dex and returns where it sends the browser back to.
func (v *visitor) callback() string {
	v.Helper()
	form, _ := v.gets("http://"+v.site.address+startPath, nil)
	back, body := v.gets(form.Request.URL.String(), url.Values{"login": {dexEmail}, "password": {dexPassword}})
	require.Contains(v, back.Header.Get("Location"), callbackPath, "%s: %s", back.Status, body)
	return back.Header.Get("Location")
}

// refused visits a callback that begins no session.
func (v *visitor) refused(callback string, status int, sentence string) {
	v.Helper()
	response, body := v.gets(callback, nil)
	assert.Equal(v, status, response.StatusCode)
	assert.Contains(v, body, sentence)
	assert.Contains(v, body, `name="token"`, "a token can be pasted")
	for _, cookie := range response.Cookies() {
		assert.Negative(v, cookie.MaxAge, "no session begins: %s", cookie.Name)
	}
}

// TestACallbackIsGoodOnceAndInItsBrowser uses answers of dex in ways that attackers would.
func TestACallbackIsGoodOnceAndInItsBrowser(t *testing.T) {
	t.Parallel()
	front := httptest.NewUnstartedServer(nil)
	address := front.Listener.Addr().String()
	issuer := startDex(t, "http://"+address)
	s := newOIDCSite(t, issuer, "http://"+address)
	front.Config.Handler = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.address})
	front.Start()
	t.Cleanup(front.Close)
	s.address = address
	jane := newVisitor(t, s)
	callback := jane.callback()
	newVisitor(t, s).refused(callback, http.StatusBadRequest, "was begun in another browser")
	attacked := newVisitor(t, s)
	own := attacked.callback()
	attacked.refused(callback, http.StatusBadRequest, "was begun in another browser")
	response, body := attacked.gets(own, nil)
	assert.Equal(t, http.StatusOK, response.StatusCode, "another answer does not end it: %s", body)

	at, err := url.Parse(callback)
	require.NoError(t, err)
	flow := jane.client.Jar.Cookies(at)
	require.Len(t, flow, 1)
	response, body = jane.gets(callback, nil)
	require.Equal(t, http.StatusOK, response.StatusCode, body)
	assert.Contains(t, body, `href="/console/"`)
	assert.NotContains(t, body, at.Query().Get("code"))
	for _, cookie := range response.Cookies() {
		assert.True(t, cookie.HttpOnly)
		assert.Equal(t, !strings.HasPrefix(cookie.Name, "muster-console-flow-"), cookie.SameSite == http.SameSiteStrictMode, cookie.Name)
	}
	_, body = jane.gets("http://"+address+"/console/machines", nil)
	assert.Contains(t, body, dexEmail)

	jane.refused(callback, http.StatusBadRequest, "has expired")
	thief := newVisitor(t, s)
	thief.client.Jar.SetCookies(at, []*http.Cookie{{Name: flow[0].Name, Value: flow[0].Value, Path: startPath}})
	thief.refused(callback, http.StatusUnauthorized, "may have been used before")
	for _, entry := range s.logs.All() {
		assert.NotContains(t, fmt.Sprint(entry.Message, entry.ContextMap()), at.Query().Get("code"))
	}
}

// TestAPersonSignsInOnSeveralPagesAtOnce, as after the end of a session that many pages were open with.
func TestAPersonSignsInOnSeveralPagesAtOnce(t *testing.T) {
	t.Parallel()
	s := behindFront(t, func(consoleURL string) string { return startDex(t, consoleURL) })
	jane := newVisitor(t, s)
	first, second, third := jane.callback(), jane.callback(), jane.callback()
	for _, callback := range []string{second, first, third} {
		response, body := jane.gets(callback, nil)
		assert.Equal(t, http.StatusOK, response.StatusCode, body)
	}
	jane.refused(first, http.StatusBadRequest, "has expired")
}

// behindFront starts the service with an issuer behind a URL that the issuer knows.
func behindFront(t *testing.T, start func(consoleURL string) (issuer string), flags ...string) *site {
	t.Helper()
	front := httptest.NewUnstartedServer(nil)
	address := front.Listener.Addr().String()
	s := newOIDCSite(t, start("http://"+address), "http://"+address, flags...)
	front.Config.Handler = httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.address})
	front.Start()
	t.Cleanup(front.Close)
	s.address = address
	return s
}

// TestAPublicClientSignsInWithoutASecret: the verifier of PKCE proves that the console began the sign-in.
func TestAPublicClientSignsInWithoutASecret(t *testing.T) {
	t.Parallel()
	s := behindFront(t, func(consoleURL string) string {
		issuer, _ := startDexFor(t, consoleURL, "")
		return issuer
	}, "--console-client-secret-file=")
	jane := newVisitor(t, s)
	response, body := jane.gets(jane.callback(), nil)
	require.Equal(t, http.StatusOK, response.StatusCode, body)
	_, body = jane.gets("http://"+s.address+"/console/machines", nil)
	assert.Contains(t, body, dexEmail)
}

// TestARotatedClientSecretIsUsed with the next sign-in, and a wrong one is not taken for a code that was used before.
func TestARotatedClientSecretIsUsed(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("of the former client\n"), 0o600))
	s := behindFront(t, func(consoleURL string) string { return startDex(t, consoleURL) }, "--console-client-secret-file="+secret)
	jane := newVisitor(t, s)
	jane.refused(jane.callback(), http.StatusBadGateway, "an administrator has to correct them")
	require.NoError(t, os.WriteFile(secret, []byte(dexSecret+"\n"), 0o600))
	response, body := jane.gets(jane.callback(), nil)
	require.Equal(t, http.StatusOK, response.StatusCode, body)
}

// TestAnIssuerThatHangsIsGivenUp while the console exchanges a code: the page says so, and the next sign-in works once the issuer answers.
func TestAnIssuerThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	var dex *os.Process
	s := behindFront(t, func(consoleURL string) (issuer string) {
		issuer, dex = startDexFor(t, consoleURL, dexSecret)
		return issuer
	})
	jane := newVisitor(t, s)
	jane.client.Timeout = patience // far beyond what the console waits
	callback := jane.callback()
	require.NoError(t, dex.Signal(syscall.SIGSTOP)) // its port takes connections, and nothing answers
	jane.refused(callback, http.StatusBadGateway, "The issuer cannot be reached")
	require.NoError(t, dex.Signal(syscall.SIGCONT))
	response, body := jane.gets(jane.callback(), nil)
	assert.Equal(t, http.StatusOK, response.StatusCode, body)
}

// TestAnIDTokenIsForItsFlow: dex issues one for the nonce that it was sent, and none for another verifier.
func TestAnIDTokenIsForItsFlow(t *testing.T) {
	t.Parallel()
	const consoleURL = "http://console.example.com"
	issuer, _ := startDexFor(t, consoleURL, "")
	client := &oidc.Client{Issuer: issuer, ID: dexClient, Redirect: consoleURL + callbackPath, Verify: func(context.Context, string) error { return nil }}
	for name, c := range map[string]struct {
		change func(*oidc.Flow)
		reason string
	}{
		"its own flow":                 {func(*oidc.Flow) {}, ""},
		"a flow with another nonce":    {func(f *oidc.Flow) { f.Nonce = "another" }, "untrusted"},
		"a flow without a nonce":       {func(f *oidc.Flow) { f.Nonce = "" }, "untrusted"},
		"a flow with another verifier": {func(f *oidc.Flow) { f.Verifier = oauth2.GenerateVerifier() }, "code"},
		"a flow that has expired":      {func(f *oidc.Flow) { f.Until = time.Time{} }, "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			flow, next, err := client.Begin(t.Context(), time.Now())
			require.NoError(t, err)
			jane := newVisitor(t, nil)
			form, _ := jane.gets(next, nil)
			back, _ := jane.gets(form.Request.URL.String(), url.Values{"login": {dexEmail}, "password": {dexPassword}})
			at, err := url.Parse(back.Header.Get("Location"))
			require.NoError(t, err)
			c.change(&flow)
			idToken, err := client.Finish(t.Context(), flow, at.Query(), time.Now())
			if c.reason == "" {
				require.NoError(t, err)
				assert.NotEmpty(t, idToken)
				return
			}
			problem, is := errors.AsType[*oidc.Problem](err)
			require.True(t, is, "%v", err)
			assert.Equal(t, c.reason, problem.Reason)
			assert.Empty(t, idToken)
		})
	}
}
