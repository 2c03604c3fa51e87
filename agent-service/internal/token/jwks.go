// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// KeySet are the keys that an issuer publishes. They are fetched when a token names an unknown one, or is not signed by the one that it names, at most every 30 s. A token
// that a known key signed never waits. Keys that are older than five minutes are fetched while they are used, so that a withdrawn one does not count for longer.
type KeySet struct {
	// URL is of the key set; empty to ask the issuer for it.
	URL string
	// Issuer is the issuer's URL.
	Issuer string
	Client *http.Client
	// Now is the clock.
	Now func() time.Time

	mu sync.Mutex
	// keys are by their id. Those without one are beside each other, as while an issuer changes from one to the next.
	keys map[string][]crypto.PublicKey
	// read is when the keys were fetched.
	read time.Time
	// fetching is closed when the fetch that is under way has ended; nil without one.
	fetching chan struct{}
	// failed is how the last fetch ended, and next when there may be another one.
	failed bool
	next   time.Time
}

const (
	refetch      = 30 * time.Second
	fetchTimeout = 10 * time.Second
	// fresh is how long keys are used without a look at those of the issuer.
	fresh = 5 * time.Minute
	// tryAgain is how long an issuer that does not answer is left alone.
	tryAgain = 5 * time.Second
)

// Named implements Keys.
func (s *KeySet) Named(ctx context.Context, id string, misfits []crypto.PublicKey) ([]crypto.PublicKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.named(id)
	known := slices.ContainsFunc(found, func(key crypto.PublicKey) bool {
		return !slices.ContainsFunc(misfits, func(misfit crypto.PublicKey) bool { return same(key, misfit) })
	})
	if now := s.Now(); s.fetching == nil && !now.Before(s.next) && (!known || now.Sub(s.read) >= fresh) {
		s.fetching = make(chan struct{})
		go s.renew(context.WithoutCancel(ctx)) // others wait for it, too
	}
	if known {
		return found, nil
	}
	if fetched := s.fetching; fetched != nil {
		s.mu.Unlock()
		select {
		case <-fetched:
		case <-ctx.Done():
		}
		s.mu.Lock()
	}
	if found := s.named(id); len(found) > 0 {
		return found, nil
	}
	if s.failed || ctx.Err() != nil {
		return nil, &domain.Error{Kind: domain.Unavailable, Reason: "IssuerUnavailable", Message: "the issuer of users' tokens cannot be reached at the moment; try again", RetryAfter: tryAgain}
	}
	return nil, ErrForeign
}

// named are the keys that may have signed a token that names an id. One that names none may be signed by any of them: an issuer with one key need not name it (OpenID Connect Core 1.0,
// section 10.1), and some with several do not.
func (s *KeySet) named(id string) []crypto.PublicKey {
	if id != "" {
		return s.keys[id]
	}
	var all []crypto.PublicKey
	for _, keys := range s.keys {
		all = append(all, keys...)
	}
	return all
}

// renew fetches the keys. Those that are known stay where that fails.
func (s *KeySet) renew(ctx context.Context) {
	keys, err := s.fetch(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.next = err != nil, s.Now().Add(tryAgain)
	if err == nil {
		s.keys, s.read, s.next = keys, s.Now(), s.Now().Add(refetch)
	}
	close(s.fetching)
	s.fetching = nil
}

// same is true for the same key of the same kind.
func same(one, other crypto.PublicKey) bool {
	key, is := one.(interface {
		Equal(key crypto.PublicKey) bool
	})
	return is && other != nil && key.Equal(other)
}

func (s *KeySet) fetch(ctx context.Context) (map[string][]crypto.PublicKey, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	url := s.URL
	if url == "" {
		var about struct {
			KeySet string `json:"jwks_uri"`
		}
		if err := s.get(ctx, strings.TrimSuffix(s.Issuer, "/")+"/.well-known/openid-configuration", &about); err != nil {
			return nil, err
		}
		url = about.KeySet
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := s.get(ctx, url, &set); err != nil {
		return nil, err
	}
	keys := map[string][]crypto.PublicKey{}
	for _, text := range set.Keys {
		if id, key, err := read(text); err == nil {
			keys[id] = append(keys[id], key)
		}
	}
	if len(keys) == 0 { // those that are known stay
		return nil, errors.New("the issuer publishes no usable key")
	}
	return keys, nil
}

func (s *KeySet) get(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("asking the issuer: %w", err)
	}
	response, err := s.Client.Do(request)
	if err != nil {
		return fmt.Errorf("asking the issuer: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the issuer: %s", response.Status)
	}
	return json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(into)
}

// read reads one key as RFC 7517 writes it, if it is a public one for signatures that is strong enough.
func read(text []byte) (id string, key crypto.PublicKey, err error) {
	var published jose.JSONWebKey
	if err := published.UnmarshalJSON(text); err != nil {
		return "", nil, fmt.Errorf("reading a key of the issuer: %w", err)
	}
	if published.Use != "" && published.Use != "sig" || !published.Valid() || !published.IsPublic() {
		return "", nil, errors.New("not a public key for signatures")
	}
	if key, isRSA := published.Key.(*rsa.PublicKey); isRSA && (key.N.BitLen() < 2048 || key.E < 3) {
		return "", nil, errors.New("not a usable RSA key")
	}
	return published.KeyID, published.Key, nil
}
