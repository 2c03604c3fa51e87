// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// lackingKind is an API server that does not serve a kind.
type lackingKind struct {
	next http.RoundTripper
	kind string
}

// RoundTrip implements http.RoundTripper.
func (l lackingKind) RoundTrip(r *http.Request) (*http.Response, error) {
	kinds := r.URL.Path == "/apis/"+agentv1.GroupVersion.String()
	if !kinds && r.URL.Path != "/apis" {
		return l.next.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json") // not all groups in one answer
	answer, err := l.next.RoundTrip(r)
	if err != nil || !kinds || answer.StatusCode != http.StatusOK {
		return answer, err
	}
	var list metav1.APIResourceList
	err = json.NewDecoder(answer.Body).Decode(&list)
	_ = answer.Body.Close()
	if err != nil {
		return nil, err
	}
	list.APIResources = slices.DeleteFunc(list.APIResources, func(of metav1.APIResource) bool { return of.Kind == l.kind })
	content, err := json.Marshal(list)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(content)), int64(len(content))
	answer.Header.Set("Content-Length", strconv.Itoa(len(content)))
	return answer, err
}

// TestOtherKindsAreServedWithoutAgentReservations, such as after an upgrade of the service without its kinds.
func TestOtherKindsAreServedWithoutAgentReservations(t *testing.T) {
	t.Parallel()
	c := unserved(t)
	c.options.kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return lackingKind{next, "AgentReservation"} })
	c.start("127.0.0.1:0")
	c.agent(c.boot(c.infraEnv("rack"), 1, 0))
}
