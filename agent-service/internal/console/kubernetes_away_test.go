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
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console"
)

// unapproved is an API whose machines are of InfraEnvs that are custom resources, each in a namespace of its own, and wait for their approval.
type unapproved struct{ envs, hosts []uuid.UUID }

func newUnapproved(machines int) *unapproved {
	a := &unapproved{}
	for range machines {
		a.envs, a.hosts = append(a.envs, uuid.New()), append(a.hosts, uuid.New())
	}
	return a
}

// ServeHTTP implements http.Handler.
func (a *unapproved) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	var envs, hosts []string
	for i := range a.envs {
		envs = append(envs, fmt.Sprintf(`{"id":%q,"name":"rack","custom_resource":{"name":"rack","namespace":"team-%d"}}`, a.envs[i], i))
		hosts = append(hosts, fmt.Sprintf(`{"id":%q,"infra_env_id":%q,"status":"known-unbound","requested_hostname":"node-%d"}`, a.hosts[i], a.envs[i], i))
	}
	path := strings.TrimPrefix(r.URL.Path, api.Base)
	answer := "[]"
	switch path {
	case "/identity":
		answer = `{"user_name":"root"}`
	case "/hosts/counts":
		answer = fmt.Sprintf(`{"states":[],"total":%d}`, len(hosts))
	case "/hosts":
		answer = "[" + strings.Join(hosts, ",") + "]"
	case "/infra-envs":
		answer = "[" + strings.Join(envs, ",") + "]"
	}
	for i := range a.envs {
		env := "/infra-envs/" + a.envs[i].String()
		switch path {
		case env:
			answer = envs[i]
		case env + "/hosts/" + a.hosts[i].String():
			answer = hosts[i]
		}
	}
	if answer == "[]" && strings.Contains(path, "/hosts/") {
		w.WriteHeader(http.StatusNotFound)
		answer = `{"reason":"there is no such host"}`
	}
	_, _ = io.WriteString(w, answer)
}

// person is one who is signed in to a console before an API and the Kubernetes API.
type person struct {
	*http.Client
	t    *testing.T
	base string
	csrf string
}

func signIn(t *testing.T, rest http.Handler, kubernetes *rest.Config) *person {
	t.Helper()
	c, err := console.New(console.Options{API: rest, Key: []byte("key"), Log: zap.NewNop(), Kubernetes: kubernetes})
	require.NoError(t, err)
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	p := &person{&http.Client{Jar: jar}, t, server.URL + console.Base, ""}
	response, err := p.PostForm(p.base+"/sign-in", url.Values{"token": {"secret"}})
	status, page := p.read(response, err)
	require.Equal(t, http.StatusOK, status, page)
	p.csrf = html.UnescapeString(regexp.MustCompile(`name="csrf" value="([^"]*)"`).FindStringSubmatch(page)[1])
	return p
}

func (p *person) read(response *http.Response, err error) (status int, page string) {
	p.t.Helper()
	require.NoError(p.t, err)
	defer response.Body.Close() //nolint:errcheck // it is only read
	raw, err := io.ReadAll(response.Body)
	require.NoError(p.t, err)
	return response.StatusCode, string(raw)
}

// TestMachinesAreShownWhileTheKubernetesAPIHangs: the page shows what REST has. The Kubernetes API decides about a button only.
func TestMachinesAreShownWhileTheKubernetesAPIHangs(t *testing.T) {
	var asked atomic.Int32
	end := make(chan struct{})
	kubernetes := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		select {
		case <-r.Context().Done():
		case <-end:
		}
	}))
	t.Cleanup(kubernetes.Close)
	t.Cleanup(func() { close(end) })
	p := signIn(t, newUnapproved(8), &rest.Config{Host: kubernetes.URL})
	for _, path := range []string{"/machines", "/machines?state=free"} {
		asked.Store(0)
		status, page := p.read(p.Get(p.base + path))
		assert.Equal(t, http.StatusOK, status)
		assert.Contains(t, page, "node-7")
		assert.NotContains(t, page, `value="approve"`)
		assert.EqualValues(t, 1, asked.Load(), "one that does not answer is not asked about the other namespaces")
	}
}

// TestPoolsAreShownWhileReviewsHang: the API server answers about pools, and not about rights, as where a webhook decides about these and is away.
func TestPoolsAreShownWhileReviewsHang(t *testing.T) {
	var asked atomic.Int32
	end := make(chan struct{})
	kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/clusterpools"):
			_, _ = io.WriteString(w, `{"kind":"ClusterPoolList","apiVersion":"hive.openshift.io/v1","items":[{"metadata":{"name":"small","namespace":"a"}},{"metadata":{"name":"large","namespace":"b"}}]}`)
		case strings.HasSuffix(r.URL.Path, "/clusterclaims"):
			_, _ = io.WriteString(w, `{"kind":"ClusterClaimList","apiVersion":"hive.openshift.io/v1","items":[]}`)
		case strings.HasSuffix(r.URL.Path, "/clusterclaims/mine"):
			_, _ = io.WriteString(w, `{"kind":"ClusterClaim","apiVersion":"hive.openshift.io/v1","metadata":{"name":"mine","namespace":"a"}}`)
		default:
			asked.Add(1)
			select {
			case <-r.Context().Done():
			case <-end:
			}
		}
	}))
	t.Cleanup(kubernetes.Close)
	t.Cleanup(func() { close(end) })
	p := signIn(t, newUnapproved(0), &rest.Config{Host: kubernetes.URL})
	p.Timeout = 20 * time.Second
	for path, text := range map[string]string{"/pools": `<th scope="row">large</th>`, "/claims/a/mine": "mine"} {
		asked.Store(0)
		status, page := p.read(p.Get(p.base + path))
		assert.Equal(t, http.StatusOK, status, path)
		assert.Contains(t, page, text)
		assert.EqualValues(t, 1, asked.Load(), "%s: one that does not answer is not asked about the other namespaces", path)
	}
}

// TestMachinesThatAreMissingDoNotHideTheOthers: each machine of a plan has its own answer, also one without an Agent, or one that was deleted meanwhile.
func TestMachinesThatAreMissingDoNotHideTheOthers(t *testing.T) {
	a := newUnapproved(2)
	kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		agent := fmt.Sprintf(`{"apiVersion":"agent-install.openshift.io/v1beta1","kind":"Agent","metadata":{"name":%q,"namespace":"team-0","resourceVersion":"1","ownerReferences":[{"uid":%q}]},"spec":{}}`, a.hosts[0], a.envs[0])
		if strings.HasSuffix(r.URL.Path, "/namespaces/team-0/agents/"+a.hosts[0].String()) {
			_, _ = io.WriteString(w, agent)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"agents not found"}`)
	}))
	t.Cleanup(kubernetes.Close)
	p := signIn(t, a, &rest.Config{Host: kubernetes.URL})
	gone := uuid.New()
	form := url.Values{"csrf": {p.csrf}, "action": {"approve"}, "host": {a.envs[0].String() + "/" + gone.String()}}
	for i := range a.envs {
		form.Add("host", a.envs[i].String()+"/"+a.hosts[i].String())
	}
	status, page := p.read(p.PostForm(p.base+"/machines/plan", form))
	require.Equal(t, http.StatusOK, status, page)
	assert.Contains(t, page, "2 of 3 machines cannot be approved.")
	assert.Contains(t, page, "The machine has no Agent in the Kubernetes API yet. Try again in a moment.")
	assert.Contains(t, page, "there is no such host")
	assert.Contains(t, page, gone.String()[:8], "a machine that cannot be read is named by its id")
	assert.Equal(t, 1, strings.Count(page, " checked>"))

	status, page = p.read(p.PostForm(p.base+"/machines/apply", form))
	require.Equal(t, http.StatusOK, status, page)
	assert.Contains(t, page, "The machine has no Agent in the Kubernetes API yet.")
	assert.Contains(t, page, ">"+gone.String()[:8]+"</a>")
}

var ids = regexp.MustCompile(` id="([^"]+)"`)

// TestAMachineOfTwoInfraEnvsIsTwoRows: pages keep what is selected by the ids of elements, so that each row has one of its own.
func TestAMachineOfTwoInfraEnvsIsTwoRows(t *testing.T) {
	a := newUnapproved(2)
	a.hosts[1] = a.hosts[0]
	p := signIn(t, a, nil)
	form := url.Values{"csrf": {p.csrf}, "action": {"unbind"}}
	for i := range a.envs {
		form.Add("host", a.envs[i].String()+"/"+a.hosts[i].String())
	}
	_, list := p.read(p.Get(p.base + "/machines"))
	_, plan := p.read(p.PostForm(p.base+"/machines/plan", form))
	for _, page := range []string{list, plan} {
		assert.Equal(t, 2, strings.Count(page, `name="host"`))
		seen := map[string]bool{}
		for _, id := range ids.FindAllStringSubmatch(page, -1) {
			assert.False(t, seen[id[1]], "two elements have the id %s", id[1])
			seen[id[1]] = true
		}
	}
}

// TestProxiesAreAskedNotToBufferTheStream: nginx does otherwise, unless it is told in its configuration.
func TestProxiesAreAskedNotToBufferTheStream(t *testing.T) {
	p := signIn(t, newSlowAPI(0), nil)
	response, err := p.Get(p.base + "/stream")
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	assert.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	assert.Equal(t, "no", response.Header.Get("X-Accel-Buffering"))
}

// TestAClaimOfASleepingClusterSaysSo: it does not start by itself.
func TestAClaimOfASleepingClusterSaysSo(t *testing.T) {
	kubernetes := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"hive.openshift.io/v1","kind":"ClusterClaim","metadata":{"name":"mine","namespace":"team"},"spec":{"clusterPoolName":"small","namespace":"small-1"},"status":{"conditions":[
			{"type":"Pending","status":"False","reason":"ClusterClaimed","message":"Cluster claimed"},{"type":"ClusterRunning","status":"False","reason":"Hibernating","message":"set its spec.powerState to Running"}]}}`)
	}))
	t.Cleanup(kubernetes.Close)
	p := signIn(t, newUnapproved(0), &rest.Config{Host: kubernetes.URL})
	status, page := p.read(p.Get(p.base + "/claims/team/mine"))
	require.Equal(t, http.StatusOK, status, page)
	assert.Contains(t, page, `<span class="badge idle">Asleep</span>`)
	assert.Contains(t, page, "set its spec.powerState to Running")
}
