// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package token_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/token"
)

const (
	env      = "11111111-1111-4111-8111-111111111111"
	otherEnv = "22222222-2222-4222-8222-222222222222"
	host     = "33333333-3333-4333-8333-333333333333"
)

type generations map[string]domain.Generations

// machines are the stamps of hosts.
type machines map[domain.HostKey]domain.Stamps

func (m machines) HoldsStamps(_ context.Context, key domain.HostKey, carried domain.Stamps) (bool, error) {
	found, there := m[key]
	if !there {
		return false, domain.Refuse(domain.NotFound, "HostNotFound", "unknown")
	}
	return found.Accept(carried), nil
}

func (g generations) TokenGenerations(_ context.Context, id string) (domain.Generations, error) {
	found, there := g[id]
	if !there {
		return found, domain.Refuse(domain.NotFound, "InfraEnvNotFound", "unknown")
	}
	return found, nil
}

var hostKey = domain.HostKey{InfraEnvID: env, HostID: host}

type testEnv struct {
	*token.Authority
	key ed25519.PrivateKey
	generations
	machines
	now time.Time
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	key, err := token.Key(filepath.Join(t.TempDir(), "key.pem"))
	require.NoError(t, err)
	w := &testEnv{
		key: key, generations: generations{env: {ImageGeneration: 1, HostGeneration: 1}, otherEnv: {ImageGeneration: 1, HostGeneration: 1}},
		machines: machines{hostKey: {Registration: "one", Binding: "first"}}, now: time.Unix(1_800_000_000, 0),
	}
	w.Authority, err = token.New(token.Options{Key: key, Generations: w, Now: func() time.Time { return w.now }})
	require.NoError(t, err)
	return w
}

func (w *testEnv) image(t *testing.T) string {
	t.Helper()
	raw, err := w.ForImage(env, w.generations[env])
	require.NoError(t, err)
	return raw
}

func (w *testEnv) host(t *testing.T) string {
	t.Helper()
	raw, err := w.ForAgent(t.Context(), &domain.Host{HostKey: hostKey, Stamps: w.machines[hostKey]})
	require.NoError(t, err)
	return raw
}

func TestATokenOpensItsOwnScopeOnly(t *testing.T) {
	w := newTestEnv(t)
	image, err := w.Verify(t.Context(), w.image(t))
	require.NoError(t, err)
	require.NoError(t, image.Opens(env, ""))
	require.NoError(t, image.Opens(env, host))
	require.ErrorIs(t, image.Opens(otherEnv, host), token.ErrForeign)

	narrow, err := w.Verify(t.Context(), w.host(t))
	require.NoError(t, err)
	require.NoError(t, narrow.Opens(env, host))
	require.ErrorIs(t, narrow.Opens(env, otherEnv), token.ErrForeign)
	require.ErrorIs(t, narrow.Opens(env, ""), token.ErrForeign)
	require.ErrorIs(t, narrow.Opens(otherEnv, host), token.ErrForeign)
	require.ErrorIs(t, token.Scope{}.Opens("", ""), token.ErrForeign)
}

func TestEachBadTokenHasItsError(t *testing.T) {
	w := newTestEnv(t)
	good := w.image(t)
	claims := jwt.MapClaims{"iss": "muster-agent-service", "aud": "muster-agent", "infra_env_id": env, "gen": 1, "exp": w.now.Add(time.Hour).Unix()}
	sign := func(method jwt.SigningMethod, key any) string {
		raw, err := jwt.NewWithClaims(method, claims).SignedString(key)
		require.NoError(t, err)
		return raw
	}
	_, foreignKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	parts := strings.Split(good, ".")
	tampered := parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(`{"infra_env_id":"`+otherEnv+`","iss":"muster-agent-service"}`)) + "." + parts[2]
	gone, err := w.ForImage("44444444-4444-4444-8444-444444444444", domain.Generations{})
	require.NoError(t, err)

	for name, c := range map[string]struct {
		raw  string
		want error
	}{
		"unsigned":                               {sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType), token.ErrAlgorithm},
		"the public key used as a shared secret": {sign(jwt.SigningMethodHS256, []byte(w.key.Public().(ed25519.PublicKey))), token.ErrAlgorithm},
		"an algorithm that does not exist":       {base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"XX1"}`)) + "." + parts[1] + "." + parts[2], token.ErrAlgorithm},
		"signed by another key":                  {sign(jwt.SigningMethodEdDSA, foreignKey), token.ErrForeign},
		"changed":                                {tampered, token.ErrForeign},
		"not a token":                            {"not.a.token", token.ErrMalformed},
		"empty":                                  {"", token.ErrMalformed},
		"of an infra-env that is gone":           {gone, token.ErrRevoked},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Verify(t.Context(), c.raw)
			require.ErrorIs(t, err, c.want)
		})
	}
}

func TestTokensEnd(t *testing.T) {
	w := newTestEnv(t)
	image, narrow := w.image(t), w.host(t)
	w.now = w.now.Add(25 * time.Hour)
	_, err := w.Verify(t.Context(), narrow)
	require.ErrorIs(t, err, token.ErrExpired)
	_, err = w.Verify(t.Context(), image)
	require.NoError(t, err, "an image lies on a shelf")
	w.now = w.now.Add(363 * 24 * time.Hour)
	_, err = w.Verify(t.Context(), image)
	require.NoError(t, err, "an image lies on shelves for a year")
	w.now = w.now.Add(32 * 24 * time.Hour)
	_, err = w.Verify(t.Context(), image)
	require.ErrorIs(t, err, token.ErrExpired)
}

func TestATokenIsRenewedLongBeforeItEnds(t *testing.T) {
	w := newTestEnv(t)
	scope, err := w.Verify(t.Context(), w.host(t))
	require.NoError(t, err)
	assert.False(t, w.Due(scope))
	w.now = w.now.Add(13 * time.Hour)
	assert.True(t, w.Due(scope))
	image, err := w.Verify(t.Context(), w.image(t))
	require.NoError(t, err)
	assert.False(t, w.Due(image), "a token that registers hosts is no host's token")

	renewed, err := w.Renew(scope)
	require.NoError(t, err)
	w.now = w.now.Add(20 * time.Hour)
	scope, err = w.Verify(t.Context(), renewed)
	require.NoError(t, err)
	assert.Equal(t, w.machines[hostKey], scope.Stamps)
	w.machines[hostKey] = domain.Stamps{Registration: "two", Binding: "second"}
	_, err = w.Renew(scope)
	require.NoError(t, err)
	_, err = w.Verify(t.Context(), renewed)
	require.ErrorIs(t, err, token.ErrRevoked, "a renewed token ends with its subject")
}

// Tokens of v0.1 had no stamps, nor have its hosts: their agents go on as agents. What is installed on such a host now has a token that says so.
func TestTokensWithoutStampsAreThoseOfAgents(t *testing.T) {
	w := newTestEnv(t)
	w.machines[hostKey] = domain.Stamps{}
	host := &domain.Host{HostKey: hostKey}
	for installed, issue := range map[bool]func(context.Context, *domain.Host) (string, error){false: w.ForAgent, true: w.ForInstalled} {
		raw, err := issue(t.Context(), host)
		require.NoError(t, err)
		scope, err := w.Verify(t.Context(), raw)
		require.NoError(t, err)
		assert.Equal(t, installed, scope.Installed())
	}
}

func TestTheTokenOfAnInstalledSystemEndsWithItsBinding(t *testing.T) {
	w := newTestEnv(t)
	raw, err := w.ForInstalled(t.Context(), &domain.Host{HostKey: hostKey, Stamps: w.machines[hostKey]})
	require.NoError(t, err)
	w.now = w.now.Add(31 * 24 * time.Hour)
	scope, err := w.Verify(t.Context(), raw)
	require.NoError(t, err, "the machine slept for a month")
	assert.True(t, scope.Installed())
	assert.False(t, w.Due(scope))
	w.machines[hostKey] = domain.Stamps{Registration: "two", Binding: "first"}
	_, err = w.Verify(t.Context(), raw)
	require.NoError(t, err, "a boot of the discovery image by mistake ends nothing")
	w.machines[hostKey] = domain.Stamps{Registration: "two", Binding: "second"}
	_, err = w.Verify(t.Context(), raw)
	require.ErrorIs(t, err, token.ErrRevoked)
}

func TestRevocationCountsFromTheNextRequest(t *testing.T) {
	w := newTestEnv(t)
	image, narrow := w.image(t), w.host(t)
	short, err := w.Short(env, w.generations[env])
	require.NoError(t, err)
	_, err = w.Verify(t.Context(), image)
	require.NoError(t, err)
	w.generations[env] = domain.Generations{ImageGeneration: 2, HostGeneration: 1}

	_, err = w.Verify(t.Context(), image)
	require.ErrorIs(t, err, token.ErrRevoked, "it was good a moment ago")
	_, err = w.VerifyShort(t.Context(), short)
	require.ErrorIs(t, err, token.ErrRevoked)
	_, err = w.Verify(t.Context(), narrow)
	require.NoError(t, err, "running hosts keep working")
	_, err = w.Verify(t.Context(), w.image(t))
	require.NoError(t, err, "the new image works")
}

func TestATokenEndsWithItsRegistrationItsBindingAndItsHost(t *testing.T) {
	for what, change := range map[string]func(w *testEnv){
		"a registration": func(w *testEnv) { w.machines[hostKey] = domain.Stamps{Registration: "two", Binding: "first"} },
		"a binding":      func(w *testEnv) { w.machines[hostKey] = domain.Stamps{Registration: "one", Binding: "second"} },
		"a deletion":     func(w *testEnv) { delete(w.machines, hostKey) },
		"a revocation":   func(w *testEnv) { w.generations[env] = domain.Generations{ImageGeneration: 1, HostGeneration: 2} },
	} {
		t.Run(what, func(t *testing.T) {
			w := newTestEnv(t)
			raw := w.host(t)
			scope, err := w.Verify(t.Context(), raw)
			require.NoError(t, err)
			change(w)
			_, err = w.Verify(t.Context(), raw)
			require.ErrorIs(t, err, token.ErrRevoked)
			require.ErrorIs(t, w.Current(t.Context(), scope), token.ErrRevoked)
		})
	}
}

func TestShortTokensFitIntoAddressesOfFirmware(t *testing.T) {
	w := newTestEnv(t)
	short, err := w.Short(env, w.generations[env])
	require.NoError(t, err)
	assert.Len(t, short, 43)
	scope, err := w.VerifyShort(t.Context(), short)
	require.NoError(t, err)
	assert.Equal(t, env, scope.InfraEnvID)

	for i := range len(short) {
		other := byte('A')
		if short[i] == 'A' {
			other = 'B'
		}
		_, err := w.VerifyShort(t.Context(), short[:i]+string(other)+short[i+1:])
		require.Error(t, err, "character %d was changed", i)
	}
	_, err = w.VerifyShort(t.Context(), "short")
	require.ErrorIs(t, err, token.ErrMalformed)
}

func TestTheKeyIsMadeOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	first, err := token.Key(path)
	require.NoError(t, err)
	second, err := token.Key(path)
	require.NoError(t, err)
	assert.True(t, first.Equal(second))
	files, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, files, 1, "nothing is left beside it")
}

// A power loss at the first start can leave a file whose content was not written yet. No token was signed by a key that is lost.
func TestAnEmptyFileIsNoKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key.pem")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	first, err := token.Key(path)
	require.NoError(t, err)
	second, err := token.Key(path)
	require.NoError(t, err)
	assert.True(t, first.Equal(second))
	require.NoError(t, os.WriteFile(path, []byte("-----BEGIN"), 0o600))
	_, err = token.Key(path)
	require.ErrorContains(t, err, "is not PEM", "what is damaged may have signed tokens")
}

// Replicas that start together have one key.
func TestReplicasThatStartTogetherHaveOneKey(t *testing.T) {
	for name, prepare := range map[string]func(path string) error{
		"at first":           func(string) error { return nil },
		"after a power loss": func(path string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path, keys := filepath.Join(t.TempDir(), "key.pem"), make(chan ed25519.PrivateKey, 8)
			require.NoError(t, prepare(path))
			for range cap(keys) {
				go func() {
					key, err := token.Key(path)
					assert.NoError(t, err)
					keys <- key
				}()
			}
			first := <-keys
			for range cap(keys) - 1 {
				assert.True(t, first.Equal(<-keys))
			}
		})
	}
}

// On a volume without links, a replica makes the file first and writes it then.
func TestAFileThatAnotherReplicaWritesIsItsKey(t *testing.T) {
	ready := filepath.Join(t.TempDir(), "key.pem")
	theirs, err := token.Key(ready)
	require.NoError(t, err)
	content, err := os.ReadFile(ready)
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "key.pem"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, syscall.Flock(int(file.Fd()), syscall.LOCK_EX))
	keys := make(chan ed25519.PrivateKey, 1)
	go func() {
		key, err := token.Key(file.Name())
		assert.NoError(t, err)
		keys <- key
	}()
	assert.Never(t, func() bool { return len(keys) > 0 }, 50*time.Millisecond, 5*time.Millisecond, "the file is locked")
	_, err = file.Write(content)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(file.Fd()), syscall.LOCK_UN))
	assert.True(t, theirs.Equal(<-keys))
}

// publisher is an issuer that publishes its keys, as OpenID Connect has it.
func publisher(t *testing.T, keys []map[string]string) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]string{"jwks_uri": server.URL + "/keys"}))
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"keys": keys}))
	})
	return server
}

func TestAnIssuerThatHangsBlocksOnlyItsOwnTokens(t *testing.T) {
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	published, err := json.Marshal(map[string]any{"keys": []map[string]string{{"kid": "k", "kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public)}}})
	require.NoError(t, err)
	asked, answer := make(chan struct{}), make(chan bool)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		if !<-answer {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		_, _ = w.Write(published)
	}))
	t.Cleanup(server.Close)
	now := time.Unix(1_800_000_000, 0)
	keys := &token.KeySet{URL: server.URL, Client: server.Client(), Now: func() time.Time { return now }}
	refused := make(chan error, 20)
	look := func(id string) {
		_, err := keys.Named(t.Context(), id, nil)
		refused <- err
	}
	go look("k")
	<-asked
	answer <- true
	require.NoError(t, <-refused)

	now = now.Add(time.Minute)
	for range cap(refused) {
		go look("unknown")
	}
	<-asked // and no caller asks again: the issuer would hang at that
	_, err = keys.Named(t.Context(), "k", nil)
	require.NoError(t, err, "the key is known")
	answer <- false
	for range cap(refused) {
		require.Equal(t, domain.Unavailable, domain.KindOf(<-refused))
	}
	_, err = keys.Named(t.Context(), "unknown", nil)
	require.Equal(t, domain.Unavailable, domain.KindOf(err), "it is left alone for a while")
	now = now.Add(10 * time.Second)
	go look("unknown")
	<-asked
	answer <- true
	require.ErrorIs(t, <-refused, token.ErrForeign)
}

// signer is a key of an issuer, and its name, which may be empty.
type signer struct {
	id  string
	key ed25519.PrivateKey
}

func newSigner(t *testing.T, id string) signer {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	return signer{id, key}
}

// published is the key as an issuer publishes it.
func (s signer) published() map[string]string {
	public, _ := s.key.Public().(ed25519.PublicKey)
	found := map[string]string{"kty": "OKP", "crv": "Ed25519", "x": base64.RawURLEncoding.EncodeToString(public)}
	if s.id != "" {
		found["kid"] = s.id
	}
	return found
}

func (s signer) sign(t *testing.T, claims jwt.MapClaims) string {
	t.Helper()
	unsigned := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims)
	if s.id != "" {
		unsigned.Header["kid"] = s.id
	}
	raw, err := unsigned.SignedString(s.key)
	require.NoError(t, err)
	return raw
}

// changing is an issuer whose keys change. published are those that it has now.
func changing(t *testing.T, now *time.Time) (issuer *token.Issuer, publish func(...signer), asked *atomic.Int32) {
	t.Helper()
	var published atomic.Pointer[[]map[string]string]
	asked = new(atomic.Int32)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		assert.NoError(t, json.NewEncoder(w).Encode(map[string]any{"keys": *published.Load()}))
	}))
	t.Cleanup(server.Close)
	clock := func() time.Time { return *now }
	issuer = &token.Issuer{URL: "https://issuer", Now: clock, Keys: &token.KeySet{URL: server.URL, Client: server.Client(), Now: clock}}
	return issuer, func(signers ...signer) {
		var keys []map[string]string
		for _, s := range signers {
			keys = append(keys, s.published())
		}
		published.Store(&keys)
	}, asked
}

// TestAnIssuerMayChangeAKeyUnderItsName: keys without a name all have the same one.
func TestAnIssuerMayChangeAKeyUnderItsName(t *testing.T) {
	for name, id := range map[string]string{"with a name": "k", "without": ""} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(1_800_000_000, 0)
			issuer, publish, asked := changing(t, &now)
			claims := jwt.MapClaims{"iss": "https://issuer", "sub": "jane", "exp": now.Add(time.Hour).Unix()}
			former, next := newSigner(t, id), newSigner(t, id)
			publish(former)
			_, err := issuer.Person(t.Context(), former.sign(t, claims))
			require.NoError(t, err)
			now = now.Add(time.Minute)
			publish(next)
			person, err := issuer.Person(t.Context(), next.sign(t, claims))
			require.NoError(t, err, "the first token of the new key")
			assert.Equal(t, "jane", person.User)
			_, err = issuer.Person(t.Context(), former.sign(t, claims))
			require.ErrorIs(t, err, token.ErrForeign)
			for range 5 {
				_, err = issuer.Person(t.Context(), newSigner(t, id).sign(t, claims))
				require.ErrorIs(t, err, token.ErrForeign)
			}
			assert.EqualValues(t, 2, asked.Load(), "forged tokens do not make the issuer busy")
		})
	}
}

// TestATokenThatNamesNoKeyMayBeSignedByAnyOfThem: while an issuer changes its key it publishes two.
func TestATokenThatNamesNoKeyMayBeSignedByAnyOfThem(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	issuer, publish, asked := changing(t, &now)
	claims := jwt.MapClaims{"iss": "https://issuer", "sub": "jane", "exp": now.Add(time.Hour).Unix()}
	one, other, named := newSigner(t, ""), newSigner(t, ""), newSigner(t, "k")
	publish(one, named, other)
	for _, s := range []signer{one, other, named, {"", named.key}} {
		person, err := issuer.Person(t.Context(), s.sign(t, claims))
		require.NoError(t, err)
		assert.Equal(t, "jane", person.User)
	}
	for range 5 {
		_, err := issuer.Person(t.Context(), newSigner(t, "").sign(t, claims))
		require.ErrorIs(t, err, token.ErrForeign)
	}
	_, err := issuer.Person(t.Context(), signer{"k", one.key}.sign(t, claims))
	require.ErrorIs(t, err, token.ErrForeign, "it names another key")
	assert.EqualValues(t, 1, asked.Load())
	publish(other)
	now = now.Add(time.Minute)
	for range 2 {
		_, err = issuer.Person(t.Context(), newSigner(t, "").sign(t, claims))
		require.ErrorIs(t, err, token.ErrForeign)
	}
	_, err = issuer.Person(t.Context(), one.sign(t, claims))
	require.ErrorIs(t, err, token.ErrForeign, "it was withdrawn")
	assert.EqualValues(t, 2, asked.Load(), "forged tokens do not make the issuer busy")
}

// TestAKeyThatAnIssuerWithdrewCountsNoLonger, while tokens of its other keys come.
func TestAKeyThatAnIssuerWithdrewCountsNoLonger(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	issuer, publish, asked := changing(t, &now)
	claims := jwt.MapClaims{"iss": "https://issuer", "sub": "jane", "exp": now.Add(time.Hour).Unix()}
	stolen, other := newSigner(t, "stolen"), newSigner(t, "other")
	publish(stolen, other)
	for _, s := range []signer{stolen, other} {
		_, err := issuer.Person(t.Context(), s.sign(t, claims))
		require.NoError(t, err)
	}
	publish(other)
	now = now.Add(4 * time.Minute)
	_, err := issuer.Person(t.Context(), other.sign(t, claims))
	require.NoError(t, err)
	assert.EqualValues(t, 1, asked.Load())
	now = now.Add(time.Minute)
	_, err = issuer.Person(t.Context(), other.sign(t, claims))
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		_, err = issuer.Person(t.Context(), stolen.sign(t, claims))
		return errors.Is(err, token.ErrForeign)
	}, time.Minute, time.Millisecond)
	assert.EqualValues(t, 2, asked.Load())

	publish() // something answers in place of the issuer
	now = now.Add(10 * time.Minute)
	_, err = issuer.Keys.Named(t.Context(), "unknown", nil)
	assert.Equal(t, domain.Unavailable, domain.KindOf(err))
	_, err = issuer.Person(t.Context(), other.sign(t, claims))
	require.NoError(t, err, "no key was withdrawn")
}

func encode(n *big.Int, size int) string {
	return base64.RawURLEncoding.EncodeToString(n.FillBytes(make([]byte, size)))
}

func TestPeopleAreKnownByTheirIssuer(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	point, err := ecKey.PublicKey.Bytes()
	require.NoError(t, err)
	server := publisher(t, []map[string]string{
		{"kid": "r", "kty": "RSA", "n": encode(rsaKey.N, 256), "e": encode(big.NewInt(int64(rsaKey.E)), 3)},
		{"kid": "e", "kty": "EC", "crv": "P-256", "x": base64.RawURLEncoding.EncodeToString(point[1:33]), "y": base64.RawURLEncoding.EncodeToString(point[33:])},
	})
	now := time.Unix(1_800_000_000, 0)
	clock := func() time.Time { return now }
	issuer := &token.Issuer{
		URL: server.URL, Audience: "muster", UserClaim: "preferred_username", OrganizationClaim: "org_id", AdminGroup: "infra-admins", Now: clock,
		Keys: &token.KeySet{Issuer: server.URL, Client: server.Client(), Now: clock},
	}
	claims := func(changes jwt.MapClaims) jwt.MapClaims {
		c := jwt.MapClaims{"iss": server.URL, "aud": "muster", "sub": "1", "preferred_username": "jane", "org_id": "blue", "exp": now.Add(time.Hour).Unix()}
		maps.Copy(c, changes)
		return c
	}
	sign := func(method jwt.SigningMethod, kid string, key any, c jwt.MapClaims) string {
		unsigned := jwt.NewWithClaims(method, c)
		unsigned.Header["kid"] = kid
		raw, err := unsigned.SignedString(key)
		require.NoError(t, err)
		return raw
	}
	for name, raw := range map[string]string{
		"RSA": sign(jwt.SigningMethodRS256, "r", rsaKey, claims(nil)), "EC": sign(jwt.SigningMethodES256, "e", ecKey, claims(nil)),
	} {
		person, err := issuer.Person(t.Context(), raw)
		require.NoError(t, err, name)
		assert.Equal(t, domain.Principal{User: "jane", Organization: "blue"}, person)
	}
	admin, err := issuer.Person(t.Context(), sign(jwt.SigningMethodES256, "e", ecKey, claims(jwt.MapClaims{"groups": []string{"infra-admins"}})))
	require.NoError(t, err)
	assert.True(t, admin.Admin)

	issuer.ViewerGroup = "viewers"
	for name, c := range map[string]struct {
		groups jwt.MapClaims
		want   domain.Principal
	}{
		"none":                             {nil, domain.Principal{}},
		"in a list":                        {jwt.MapClaims{"groups": []string{"staff", "viewers"}}, domain.Principal{ReadOnly: true}},
		"one as text":                      {jwt.MapClaims{"groups": "viewers"}, domain.Principal{ReadOnly: true}},
		"administrators as text":           {jwt.MapClaims{"groups": "infra-admins"}, domain.Principal{Admin: true}},
		"text that only contains the name": {jwt.MapClaims{"groups": "viewers of others"}, domain.Principal{}},
		"too many for the token": {
			jwt.MapClaims{"_claim_names": map[string]any{"groups": "src1"}, "_claim_sources": map[string]any{"src1": map[string]any{"endpoint": "https://graph/"}}}, domain.Principal{ReadOnly: true},
		},
		"too many for the token of an implicit flow": {jwt.MapClaims{"hasgroups": true}, domain.Principal{ReadOnly: true}},
		"another claim is elsewhere":                 {jwt.MapClaims{"_claim_names": map[string]any{"address": "src1"}}, domain.Principal{}},
	} {
		person, err := issuer.Person(t.Context(), sign(jwt.SigningMethodES256, "e", ecKey, claims(c.groups)))
		require.NoError(t, err, name)
		c.want.User, c.want.Organization = "jane", "blue"
		assert.Equal(t, c.want, person, name)
	}
	issuer.ViewerGroup = ""
	person, err := issuer.Person(t.Context(), sign(jwt.SigningMethodES256, "e", ecKey, claims(jwt.MapClaims{"hasgroups": true})))
	require.NoError(t, err)
	assert.False(t, person.ReadOnly, "there are no viewers")

	for name, c := range map[string]struct {
		raw  string
		want error
	}{
		"none":              {"", token.ErrForeign},
		"unsigned":          {sign(jwt.SigningMethodNone, "e", jwt.UnsafeAllowNoneSignatureType, claims(nil)), token.ErrAlgorithm},
		"symmetric":         {sign(jwt.SigningMethodHS256, "e", point, claims(nil)), token.ErrAlgorithm},
		"of another key":    {sign(jwt.SigningMethodES256, "unknown", ecKey, claims(nil)), token.ErrForeign},
		"of the wrong key":  {sign(jwt.SigningMethodES256, "r", ecKey, claims(nil)), token.ErrForeign},
		"expired":           {sign(jwt.SigningMethodES256, "e", ecKey, claims(jwt.MapClaims{"exp": now.Add(-time.Hour).Unix()})), token.ErrExpired},
		"of another issuer": {sign(jwt.SigningMethodES256, "e", ecKey, claims(jwt.MapClaims{"iss": "https://elsewhere"})), token.ErrForeign},
		"for others":        {sign(jwt.SigningMethodES256, "e", ecKey, claims(jwt.MapClaims{"aud": "others"})), token.ErrForeign},
	} {
		_, err := issuer.Person(t.Context(), c.raw)
		require.ErrorIs(t, err, c.want, name)
	}

	issuer.UserClaim = "email"
	for name, c := range map[string]struct {
		says jwt.MapClaims
		user string
	}{
		"verified":              {jwt.MapClaims{"email": "jane@example.com", "email_verified": true}, "jane@example.com"},
		"verified as text":      {jwt.MapClaims{"email": "jane@example.com", "email_verified": "true"}, "jane@example.com"},
		"not said":              {jwt.MapClaims{"email": "jane@example.com"}, "jane@example.com"},
		"no address":            {jwt.MapClaims{"email_verified": false}, "1"},
		"not verified":          {jwt.MapClaims{"email": "jane@example.com", "email_verified": false}, ""},
		"not verified, as text": {jwt.MapClaims{"email": "jane@example.com", "email_verified": "false"}, ""},
	} {
		person, err := issuer.Person(t.Context(), sign(jwt.SigningMethodES256, "e", ecKey, claims(c.says)))
		assert.Equal(t, c.user, person.User, name)
		if c.user == "" {
			require.ErrorIs(t, err, token.ErrUnverified, name)
		}
	}
	issuer.UserClaim = "sub"
	person, err = issuer.Person(t.Context(), sign(jwt.SigningMethodES256, "e", ecKey, claims(jwt.MapClaims{"email": "x@example.com", "email_verified": false})))
	require.NoError(t, err)
	assert.Equal(t, "1", person.User, "the address names no user")

	away := &token.Issuer{URL: server.URL, Now: clock, Keys: &token.KeySet{URL: "http://127.0.0.1:1/keys", Client: server.Client(), Now: clock}}
	_, err = away.Person(t.Context(), sign(jwt.SigningMethodES256, "e", ecKey, claims(nil)))
	require.Equal(t, domain.Unavailable, domain.KindOf(err), "an unreachable issuer is no refusal of the token")
}
