// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package token says who calls: machines by tokens of this service, people by tokens of a configured issuer.
package token

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// Why a token opens nothing. Each has one cause.
var (
	// ErrMalformed: it is no token at all.
	ErrMalformed = errors.New("the token cannot be read")
	// ErrAlgorithm: it is signed by an algorithm that the service does not use, or by none.
	ErrAlgorithm = errors.New("the token is not signed by an accepted algorithm")
	// ErrExpired: its time is over, or has not come.
	ErrExpired = errors.New("the token has expired")
	// ErrForeign: another service signed it, or it is for something else.
	ErrForeign = errors.New("the token belongs to something else")
	// ErrUnverified: its user is named by an email address of which the issuer does not know that it is the user's.
	ErrUnverified = errors.New("the email address in the token is not verified: verify it with the issuer of the token")
	// ErrRevoked: the tokens of its generation were revoked, the registration or the binding ended that it was made for, or its host or infra-env is gone.
	ErrRevoked = errors.New("the token was revoked")
)

const (
	issuer   = "muster-agent-service"
	audience = "muster-agent"
	leeway   = time.Minute
)

// Generations knows which tokens count. It refuses with NotFound what does not exist.
type Generations interface {
	TokenGenerations(ctx context.Context, infraEnvID string) (domain.Generations, error)
	// HoldsStamps is whether what a host's token carries is of its present registration and binding.
	HoldsStamps(ctx context.Context, key domain.HostKey, carried domain.Stamps) (bool, error)
}

// Options are what an Authority needs. Zero durations mean the defaults.
type Options struct {
	Key         ed25519.PrivateKey
	Generations Generations
	// ImageTTL is how long an image is good, a year by default: it lies on shelves.
	ImageTTL time.Duration
	// HostTTL is how long an agent's token is good, 24 h by default; it is renewed when half of that is over.
	HostTTL time.Duration
	// InstalledTTL is how long the token of an installed system is good, ten years by default: it ends with its binding.
	InstalledTTL time.Duration
	// Now is the clock.
	Now func() time.Time
}

// Authority issues and verifies tokens of machines.
type Authority struct {
	options Options
	short   []byte

	mu sync.RWMutex
	// known are tokens with a good signature, by what they are: machines show the same one with every request. Everything but the signature is checked each time.
	known map[string]claims
}

// mostKnown is how many tokens are remembered; all are forgotten when there are more.
const mostKnown = 50_000

// New makes an Authority.
func New(options Options) (*Authority, error) {
	if len(options.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("the key of tokens is not an Ed25519 key")
	}
	if options.ImageTTL == 0 {
		options.ImageTTL = 365 * 24 * time.Hour
	}
	if options.HostTTL == 0 {
		options.HostTTL = 24 * time.Hour
	}
	if options.InstalledTTL == 0 {
		options.InstalledTTL = 10 * 365 * 24 * time.Hour
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	short, err := shortKey(options.Key)
	if err != nil {
		return nil, err
	}
	return &Authority{options: options, short: short, known: map[string]claims{}}, nil
}

// Scope is what a token of a machine opens.
type Scope struct {
	InfraEnvID string
	// HostID is empty for tokens in images, which register any host of the infra-env.
	HostID string
	// Expires is when the token ends; zero for short ones.
	Expires time.Time
	// Generation is the one that the token was issued in.
	Generation int64
	// Stamps are those of a host's token; that of an installed system has none of a registration.
	Stamps domain.Stamps
	// System is true for the token of an installed system. Hosts that registered with v0.1 have no stamps that say so.
	System bool
}

// Installed is true for tokens of installed systems. They report, and neither register nor read first-boot data.
func (s Scope) Installed() bool {
	return s.HostID != "" && s.Stamps.Registration == "" && (s.Stamps.Binding != "" || s.System)
}

func (s Scope) key() domain.HostKey {
	return domain.HostKey{InfraEnvID: s.InfraEnvID, HostID: s.HostID}
}

// Opens is nil if the scope holds the host of the infra-env; with an empty host, if it holds the whole infra-env. Otherwise it is ErrForeign.
func (s Scope) Opens(infraEnvID, hostID string) error {
	if s.InfraEnvID == "" || s.InfraEnvID != infraEnvID || s.HostID != "" && s.HostID != hostID {
		return ErrForeign
	}
	return nil
}

type claims struct {
	jwt.RegisteredClaims
	InfraEnvID string `json:"infra_env_id"`
	HostID     string `json:"host_id,omitempty"`
	// Registration and Binding are the stamps of a host's token.
	Registration string `json:"reg,omitempty"`
	Binding      string `json:"bind,omitempty"`
	Generation   int64  `json:"gen"`
	System       bool   `json:"sys,omitempty"`
}

// imagePeriod is how long the tokens of an image are the same.
const imagePeriod = 30 * 24 * time.Hour

// ImageIssued is when a token of an image counts as issued now: the begin of a period. Replicas that render the same image render the same bytes.
func (a *Authority) ImageIssued() time.Time { return a.options.Now().UTC().Truncate(imagePeriod) }

// ForImage is the token that the discovery image of an infra-env holds. It is the same until ImageIssued changes, and good for ImageTTL at least.
func (a *Authority) ForImage(infraEnvID string, generations domain.Generations) (string, error) {
	issued := a.ImageIssued()
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", infraEnvID, generations.ImageGeneration, issued.Unix()))
	c := claims{InfraEnvID: infraEnvID, Generation: generations.ImageGeneration}
	c.RegisteredClaims = registered(hex.EncodeToString(sum[:8]), issued, a.options.ImageTTL+imagePeriod)
	return a.sign(c)
}

// ForAgent is the token of a registered host's agent. It ends with its registration and with its binding.
func (a *Authority) ForAgent(ctx context.Context, h *domain.Host) (string, error) {
	return a.forHost(ctx, Scope{InfraEnvID: h.InfraEnvID, HostID: h.HostID, Stamps: h.Stamps}, a.options.HostTTL)
}

// ForInstalled is the token of the system that is installed on a host. It ends with the binding.
func (a *Authority) ForInstalled(ctx context.Context, h *domain.Host) (string, error) {
	return a.forHost(ctx, Scope{InfraEnvID: h.InfraEnvID, HostID: h.HostID, Stamps: domain.Stamps{Binding: h.Stamps.Binding}, System: true}, a.options.InstalledTTL)
}

func (a *Authority) forHost(ctx context.Context, scope Scope, ttl time.Duration) (string, error) {
	generations, err := a.options.Generations.TokenGenerations(ctx, scope.InfraEnvID)
	if err != nil {
		return "", err
	}
	scope.Generation = generations.HostGeneration
	return a.stamped(scope, ttl)
}

// Renew is the token of an agent with another time: it opens what that of the scope does, and ends with what that ends with.
func (a *Authority) Renew(scope Scope) (string, error) { return a.stamped(scope, a.options.HostTTL) }

func (a *Authority) stamped(scope Scope, ttl time.Duration) (string, error) {
	c := claims{
		InfraEnvID: scope.InfraEnvID, HostID: scope.HostID, Registration: scope.Stamps.Registration, Binding: scope.Stamps.Binding, Generation: scope.Generation,
		System: scope.System,
	}
	c.RegisteredClaims = registered(rand.Text()[:16], a.options.Now(), ttl)
	raw, err := a.sign(c)
	if err == nil {
		a.remember(raw, c)
	}
	return raw, err
}

// remember caches the claims of a token whose signature was verified.
func (a *Authority) remember(raw string, c claims) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.known) >= mostKnown {
		clear(a.known)
	}
	a.known[strings.Clone(raw)] = c
}

// Due is true for an agent's token that should be renewed now.
func (a *Authority) Due(scope Scope) bool {
	return scope.HostID != "" && !scope.Installed() && scope.Expires.Sub(a.options.Now()) < a.options.HostTTL/2
}

func registered(id string, issued time.Time, ttl time.Duration) jwt.RegisteredClaims {
	return jwt.RegisteredClaims{
		Issuer: issuer, Audience: jwt.ClaimStrings{audience}, ID: id, IssuedAt: jwt.NewNumericDate(issued), ExpiresAt: jwt.NewNumericDate(issued.Add(ttl)),
	}
}

func (a *Authority) sign(c claims) (string, error) {
	signed, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, c).SignedString(a.options.Key)
	if err != nil {
		return "", fmt.Errorf("signing a token: %w", err)
	}
	return signed, nil
}

// Verify says what a token opens now. It answers with one of the errors of this package, or with the refusal of Generations while that is unavailable.
// With ErrExpired and ErrRevoked the scope is what the token opened before.
func (a *Authority) Verify(ctx context.Context, raw string) (Scope, error) {
	var c claims
	err := a.parse(raw, &c)
	if err != nil && !errors.Is(err, ErrExpired) {
		return Scope{}, err
	}
	scope := Scope{
		InfraEnvID: c.InfraEnvID, HostID: c.HostID, Expires: c.ExpiresAt.Time, Generation: c.Generation,
		Stamps: domain.Stamps{Registration: c.Registration, Binding: c.Binding}, System: c.System,
	}
	if err != nil {
		return scope, err
	}
	return scope, a.Current(ctx, scope)
}

// Current is ErrRevoked where what a token opened has ended since it was verified.
func (a *Authority) Current(ctx context.Context, scope Scope) error {
	if err := a.current(ctx, scope, scope.Generation); err != nil || scope.HostID == "" {
		return err
	}
	held, err := a.options.Generations.HoldsStamps(ctx, scope.key(), scope.Stamps)
	if domain.KindOf(err) == domain.NotFound || err == nil && !held {
		return ErrRevoked
	}
	return err
}

// Issued is true for what claims to be a token of this service, good or not.
func (a *Authority) Issued(raw string) bool {
	var c claims
	_, _, err := jwt.NewParser().ParseUnverified(raw, &c)
	return err == nil && (c.Issuer == issuer || c.InfraEnvID != "")
}

func (a *Authority) parse(raw string, c *claims) error {
	checks := []jwt.ParserOption{
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(a.options.Now), jwt.WithLeeway(leeway),
	}
	a.mu.RLock()
	known, signed := a.known[raw]
	a.mu.RUnlock()
	if signed {
		*c = known
		return classify(jwt.NewValidator(checks...).Validate(c))
	}
	if err := algorithm(raw, "EdDSA"); err != nil {
		return err
	}
	_, err := jwt.ParseWithClaims(raw, c, func(*jwt.Token) (any, error) { return a.options.Key.Public(), nil }, checks...)
	if err == nil {
		a.remember(raw, *c)
	}
	return classify(err)
}

func (a *Authority) current(ctx context.Context, scope Scope, generation int64) error {
	generations, err := a.options.Generations.TokenGenerations(ctx, scope.InfraEnvID)
	if domain.KindOf(err) == domain.NotFound {
		return ErrRevoked
	}
	if err != nil {
		return err
	}
	now := generations.ImageGeneration
	if scope.HostID != "" {
		now = generations.HostGeneration
	}
	if generation != now {
		return ErrRevoked
	}
	return nil
}

// algorithm refuses a token by what it says of its algorithm, before a key is chosen.
func algorithm(raw string, accepted ...string) error {
	parsed, _, err := jwt.NewParser().ParseUnverified(raw, jwt.MapClaims{})
	if errors.Is(err, jwt.ErrTokenUnverifiable) {
		return ErrAlgorithm
	}
	if err != nil {
		return ErrMalformed
	}
	for _, name := range accepted {
		if parsed.Method.Alg() == name {
			return nil
		}
	}
	return ErrAlgorithm
}

func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jwt.ErrTokenSignatureInvalid), errors.Is(err, jwt.ErrTokenInvalidIssuer), errors.Is(err, jwt.ErrTokenInvalidAudience),
		errors.Is(err, jwt.ErrTokenUnverifiable):
		return ErrForeign
	case errors.Is(err, jwt.ErrTokenExpired), errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return ErrExpired
	}
	return ErrMalformed
}
