// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package oidc signs people in at an OpenID Connect issuer, by the authorization code flow with PKCE. It keeps nothing of a flow: its caller does, in the browser.
package oidc

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

const (
	// FlowTime is how long a person may take to sign in at the issuer.
	FlowTime = 10 * time.Minute
	// discoveryTimeout and exchangeTimeout limit how long a browser waits for the issuer.
	discoveryTimeout, exchangeTimeout = 3 * time.Second, 5 * time.Second
)

// Client is what the issuer knows as a client.
type Client struct {
	// Issuer is the URL of the issuer. It is contacted when a person signs in, and not before.
	Issuer string
	// ID is what the issuer knows the client by.
	ID string
	// Secret reads the secret of the client for each sign-in, because secrets are rotated; nil for a public client.
	Secret func() (string, error)
	// Redirect is the URL that the issuer sends people back to.
	Redirect string
	// Verify checks the signature, issuer, audience and times of an id token. An error of kind domain.Unavailable means that the issuer cannot be reached.
	Verify func(ctx context.Context, idToken string) error

	client http.Client
	known  atomic.Pointer[oauth2.Config]
}

// Flow is one sign-in. Its content is secret.
type Flow struct {
	State, Nonce, Verifier string
	Until                  time.Time
}

// FlowName tells the flow of a state from others, and does not say the state.
func FlowName(state string) string {
	sum := sha256.Sum256([]byte(state))
	return hex.EncodeToString(sum[:8])
}

// Problem is a failed sign-in.
type Problem struct {
	// Status is of the HTTP answer.
	Status int
	// Reason is away, expired, state, denied, code, client or untrusted.
	Reason string
	// About is the error code of the issuer for the reason denied.
	About []any
	cause error
}

// Error implements error. It holds no code or token.
func (p *Problem) Error() string { return fmt.Sprintf("%s: %v", p.Reason, p.cause) }

// Unwrap is for errors.Is.
func (p *Problem) Unwrap() error { return p.cause }

func away(cause error) *Problem {
	return &Problem{Status: http.StatusBadGateway, Reason: "away", cause: cause}
}

// ofTheClient are error codes (RFC 6749, section 5.2) for what another sign-in does not mend: the client or its secret is not what the issuer knows.
var ofTheClient = []string{"invalid_client", "unauthorized_client"}

var errFlow = errors.New("no such flow")

// Host is the name of the issuer that people read.
func (c *Client) Host() string {
	at, err := url.Parse(c.Issuer)
	if err != nil {
		return c.Issuer
	}
	return at.Host
}

// Begin makes a flow that ends at the latest FlowTime after now, and the URL at the issuer where a person goes on. The error is a Problem.
func (c *Client) Begin(ctx context.Context, now time.Time) (Flow, string, error) {
	config, err := c.config(ctx)
	if err != nil {
		return Flow{}, "", err
	}
	f := Flow{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Until: now.Add(FlowTime)}
	return f, config.AuthCodeURL(f.State, oauth2.S256ChallengeOption(f.Verifier), oauth2.SetAuthURLParam("nonce", f.Nonce)), nil
}

// Finish returns the verified id token for a flow and the query with which the issuer sends the person back. The error is a Problem.
func (c *Client) Finish(ctx context.Context, f Flow, query url.Values, now time.Time) (string, error) {
	switch {
	case !now.Before(f.Until):
		return "", &Problem{Status: http.StatusBadRequest, Reason: "expired", cause: errFlow}
	case !equal(f.State, query.Get("state")):
		return "", &Problem{Status: http.StatusBadRequest, Reason: "state", cause: errFlow}
	case query.Get("error") != "":
		code := errorCode(query.Get("error"))
		return "", &Problem{Status: http.StatusUnauthorized, Reason: "denied", About: []any{code}, cause: errors.New(code)}
	default:
		return c.exchange(ctx, query.Get("code"), f)
	}
}

// metadata are the parts of the discovery document (OpenID Connect Discovery 1.0, section 3) that the flow needs.
type metadata struct {
	Issuer  string   `json:"issuer"`
	Auth    string   `json:"authorization_endpoint"`
	Token   string   `json:"token_endpoint"`
	Scopes  []string `json:"scopes_supported"`
	Methods []string `json:"token_endpoint_auth_methods_supported"`
}

// config reads the metadata of the issuer, at most for discoveryTimeout, unless they are known.
func (c *Client) config(ctx context.Context) (*oauth2.Config, error) {
	if known := c.known.Load(); known != nil {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Issuer, "/")+"/.well-known/openid-configuration", http.NoBody)
	if err != nil {
		return nil, away(err)
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, away(err)
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	var found metadata
	if response.StatusCode != http.StatusOK {
		return nil, away(errors.New(response.Status))
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(&found); err != nil {
		return nil, away(err)
	}
	if found.Issuer != c.Issuer || found.Auth == "" || found.Token == "" {
		return nil, away(errors.New("its discovery document is incomplete, or of another issuer"))
	}
	config := c.configured(found)
	c.known.Store(config)
	return config, nil
}

func (c *Client) configured(found metadata) *oauth2.Config {
	scopes := []string{"openid"}
	for _, scope := range []string{"profile", "email", "groups"} { // an issuer may refuse the ones that it does not know
		if slices.Contains(found.Scopes, scope) {
			scopes = append(scopes, scope)
		}
	}
	style := oauth2.AuthStyleInHeader // the default of OpenID Connect
	if c.Secret == nil || len(found.Methods) > 0 && !slices.Contains(found.Methods, "client_secret_basic") {
		style = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: c.ID, Scopes: scopes, RedirectURL: c.Redirect,
		Endpoint: oauth2.Endpoint{AuthURL: found.Auth, TokenURL: found.Token, AuthStyle: style},
	}
}

// authenticated is how the client comes to the issuer with its secret.
func (c *Client) authenticated(ctx context.Context) (*oauth2.Config, error) {
	config, err := c.config(ctx)
	if err != nil || c.Secret == nil {
		return config, err
	}
	own := *config
	if own.ClientSecret, err = c.Secret(); err != nil {
		return nil, &Problem{Status: http.StatusBadGateway, Reason: "client", cause: err}
	}
	return &own, nil
}

// exchange gets the id token for the code of a flow, and verifies that it was issued for that flow.
func (c *Client) exchange(ctx context.Context, code string, f Flow) (string, error) {
	config, err := c.authenticated(ctx)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	answer, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, &c.client), code, oauth2.VerifierOption(f.Verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && slices.Contains(ofTheClient, refused.ErrorCode):
		return "", &Problem{Status: http.StatusBadGateway, Reason: "client", cause: errors.New(refused.ErrorCode)}
	case errors.As(err, &refused) && refused.Response.StatusCode < http.StatusInternalServerError:
		return "", &Problem{Status: http.StatusUnauthorized, Reason: "code", cause: errors.New(errorCode(refused.ErrorCode))} // the answer itself may hold secrets
	case errors.As(err, &refused):
		return "", away(errors.New(refused.Response.Status))
	case err != nil:
		return "", away(err)
	}
	idToken, _ := answer.Extra("id_token").(string)
	if err := c.Verify(ctx, idToken); domain.KindOf(err) == domain.Unavailable {
		return "", away(err)
	} else if err != nil {
		return "", &Problem{Status: http.StatusUnauthorized, Reason: "untrusted", cause: err}
	}
	var issued struct {
		Nonce string `json:"nonce"`
	}
	if !Claims(idToken, &issued) || !equal(issued.Nonce, f.Nonce) {
		return "", &Problem{Status: http.StatusUnauthorized, Reason: "untrusted", cause: errors.New("another nonce")}
	}
	return idToken, nil
}

// equal compares secrets in constant time. An empty one is equal to none.
func equal(one, other string) bool {
	return one != "" && subtle.ConstantTimeCompare([]byte(one), []byte(other)) == 1
}

var codes = regexp.MustCompile(`^[a-z_]{1,40}$`)

// errorCode is an error code of OAuth 2.0 as it may be shown and logged.
func errorCode(code string) string {
	if !codes.MatchString(code) {
		return "unknown error"
	}
	return code
}

// Claims reads the claims of a JSON web token without verifying it, and reports whether that is possible.
func Claims(token string, into any) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return false
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	return err == nil && json.Unmarshal(raw, into) == nil
}
