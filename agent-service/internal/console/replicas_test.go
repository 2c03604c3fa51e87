// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/console"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
)

// balancer is one address before replicas. Requests go to them in turn.
type balancer struct {
	mutex    sync.Mutex
	replicas []*site
	next     int
	// served are the addresses that served a path last.
	served map[string]string
}

// ServeHTTP implements http.Handler.
func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mutex.Lock()
	b.next++
	address := b.replicas[b.next%len(b.replicas)].address
	b.served[r.Method+" "+r.URL.Path] = address
	b.mutex.Unlock()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})
	proxy.FlushInterval = -1
	proxy.ServeHTTP(w, r)
}

// of is the replica that served a path last.
func (b *balancer) of(path string) *site {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	at := slices.IndexFunc(b.replicas, func(s *site) bool { return s.address == b.served[path] })
	return b.replicas[at]
}

// without takes a replica out.
func (b *balancer) without(gone *site) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.replicas = slices.DeleteFunc(b.replicas, func(s *site) bool { return s == gone })
}

// TestAnotherReplicaGoesOnWhereOneDies: sessions, forms and streams are no matter of one process.
func TestAnotherReplicaGoesOnWhereOneDies(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	dir := t.TempDir()
	shared := []string{"--database=" + postgrestest.Start(t).URL, "--token-key=" + filepath.Join(dir, "a.key")}
	one := newSite(t, shared...)
	other := newSite(t, append(shared, "--oidc-key-file="+one.options.OIDCKeyFile)...)
	b := &balancer{replicas: []*site{one, other}, served: map[string]string{}}
	front := httptest.NewServer(b)
	t.Cleanup(front.CloseClientConnections)
	address := *one
	address.address = strings.TrimPrefix(front.URL, "http://")

	// Signed in by one, each serves the person, and takes forms of the other.
	admin := one.token("root", "admins")
	page := address.open(chromium, t, admin)
	makes := func(name string) string {
		page.visit("/infra-envs/new")
		page.run(chromedp.SendKeys(chromedp.CSS("#name"), name), chromedp.SendKeys(chromedp.CSS("#pull_secret"), `{"auths":{}}`))
		page.press("Create")
		page.sees("h1", name)
		return page.id()
	}
	env := makes("rack-one")
	makes("rack-two")
	page.visit("/infra-envs/" + env)
	page.sees("#live", "No machine has registered yet")
	require.Eventually(t, func() bool {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		return b.served["GET "+console.Base+"/stream"] != ""
	}, patience, tick)
	ask[any](page, `window.loaded = "once"`)

	// The replica that has the stream dies. The page goes on with the other.
	dead := b.of("GET " + console.Base + "/stream")
	left := map[bool]*site{true: other, false: one}[dead == one]
	b.without(dead)
	dead.stop()
	left.report(left.imageToken(admin, env), env, uuid.NewString(), map[string]any{"hostname": "after", "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	page.sees("#live", "after")
	assert.Equal(t, "once", ask[string](page, `window.loaded`), "the page was not loaded again")
	require.Eventually(t, func() bool {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		return b.served["GET "+console.Base+"/stream"] == left.address
	}, patience, tick, "the stream goes on with the replica that is left")
	makes("rack-three")
}
