// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/faultinject"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// behind are the writes of Agents through API servers whose watches of Agents show everything late, and those among them that changed nothing.
type behind struct {
	mu sync.Mutex
	// versions are those that the last write of each Agent was answered with.
	versions map[string]string
	needless []string
	writes   int
}

// lateAPI is the way of one client.
type lateAPI struct {
	*behind
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (b lateAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path+"/", "/agents/") || answer.StatusCode >= http.StatusMultipleChoices {
		return answer, err
	}
	switch {
	case r.URL.Query().Has("watch"):
		answer.Body = late{answer.Body}
	case r.Method == http.MethodPatch || r.Method == http.MethodPost:
		err = b.note(r, answer)
	}
	return answer, err
}

func (b *behind) note(r *http.Request, answer *http.Response) error {
	content, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(content))
	var of struct {
		Metadata struct{ Name, ResourceVersion string }
	}
	if err != nil || json.Unmarshal(content, &of) != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes++
	if b.versions[of.Metadata.Name] == of.Metadata.ResourceVersion {
		b.needless = append(b.needless, r.Method+" "+r.URL.Path)
	}
	b.versions[of.Metadata.Name] = of.Metadata.ResourceVersion
	return nil
}

// gate is an API server whose watches of Agents show nothing while it is held. It counts how often single Agents are read.
type gate struct {
	mu     sync.Mutex
	opened chan struct{}
	passed strings.Builder
	looked int
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) hold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened, g.looked = make(chan struct{}), 0
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// has is true where a watch has shown a text.
func (g *gate) has(text string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Contains(g.passed.String(), text)
}

// looks is how often single Agents were read since it was held.
func (g *gate) looks() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.looked
}

// gatedAPI is the way of one client through a gate.
type gatedAPI struct {
	*gate
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (g gatedAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := g.next.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || !strings.Contains(r.URL.Path+"/", "/agents/") {
		return answer, err
	}
	switch {
	case r.URL.Query().Has("watch"):
		answer.Body = gated{answer.Body, g.gate}
	case strings.Contains(r.URL.Path, "/agents/"):
		g.mu.Lock()
		defer g.mu.Unlock()
		g.looked++
	}
	return answer, nil
}

// gated is a stream of a gate.
type gated struct {
	io.ReadCloser
	*gate
}

// Read implements io.Reader.
func (g gated) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	<-opened
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed.Write(p[:n])
	return n, err
}

// TestAReplicaThatIsBehindNeitherBindsNorFrees: its cache shows an Agent as it was before the other replica applied its spec.
func TestAReplicaThatIsBehindNeitherBindsNorFrees(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	w := newCrashEnv(t, func(o *Options) { o.Database = server.URL })
	w.replica(faultinject.Never())
	g := newGate()
	w.replicaThrough(func(next http.RoundTripper) http.RoundTripper { return gatedAPI{g, next} })
	t.Cleanup(g.open)
	infraEnv, image := w.rack()
	blue, _ := w.own("blue")
	agent := w.agent(w.bootWith(string(infraEnv.UID), image, 0, 0))
	w.says(agent, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
	behind := func(cluster *agentv1.ClusterReference, binds, frees int64) {
		t.Helper()
		g.settled(w, agent)
		g.hold()
		defer g.open()
		change(w.cluster, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = cluster })
		require.Eventually(t, func() bool {
			return w.eventCount("host_bind_succeeded") == binds && w.eventCount("host_unbind_succeeded") == frees && g.looks() > 0 ||
				w.eventCount("host_bind_succeeded") > binds || w.eventCount("host_unbind_succeeded") > frees
		}, kubePatience, 50*time.Millisecond, "both replicas act")
		assert.Equal(t, []int64{binds, frees}, []int64{w.eventCount("host_bind_succeeded"), w.eventCount("host_unbind_succeeded")}, "bound and freed")
		w.until(agent, "the Agent says so", func() bool {
			return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionBound) == (cluster != nil)
		})
	}
	behind(&agentv1.ClusterReference{Name: blue.Name}, 1, 0)
	behind(nil, 1, 1)
}

// settled waits until an Agent does not change any more, and its watches show it as it is: a replica does nothing about an Agent while its cache lacks a write of its own.
func (g *gate) settled(w *crashEnv, agent *agentv1.Agent) {
	w.Helper()
	last, since := "", time.Now()
	require.Eventually(w, func() bool {
		if w.user.Get(w.Context(), client.ObjectKeyFromObject(agent), agent) != nil {
			return false
		}
		if agent.ResourceVersion != last {
			last, since = agent.ResourceVersion, time.Now()
		}
		return time.Since(since) > 2*time.Second && g.has(`"resourceVersion":"`+last+`"`)
	}, kubePatience, 50*time.Millisecond, "the Agent changes on and on")
}

// replicaThrough runs a process that reaches the API server in another way, until the test ends.
func (w *crashEnv) replicaThrough(wrap func(http.RoundTripper) http.RoundTripper) {
	w.Helper()
	o := w.options
	o.kube = rest.CopyConfig(o.kube)
	o.kube.Wrap(wrap)
	way := w.shared.process()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- RunWith(ctx, o, zap.NewNop(), way) }()
	w.Cleanup(func() {
		cancel()
		assert.NoError(w, <-done)
		way.cut()
	})
}

// eventCount is how many events of a name the store has.
func (w *crashEnv) eventCount(name string) (count int64) {
	w.Helper()
	require.NoError(w, w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
		events, err := r.Events(ctx, domain.EventFilter{Page: domain.Page{Limit: 5000}})
		for _, e := range events.Items {
			if e.Name == name {
				count += e.Count
			}
		}
		return err
	}))
	return count
}

// late is a stream that is read late.
type late struct{ io.ReadCloser }

// Read implements io.Reader.
func (l late) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	<-time.After(300 * time.Millisecond)
	return n, err
}

// A host changes several times before the cache shows what was written of its Agent. What is written already is not written again.
func TestWhatIsWrittenOfAnAgentIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	c := unserved(t, withSystem(t))
	b := &behind{versions: map[string]string{}}
	c.options.kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return lateAPI{b, next} })
	c.start("127.0.0.1:0")
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	c.stop()
	assert.Greater(t, b.writes, 2)
	assert.Empty(t, b.needless)
	assert.True(t, agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionBound))
}
