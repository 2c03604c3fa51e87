// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"crypto/rand"
	"errors"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

const downloadAudience = "muster-download"

// downloadTTL is how long an address that needs no header is good.
const downloadTTL = time.Hour

type downloadClaims struct {
	jwt.RegisteredClaims
	Address      string `json:"addr"`
	Organization string `json:"org,omitempty"`
	Admin        bool   `json:"adm,omitempty"`
}

// ForDownload is a token that opens one address, path and query, as the person could that it is made for.
func (a *Authority) ForDownload(address string, by domain.Principal) (raw string, expires time.Time, err error) {
	now := a.options.Now()
	expires = now.Add(downloadTTL)
	c := downloadClaims{Address: address, Organization: by.Organization, Admin: by.Admin, RegisteredClaims: jwt.RegisteredClaims{
		Issuer: issuer, Audience: jwt.ClaimStrings{downloadAudience}, Subject: by.User, ID: rand.Text()[:16],
		IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
	}}
	raw, err = jwt.NewWithClaims(jwt.SigningMethodEdDSA, c).SignedString(a.options.Key)
	return raw, expires, err
}

// VerifyDownload says for whom a token opens an address. It answers with one of the errors of this package.
func (a *Authority) VerifyDownload(raw, address string) (domain.Principal, error) {
	if err := algorithm(raw, "EdDSA"); err != nil {
		return domain.Principal{}, err
	}
	var c downloadClaims
	_, err := jwt.ParseWithClaims(raw, &c, func(*jwt.Token) (any, error) { return a.options.Key.Public(), nil },
		jwt.WithValidMethods([]string{"EdDSA"}), jwt.WithIssuer(issuer), jwt.WithAudience(downloadAudience),
		jwt.WithExpirationRequired(), jwt.WithTimeFunc(a.options.Now))
	if err := classify(err); err != nil {
		return domain.Principal{}, err
	}
	if c.Address != address {
		return domain.Principal{}, ErrForeign
	}
	return domain.Principal{User: c.Subject, Organization: c.Organization, Admin: c.Admin}, nil
}

// IsDownload is true for what claims to be a token for one address.
func IsDownload(raw string) bool {
	if raw == "" { // as in most requests
		return false
	}
	var c jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(raw, &c)
	return (err == nil || errors.Is(err, jwt.ErrTokenUnverifiable)) && len(c.Audience) == 1 && c.Audience[0] == downloadAudience
}
