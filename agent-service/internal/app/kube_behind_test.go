// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

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
