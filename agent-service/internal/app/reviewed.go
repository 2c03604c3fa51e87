// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/apis/requestcount"
)

const (
	// reviewedFor is how long the cluster's word on a token is taken.
	reviewedFor = time.Minute
	maxReviewed = 10_000
	// reviewsAtOnce is how many tokens the cluster is asked about at a time, and reviewWait how long a request waits for its turn: clients without any token that is good may
	// send as many as they like, and the API server shares its time out between all requests of this service.
	reviewsAtOnce = 10
	reviewWait    = 5 * time.Second
	mastersRole   = "system:masters"
)

// reviewed are the people whom the cluster knows: it is asked whose a token is.
type reviewed struct {
	client     authenticationclient.TokenReviewInterface
	audience   string
	adminGroup string
	// viewerGroup makes accounts read-only; empty for none.
	viewerGroup string
	now         func() time.Time
	turns       *semaphore.Weighted

	mu    sync.Mutex
	known map[[sha256.Size]byte]person
}

type person struct {
	principal domain.Principal
	err       error
	until     time.Time
}

func (o *Options) reviewedPeople(requests *requestcount.Counter) (*reviewed, error) {
	config, err := o.kubernetes(requests)
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	found := newReviewed(clients.AuthenticationV1().TokenReviews())
	found.audience, found.adminGroup, found.viewerGroup = o.OIDCAudience, o.OIDCAdminGroup, o.OIDCViewerGroup
	return found, nil
}

func newReviewed(client authenticationclient.TokenReviewInterface) *reviewed {
	return &reviewed{client: client, now: time.Now, turns: semaphore.NewWeighted(reviewsAtOnce), known: map[[sha256.Size]byte]person{}}
}

// Person implements token.People.
func (r *reviewed) Person(ctx context.Context, bearer string) (domain.Principal, error) {
	if bearer == "" {
		return domain.Principal{}, token.ErrForeign
	}
	key := sha256.Sum256([]byte(bearer))
	r.mu.Lock()
	known, there := r.known[key]
	r.mu.Unlock()
	if there && r.now().Before(known.until) {
		return known.principal, known.err
	}
	found, err := r.review(ctx, bearer)
	if domain.KindOf(err) == domain.Unavailable {
		return found, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) >= maxReviewed {
		clear(r.known)
	}
	r.known[key] = person{principal: found, err: err, until: r.now().Add(reviewedFor)}
	return found, err
}

// ask sends a review once it is its turn.
func (r *reviewed) ask(ctx context.Context, request *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
	wait, cancel := context.WithTimeout(ctx, reviewWait)
	defer cancel()
	if err := r.turns.Acquire(wait, 1); err != nil {
		return nil, err
	}
	defer r.turns.Release(1)
	return r.client.Create(ctx, request, metav1.CreateOptions{})
}

func (r *reviewed) review(ctx context.Context, bearer string) (domain.Principal, error) {
	request := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: bearer}}
	if r.audience != "" {
		request.Spec.Audiences = []string{r.audience}
	}
	answer, err := r.ask(ctx, request)
	if err != nil {
		return domain.Principal{}, &domain.Error{
			Kind: domain.Unavailable, Reason: "ClusterUnavailable", Message: "the cluster cannot review the token at the moment; try again", RetryAfter: 5 * time.Second,
		}
	}
	if !answer.Status.Authenticated || r.audience != "" && !slices.Contains(answer.Status.Audiences, r.audience) {
		return domain.Principal{}, token.ErrForeign
	}
	groups := answer.Status.User.Groups
	return domain.Principal{
		User: answer.Status.User.Username, Admin: slices.Contains(groups, mastersRole) || r.adminGroup != "" && slices.Contains(groups, r.adminGroup),
		ReadOnly: r.viewerGroup != "" && slices.Contains(groups, r.viewerGroup),
	}, nil
}
