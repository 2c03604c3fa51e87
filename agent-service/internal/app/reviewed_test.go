// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/token"
)

func TestTheClusterSaysWhoseATokenIs(t *testing.T) {
	clients := fake.NewClientset()
	asked, away := 0, false
	clients.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked++
		if away {
			return true, nil, errors.New("connection refused")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		assert.Equal(t, []string{"agent-service"}, review.Spec.Audiences)
		switch review.Spec.Token {
		case "jane":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: "jane"}}
		case "root":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: review.Spec.Audiences, User: authenticationv1.UserInfo{Username: "root", Groups: []string{"ops"}}}
		case "of an API server that knows no audiences":
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "jane"}}
		}
		return true, review, nil
	})
	now := time.Unix(1_700_000_000, 0)
	people := newReviewed(clients.AuthenticationV1().TokenReviews())
	people.audience, people.adminGroup, people.now = "agent-service", "ops", func() time.Time { return now }
	who, err := people.Person(t.Context(), "jane")
	require.NoError(t, err)
	assert.Equal(t, domain.Principal{User: "jane"}, who)
	who, err = people.Person(t.Context(), "root")
	require.NoError(t, err)
	assert.True(t, who.Admin)
	for _, bad := range []string{"", "mallory", "of an API server that knows no audiences"} {
		_, err = people.Person(t.Context(), bad)
		require.ErrorIs(t, err, token.ErrForeign, bad)
	}

	before := asked
	away = true
	_, err = people.Person(t.Context(), "jane")
	require.NoError(t, err, "its word is taken for a minute")
	assert.Equal(t, before, asked)
	_, err = people.Person(t.Context(), "new")
	assert.Equal(t, domain.Unavailable, domain.KindOf(err))
	now = now.Add(2 * reviewedFor)
	_, err = people.Person(t.Context(), "jane")
	assert.Equal(t, domain.Unavailable, domain.KindOf(err), "and not for longer")
	away = false
	_, err = people.Person(t.Context(), "new")
	require.ErrorIs(t, err, token.ErrForeign, "an outage is not remembered")
}

// TestTheClusterIsAskedAboutFewTokensAtOnce: requests of the controllers wait behind those reviews, which any client can cause.
func TestTheClusterIsAskedAboutFewTokensAtOnce(t *testing.T) {
	const clients = 4 * reviewsAtOnce
	asked, answer := make(chan struct{}, clients), make(chan struct{})
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-answer
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","status":{}}`)
	}))
	t.Cleanup(cluster.Close)
	api, err := kubernetes.NewForConfig(&rest.Config{Host: cluster.URL, QPS: -1})
	require.NoError(t, err)
	people := newReviewed(api.AuthenticationV1().TokenReviews())
	refused := make(chan error, clients)
	for i := range clients {
		go func() {
			_, err := people.Person(t.Context(), fmt.Sprintf("forged-%d", i))
			refused <- err
		}()
	}
	for range reviewsAtOnce {
		<-asked
	}
	select {
	case <-asked:
		assert.Fail(t, "the others wait for their turn")
	case <-time.After(200 * time.Millisecond):
	}
	close(answer)
	for range clients {
		require.ErrorIs(t, <-refused, token.ErrForeign)
	}
}
