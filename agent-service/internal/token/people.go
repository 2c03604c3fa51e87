// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// People says which person a bearer token belongs to. Its errors are those of this package; ErrForeign without a token.
type People interface {
	Person(ctx context.Context, bearer string) (domain.Principal, error)
}

// Anonymous checks no token: every client is an administrator. For development only.
type Anonymous struct{}

// Person implements People.
func (Anonymous) Person(context.Context, string) (domain.Principal, error) {
	return domain.Principal{User: "admin", Admin: true}, nil
}

// Issuer accepts tokens of an OpenID Connect issuer.
type Issuer struct {
	// URL is what tokens say in iss.
	URL string
	// Audience is what tokens say in aud; empty accepts any.
	Audience string
	// UserClaim names the claim that holds the user's name; sub where it is empty or the token has none.
	UserClaim string
	// OrganizationClaim names the claim that holds the organization; empty for none.
	OrganizationClaim string
	// AdminGroup is the entry of the claim groups that makes administrators; empty for none.
	AdminGroup string
	// ViewerGroup is the entry of the claim groups that makes accounts read-only, administrators among them; empty for none. Where it is set, accounts with more groups
	// than their tokens hold are read-only.
	ViewerGroup string
	// Keys finds the keys that a token names.
	Keys Keys
	// Now is the clock.
	Now func() time.Time
}

// Keys finds the public keys of which one may have signed a token that names an id, which is empty where it names none. An unknown id is ErrForeign. misfits are those of that id that
// did not sign the token, none before they were tried: the issuer may have others by now.
type Keys interface {
	Named(ctx context.Context, id string, misfits []crypto.PublicKey) ([]crypto.PublicKey, error)
}

// asymmetric are the algorithms that people's tokens may use. A symmetric one would turn a public key into a secret.
var asymmetric = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// Person implements People.
func (i *Issuer) Person(ctx context.Context, bearer string) (domain.Principal, error) {
	if bearer == "" {
		return domain.Principal{}, ErrForeign
	}
	if err := algorithm(bearer, asymmetric...); err != nil {
		return domain.Principal{}, err
	}
	found, err := i.claims(ctx, bearer)
	if err != nil {
		return domain.Principal{}, err
	}
	return i.principal(found)
}

// claims are those of a token that the issuer signed.
func (i *Issuer) claims(ctx context.Context, bearer string) (found jwt.MapClaims, err error) {
	options := []jwt.ParserOption{
		jwt.WithValidMethods(asymmetric), jwt.WithIssuer(i.URL), jwt.WithExpirationRequired(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(i.Now),
	}
	if i.Audience != "" {
		options = append(options, jwt.WithAudience(i.Audience))
	}
	var tried []crypto.PublicKey
	var unavailable error
	parse := func() error {
		found = jwt.MapClaims{}
		_, err := jwt.ParseWithClaims(bearer, found, func(t *jwt.Token) (key any, err error) {
			id, _ := t.Header["kid"].(string)
			if tried, err = i.Keys.Named(ctx, id, tried); domain.KindOf(err) == domain.Unavailable {
				unavailable = err
			}
			var set jwt.VerificationKeySet
			for _, key := range tried {
				set.Keys = append(set.Keys, key)
			}
			return set, err
		}, options...)
		return err
	}
	if err = parse(); errors.Is(err, jwt.ErrTokenSignatureInvalid) {
		err = parse()
	}
	if unavailable != nil {
		return nil, unavailable
	}
	return found, classify(err)
}

func (i *Issuer) principal(found jwt.MapClaims) (domain.Principal, error) {
	user := text(found, i.UserClaim)
	if user == "" {
		user = text(found, "sub")
	}
	if user == "" {
		return domain.Principal{}, ErrMalformed
	}
	if i.UserClaim == emailClaim && !verified(found) {
		return domain.Principal{}, ErrUnverified
	}
	groups, all := groupsOf(found)
	return domain.Principal{
		User: user, Organization: text(found, i.OrganizationClaim),
		Admin:    i.AdminGroup != "" && slices.Contains(groups, any(i.AdminGroup)),
		ReadOnly: i.ViewerGroup != "" && (!all || slices.Contains(groups, any(i.ViewerGroup))),
	}, nil
}

// emailClaim may name users. People may give an issuer an address that is not theirs.
const emailClaim = "email"

// verified is false where an issuer says that it has not verified the email address of a token (OpenID Connect Core 1.0, section 5.1). One that says nothing is trusted, as by the
// API server of Kubernetes. Some write the claim as a text.
func verified(found jwt.MapClaims) bool {
	says, there := found["email_verified"]
	return found[emailClaim] == nil || !there || says == true || says == "true"
}

// groupsOf returns the claim groups, which is a text where an issuer writes a single one so. all is false where the issuer left the claim out because there are too many
// groups: it says then where to ask for them (OpenID Connect Core 1.0, section 5.6.2), or hasgroups.
func groupsOf(found jwt.MapClaims) (groups []any, all bool) {
	switch claim := found["groups"].(type) {
	case []any:
		return claim, true
	case string:
		return []any{claim}, true
	}
	elsewhere, _ := found["_claim_names"].(map[string]any)
	_, distributed := elsewhere["groups"]
	return nil, !distributed && (found["hasgroups"] == nil || found["hasgroups"] == false)
}

func text(found jwt.MapClaims, name string) string {
	value, _ := found[name].(string)
	return value
}

// KeyFile is one public key for all tokens.
type KeyFile struct{ key crypto.PublicKey }

// ReadKeyFile reads a public key (PKIX) or certificate from a PEM file.
func ReadKeyFile(path string) (*KeyFile, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the issuer's key: %w", err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, errors.New("the issuer's key is not PEM")
	}
	if block.Type == "CERTIFICATE" {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("reading the issuer's certificate: %w", err)
		}
		return &KeyFile{key: certificate.PublicKey}, nil
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the issuer's key: %w", err)
	}
	return &KeyFile{key: key}, nil
}

// Named implements Keys.
func (k *KeyFile) Named(context.Context, string, []crypto.PublicKey) ([]crypto.PublicKey, error) {
	return []crypto.PublicKey{k.key}, nil
}
