// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console"
)

// slowAPI is an API whose machines are bound when a test says so. The console before it carries out one machine with each request.
type slowAPI struct {
	env, cluster uuid.UUID
	hosts        []uuid.UUID
	// binds are the answers to requests that bind a machine: a reason, or nothing where it is bound.
	binds chan string
	// changed is an event of the stream of changes.
	changed chan struct{}

	mutex sync.Mutex
	bound map[string]string // the cluster of a host
	state map[string]string
	asked int
}

func newSlowAPI(hosts int) *slowAPI {
	a := &slowAPI{env: uuid.New(), cluster: uuid.New(), binds: make(chan string), changed: make(chan struct{}), bound: map[string]string{}, state: map[string]string{}}
	for range hosts {
		a.hosts = append(a.hosts, uuid.New())
	}
	return a
}

// host is the JSON of a host.
func (a *slowAPI) host(id string) string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	state, cluster := "known-unbound", ""
	if a.bound[id] != "" {
		state, cluster = "binding", fmt.Sprintf(`"cluster_id":%q,`, a.bound[id])
	}
	if a.state[id] != "" {
		state = a.state[id]
	}
	return fmt.Sprintf(`{"id":%q,"infra_env_id":%q,%s"status":%q,"requested_hostname":"host-%s"}`, id, a.env, cluster, state, id[:4])
}

// ServeHTTP implements http.Handler.
func (a *slowAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, api.Base)
	hosts := "/infra-envs/" + a.env.String() + "/hosts/"
	switch {
	case path == "/changes/stream":
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-a.changed: // every page is notified, once
			_, _ = io.WriteString(w, "event: changed\ndata:\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		<-r.Context().Done()
	case path == "/identity":
		_, _ = io.WriteString(w, `{"user_name":"root"}`)
	case path == "/clusters/"+a.cluster.String():
		_, _ = fmt.Fprintf(w, `{"id":%q,"name":"blue"}`, a.cluster)
	case strings.HasSuffix(path, "/actions/bind"):
		id := strings.TrimSuffix(strings.TrimPrefix(path, hosts), "/actions/bind")
		a.mutex.Lock()
		a.asked++
		a.mutex.Unlock()
		reason := <-a.binds
		if reason != "" {
			w.WriteHeader(http.StatusConflict)
			_, _ = fmt.Fprintf(w, `{"reason":%q}`, reason)
			return
		}
		a.mutex.Lock()
		a.bound[id] = a.cluster.String()
		a.mutex.Unlock()
		_, _ = io.WriteString(w, a.host(id))
	case path == "/infra-envs/"+a.env.String():
		_, _ = fmt.Fprintf(w, `{"id":%q,"name":"rack"}`, a.env)
	case strings.HasPrefix(path, hosts):
		_, _ = io.WriteString(w, a.host(strings.TrimPrefix(path, hosts)))
	case path == "/hosts/counts":
		_, _ = io.WriteString(w, `{"states":[],"total":0}`)
	default:
		_, _ = io.WriteString(w, `[]`)
	}
}

// site is a console before the API, whose clock goes on with each look at it.
func (a *slowAPI) site(t *testing.T) *site {
	t.Helper()
	var mutex sync.Mutex
	now := time.Now()
	c, err := console.New(console.Options{API: a, Key: []byte("key"), Log: zap.NewNop(), Now: func() time.Time {
		mutex.Lock()
		defer mutex.Unlock()
		now = now.Add(time.Second)
		return now
	}})
	require.NoError(t, err)
	server := httptest.NewServer(c)
	t.Cleanup(server.CloseClientConnections)
	return &site{t: t, address: strings.TrimPrefix(server.URL, "http://")}
}

// order is the form that binds all hosts.
func (a *slowAPI) order() url.Values {
	form := url.Values{"action": {"bind"}, "cluster": {a.cluster.String()}}
	for _, id := range a.hosts {
		form.Add("host", a.env.String()+"/"+id.String())
	}
	return form
}

// begin sends the order from a page of the browser.
func (a *slowAPI) begin(b *tab) {
	inputs := ""
	for name, values := range a.order() {
		for _, value := range values {
			inputs += fmt.Sprintf("<input name=%q value=%q>", name, value)
		}
	}
	ask[any](b, fmt.Sprintf(`(() => { const f = document.createElement("form"); f.method = "post"; f.action = "/console/machines/apply"; f.innerHTML = %q; f.append(document.querySelector("[name=csrf]").cloneNode()); document.body.append(f); f.submit() })(); null`, inputs))
}

// TestResultsOfAnActionAppearAsTheyCome, and the states of the machines change afterwards, on the same page.
func TestResultsOfAnActionAppearAsTheyCome(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	a := newSlowAPI(3)
	s := a.site(t)
	b := s.tab(chromium, t)
	b.visit("/sign-in") // no token is asked for
	b.sees("h1", "Home")
	a.begin(b)
	a.binds <- ""
	b.sees("h1", "Bind 3 machines to blue")
	b.sees("#progress", "1 of 3 machines were changed so far; 2 are to come.")
	ask[any](b, `window.loaded = "once"`)
	b.looksFine("outcome-working")
	a.binds <- "its disk is too <b>small</b>"
	b.sees("#progress", "1 of 3 machines were changed so far; 1 are to come.")
	b.sees("td", "its disk is too <b>small</b>")
	a.binds <- ""
	b.sees("#progress", "2 of 3 machines were changed.")
	b.looksFine("outcome-refused")
	assert.Equal(t, 3, a.asked)
	b.sees("button", "Undo…")

	// What becomes of the machines is shown as well.
	a.mutex.Lock()
	a.state[a.hosts[0].String()] = "known"
	a.mutex.Unlock()
	close(a.changed)
	b.sees("tbody .badge", "Ready")
	assert.Equal(t, 3, a.asked, "nothing is done again")
	assert.Equal(t, "once", ask[string](b, `window.loaded`), "the page was not loaded again")
	b.press("Undo…")
	b.sees("h1", "Unbind 2 machines")
	b.run(chromedp.Navigate("about:blank"))
}

// TestAnActionThatIsRefusedMeanwhileSaysSo: the page showed for ever that machines were to come.
func TestAnActionThatIsRefusedMeanwhileSaysSo(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	a := newSlowAPI(3)
	b := a.site(t).tab(chromium, t)
	b.visit("/sign-in")
	b.sees("h1", "Home")
	a.begin(b)
	a.binds <- ""
	b.sees("#progress", "1 of 3 machines were changed so far; 2 are to come.")
	b.until(`document.querySelector("#live.htmx-request") !== null`)
	ask[any](b, `fetch("/console/sign-in").then(() => null)`) // as in another tab
	a.binds <- ""
	b.sees("#progress", "2 of 3 machines were changed so far; 1 are to come.")
	b.sees("#progress .notice.bad", "This form belongs to an older session")
	b.looksFine("outcome-stopped")
	assert.Equal(t, 2, a.asked)
}

var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// TestAnActionGoesOnAfterALostAnswer: a machine that was bound before the answer was lost counts as bound.
func TestAnActionGoesOnAfterALostAnswer(t *testing.T) {
	a := newSlowAPI(2)
	s := a.site(t)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := &http.Client{Jar: jar}
	send := func(form url.Values) (page string, fields url.Values) {
		response, err := browser.PostForm("http://"+s.address+"/console/machines/apply", form)
		require.NoError(t, err)
		defer response.Body.Close() //nolint:errcheck // it is only read
		raw, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode, "%s", raw)
		fields = url.Values{}
		work, _, _ := strings.Cut(string(raw[strings.Index(string(raw), `<form id="work"`):]), "</form>")
		for _, field := range hidden.FindAllStringSubmatch(work, -1) {
			fields.Add(field[1], html.UnescapeString(field[2]))
		}
		return string(raw), fields
	}
	response, err := browser.Get("http://" + s.address + "/console/sign-in")
	require.NoError(t, err)
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	form := a.order()
	form.Set("csrf", html.UnescapeString(regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(string(raw))[1]))

	go func() { a.binds <- "" }()
	page, rest := send(form)
	assert.Contains(t, page, "1 of 2 machines were changed so far; 1 are to come.")
	assert.Equal(t, []string{"+", ""}, rest["answer"])
	go func() { a.binds <- "" }()
	page, _ = send(rest) // its answer is lost, and the same is asked again
	assert.Contains(t, page, "2 of 2 machines were changed.")
	page, rest = send(rest)
	assert.Contains(t, page, "2 of 2 machines were changed.")
	assert.Equal(t, []string{"+", "+"}, rest["answer"])
	assert.Equal(t, 2, a.asked, "no machine is bound twice")

	rest["answer"] = rest["answer"][:1]
	response, err = browser.PostForm("http://"+s.address+"/console/machines/apply", rest)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, http.StatusBadRequest, response.StatusCode)
}
