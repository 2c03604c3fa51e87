// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// A short token stands in addresses that firmware types in: base64url of the infra-env's id (16 bytes), the generation (4) and a code (12).
// It opens downloads of the infra-env's image, ends with its generation and has no time of its own.
const (
	shortBody = 20
	shortCode = 12
)

func shortKey(key ed25519.PrivateKey) ([]byte, error) {
	derived, err := hkdf.Key(sha256.New, key.Seed(), nil, "muster agent-service short tokens", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of short tokens: %w", err)
	}
	return derived, nil
}

// Short is the short token of an infra-env: 43 characters that an address can hold.
func (a *Authority) Short(infraEnvID string, generations domain.Generations) (string, error) {
	id, err := uuid.Parse(infraEnvID)
	if err != nil {
		return "", fmt.Errorf("the id of an infra-env is a UUID: %w", err)
	}
	body := binary.BigEndian.AppendUint32(id[:], uint32(generations.ImageGeneration)) //nolint:gosec // counts revocations
	return base64.RawURLEncoding.EncodeToString(append(body, a.code(body)...)), nil
}

// VerifyShort is Verify for short tokens.
func (a *Authority) VerifyShort(ctx context.Context, short string) (Scope, error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(short)
	if err != nil || len(raw) != shortBody+shortCode {
		return Scope{}, ErrMalformed
	}
	body := raw[:shortBody:shortBody]
	if !hmac.Equal(raw[shortBody:], a.code(body)) {
		return Scope{}, ErrForeign
	}
	scope := Scope{InfraEnvID: uuid.UUID(body[:16]).String()}
	return scope, a.current(ctx, scope, int64(binary.BigEndian.Uint32(body[16:])))
}

func (a *Authority) code(body []byte) []byte {
	mac := hmac.New(sha256.New, a.short)
	mac.Write(body)
	return mac.Sum(nil)[:shortCode]
}
