// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/console"
)

// TestALinkFromAnotherSiteKeepsSessionAndTarget: people follow links of chats and mails.
func TestALinkFromAnotherSiteKeepsSessionAndTarget(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	service := newSite(t)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: service.address})
	proxy.FlushInterval = -1
	var scripts atomic.Bool
	scripts.Store(true)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !scripts.Load() && r.URL.Path == console.Base+"/assets/console.js" {
			http.NotFound(w, r)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.CloseClientConnections)
	reached := *service
	reached.address = strings.TrimPrefix(front.URL, "http://")
	s := &reached
	admin := s.token("root", "admins")
	target := "http://" + s.address + "/console/machines?infra_env=" + s.makeInfraEnv(admin, "rack-l") + "&state=free"
	chat := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<a id="link" href="%s">look</a>`, strings.ReplaceAll(target, "&", "&amp;"))
	}))
	t.Cleanup(chat.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(chat.URL, "http://"), ":")
	other := "http://localhost:" + port // another site than 127.0.0.1

	b := s.tab(chromium, t) // a browser without the script is led on by a link
	scripts.Store(false)
	b.visit("/sign-in")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), admin))
	b.press("Sign in")
	b.sees("h1", "Home")
	b.run(chromedp.Navigate(other), chromedp.Click(chromedp.CSS("#link")))
	b.sees("h1", "The page opens")
	b.looksFine("follow")
	b.press("Continue")
	b.sees(".narrowed", "InfraEnv rack-l")
	scripts.Store(true)
	b.run(chromedp.Navigate(other), chromedp.Click(chromedp.CSS("#link")))
	b.sees("h1", "Machines")
	b.sees(".narrowed", "InfraEnv rack-l")
	b.sees(".person", "root")
	assert.Equal(t, target, ask[string](b, `location.href`))

	// A person who is not signed in gets there afterwards.
	b = s.tab(chromium, t)
	b.run(chromedp.Navigate(other), chromedp.Click(chromedp.CSS("#link")))
	b.sees("h1", "Sign in")
	b.looksFine("signin-next")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), "wrong"))
	b.press("Sign in")
	b.sees(".notice.bad", "The API does not accept this token")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), admin))
	b.press("Sign in")
	b.sees(".narrowed", "InfraEnv rack-l")
	assert.Equal(t, target, ask[string](b, `location.href`))
}

// TestAPageWhoseSessionEndedLeadsToTheSignIn, and back to where the person was.
func TestAPageWhoseSessionEndedLeadsToTheSignIn(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	admin := s.token("root", "admins")
	b := s.open(chromium, t, admin)
	b.visit("/machines?state=free")
	b.sees("main", "There are no machines yet")
	s.stop() // the page opens its stream again, and finds the session ended
	b.sees("#connection.lost", "The connection to the service is lost")
	b.run(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, network.ClearBrowserCookies, cdp.Empty{})
		return err
	}))
	s.start()
	b.sees("h1", "Sign in")
	b.run(chromedp.SendKeys(chromedp.CSS("#token"), admin))
	b.press("Sign in")
	b.sees("h1", "Machines")
	assert.Equal(t, "http://"+s.address+"/console/machines?state=free", ask[string](b, `location.href`))
}

// TestAPageGoesOnSoonAfterAProxyAnswered in place of the service, however often it did.
func TestAPageGoesOnSoonAfterAProxyAnswered(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	service := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.address})
	service.FlushInterval = -1
	const most = 8 // the extension alone would have waited for two minutes then
	var away atomic.Bool
	var answered atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == console.Base+"/stream" && away.Load() && answered.Add(1) <= most {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		service.ServeHTTP(w, r)
	}))
	t.Cleanup(front.CloseClientConnections)
	reached := *s
	reached.address = strings.TrimPrefix(front.URL, "http://")
	admin := s.token("root", "admins")
	env := s.makeInfraEnv(admin, "rack-p")
	b := reached.open(chromium, t, admin)
	b.visit("/infra-envs/" + env)
	b.sees("#live", "No machine has registered yet")
	ask[any](b, `window.loaded = "once"`)
	away.Store(true)
	front.CloseClientConnections()
	b.sees("#connection.lost", "The connection to the service is lost")
	s.report(s.imageToken(admin, env), env, uuid.NewString(), map[string]any{"hostname": "after", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	b.sees("#live", "after")
	b.sees("#connection.back", "The connection is back")
	assert.Equal(t, "once", ask[string](b, `window.loaded`), "the page was not loaded again")
	assert.Greater(t, answered.Load(), int32(most))
}

// stream is one that a test writes, in place of the service's. The data of an event is the name of the change.
type stream struct {
	mu      sync.Mutex
	readers []chan string
}

// ServeHTTP tells of a change at the start, as the service does.
func (s *stream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	changes := make(chan string, 8)
	changes <- "start"
	s.mu.Lock()
	s.readers = append(s.readers, changes)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	for control := http.NewResponseController(w); control.Flush() == nil; {
		select {
		case name := <-changes:
			_, _ = io.WriteString(w, "event: changed\ndata: "+name+"\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

func (s *stream) change(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, reader := range s.readers {
		reader <- name
	}
}

// TestAChangeDuringAnAnswerIsShown although the live part that the stream tells of it is replaced by the answer, which was made before the change.
func TestAChangeDuringAnAnswerIsShown(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newSite(t)
	service := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.address})
	changes, made, let := &stream{}, make(chan bool), make(chan bool)
	admin := s.token("root", "admins")
	env := s.makeInfraEnv(admin, "rack-d")
	var asked atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == console.Base+"/stream":
			changes.ServeHTTP(w, r)
		case r.URL.Path == console.Base+"/infra-envs/"+env && r.Header.Get("HX-Request") != "": // another page that is being left may ask, too
			answer := httptest.NewRecorder()
			service.ServeHTTP(answer, r)
			switch asked.Add(1) {
			case 1: // at the start of the stream
				made <- true
			case 2:
				made <- true
				<-let
			}
			_, _ = w.Write(answer.Body.Bytes())
		default:
			service.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.CloseClientConnections)
	reached := *s
	reached.address = strings.TrimPrefix(front.URL, "http://")
	report := func(name string) {
		s.report(s.imageToken(admin, env), env, uuid.NewString(), map[string]any{"hostname": name, "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	}
	b := reached.open(chromium, t, admin)
	b.visit("/infra-envs/" + env)
	<-made
	report("before")
	changes.change("before")
	<-made
	ask[any](b, `document.addEventListener("sse:changed", function (event) { window.seen = event.detail.data; }), null`)
	report("meanwhile")
	changes.change("meanwhile")
	b.until(`window.seen === "meanwhile"`)
	close(let)
	b.sees("#live", "meanwhile")
}
