// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/console"
)

// behind is the site as browsers reach it by a proxy, which asks a test first about each request: what it answers is not passed on.
func (s *site) behind(t *testing.T, first func(w http.ResponseWriter, r *http.Request) (answered bool)) (*site, *httptest.Server) {
	t.Helper()
	service := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.address})
	service.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first(w, r) {
			service.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.CloseClientConnections)
	reached := *s
	reached.address = strings.TrimPrefix(front.URL, "http://")
	return &reached, front
}

// TestAPageThatCouldNotBeReadAgainSaysSo, and is read later: the change that it was told of may be the last one.
func TestAPageThatCouldNotBeReadAgainSaysSo(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	env := s.makeInfraEnv(admin, "rack-r")
	var away, refused atomic.Bool
	reached, _ := s.behind(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("HX-Request") == "" || !away.Load() {
			return false
		}
		refused.Store(true)
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	b := reached.open(chromium, t, admin)
	b.visit("/infra-envs/" + env)
	b.sees("#live", "No machine has registered yet")
	away.Store(true)
	s.report(s.imageToken(admin, env), env, uuid.NewString(), map[string]any{"hostname": "after", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	b.sees("#connection.lost", "The connection to the service is lost")
	assert.True(t, refused.Load())
	away.Store(false)
	b.sees("#live", "after")
	b.sees("#connection.back", "The connection is back")
}

// TestAPageOfWhatIsGoneSaysSo: it showed the machine for as long as it was open.
func TestAPageOfWhatIsGoneSaysSo(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	env, host := s.makeInfraEnv(admin, "rack-g"), uuid.NewString()
	s.report(s.imageToken(admin, env), env, host, map[string]any{"hostname": "short-lived", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	b := s.open(chromium, t, admin)
	b.visit("/machines/" + env + "/" + host)
	b.sees("h1", "short-lived")
	s.call("Authorization", "Bearer "+admin, "DELETE", "/infra-envs/"+env+"/hosts/"+host, nil)
	b.sees("h1", "That did not work")
	b.sees(".notice.bad", "not found")
}

// silent is a stream that says that it is alive once, and never again: nothing tells the browser that the connection behind it was cut off.
type silent struct{ opened atomic.Int32 }

// ServeHTTP implements http.Handler.
func (s *silent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.opened.Add(1)
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "event: changed\ndata:\n\nevent: alive\ndata:\n\n")
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestAStreamThatIsSilentIsOpenedAgain: a browser waits for ever for what a firewall forgot.
func TestAStreamThatIsSilentIsOpenedAgain(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	var cut silent
	var mended atomic.Bool
	reached, _ := s.behind(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != console.Base+"/stream" || mended.Load() {
			return false
		}
		cut.ServeHTTP(w, r)
		return true
	})
	b := reached.open(chromium, t, admin)
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error { // a second is 20 ms
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
			Source: `(function () { var wait = window.setTimeout; window.setTimeout = function (call, time) { return wait(call, time / 50); }; })()`,
		})
		return err
	}))
	b.visit("/machines")
	b.sees("#connection.lost", "The connection to the service is lost")
	mended.Store(true)
	b.sees("#connection.back", "The connection is back")
	assert.Greater(t, cut.opened.Load(), int32(1))
}

// TestPagesAreToldThatTheStreamIsAlive: comments of the API are not shown to pages.
func TestPagesAreToldThatTheStreamIsAlive(t *testing.T) {
	p := signIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/changes/stream") {
			w.Header().Set("Content-Type", "text/event-stream")
			for _, text := range []string{"event: changed\ndata:\n\n", ": nothing", " new\n\n"} {
				_, _ = io.WriteString(w, text)
			}
			return
		}
		newSlowAPI(0).ServeHTTP(w, r)
	}), nil)
	_, stream := p.read(p.Get(p.base + "/stream"))
	alive := "event: alive\ndata:\n\n"
	assert.Equal(t, alive+"event: changed\ndata:\n\n"+alive+": nothing new\n\n"+alive, stream)
}

// signOut takes the cookies of the browser away, and cuts its connections, so that pages find out.
func (b *tab) signOut(front *httptest.Server) {
	b.Helper()
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{})
		return err
	}))
	front.CloseClientConnections()
}

// TestWhatWasWrittenOutlivesTheSession: a form takes long to fill in.
func TestWhatWasWrittenOutlivesTheSession(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	reached, front := s.behind(t, func(http.ResponseWriter, *http.Request) bool { return false })
	b := reached.open(chromium, t, admin)
	b.visit("/infra-envs/new")
	write := func() {
		b.run(chromedp.SendKeys(chromedp.CSS("#name"), "rack-f"), chromedp.SendKeys(chromedp.CSS("#pull_secret"), `{"auths":{}}`))
		b.set("#no_proxy", "10.0.0.0/8")
	}
	write()
	b.signOut(front)
	b.sees("#connection.ended", "What you wrote is still here")
	b.looksFine("form-ended")
	assert.Equal(t, "rack-f", ask[string](b, `document.querySelector("#name").value`))

	b.press("Create") // in spite of that
	b.sees(".notice.bad", "Your session has ended, and nothing was made")
	b.looksFine("form-signed-out")
	ask[any](b, `fetch("/console/sign-in", { method: "POST", body: new URLSearchParams({ token: `+quoted(admin)+` }) }).then(() => null)`) // as another tab does
	b.press("Create")
	b.sees(".notice.bad", "You have signed in since this form was opened")
	assert.True(t, ask[bool](b, `document.querySelector("#more").open`), "what was written there is seen")
	assert.NotContains(t, string(s.call("Authorization", "Bearer "+admin, "GET", "/infra-envs", nil)), "rack-f")
	b.press("Create")
	b.sees("h1", "rack-f")
	assert.Contains(t, string(s.call("Authorization", "Bearer "+admin, "GET", "/infra-envs/"+b.id(), nil)), "10.0.0.0/8")

	b.visit("/infra-envs/new") // nothing was written
	b.signOut(front)
	b.sees("h1", "Sign in")
}

// TestAFormIsSentOnce, however often a person clicks before the answer comes.
func TestAFormIsSentOnce(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	var sent atomic.Int32
	again := make(chan bool, 8)
	reached, _ := s.behind(t, func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == console.Base+"/infra-envs" {
			if sent.Add(1) > 1 {
				again <- true
			}
			select { // the answer takes longer than the second click
			case <-again:
			case <-time.After(2 * time.Second):
			}
		}
		return false
	})
	b := reached.open(chromium, t, admin)
	b.visit("/infra-envs/new")
	b.run(chromedp.SendKeys(chromedp.CSS("#name"), "once"), chromedp.SendKeys(chromedp.CSS("#pull_secret"), `{"auths":{}}`))
	ask[any](b, `(function (button) { button.click(); setTimeout(function () { button.click(); }, 300); })(document.querySelector("form.fields button.primary")), null`)
	b.sees("h1", "once")
	assert.Equal(t, 1, strings.Count(string(s.call("Authorization", "Bearer "+admin, "GET", "/infra-envs", nil)), `"name":"once"`))
	assert.EqualValues(t, 1, sent.Load())
}
