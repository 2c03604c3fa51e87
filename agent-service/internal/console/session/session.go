// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package session keeps who is signed in to the console in the browser, encrypted.
package session

import (
	"bytes"
	"compress/flate"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/console/oidc"
)

const (
	// CookieName begins the names of the cookies of a session, and is the label that it is sealed with.
	CookieName = "muster-console"
	// MaxToken is how many bytes a token has at most.
	MaxToken = 16 << 10
	// longest is how long a session lasts at most. The API refuses a token that ends before.
	longest = 12 * time.Hour
	// A browser keeps at least 4096 bytes of a cookie with its name and attributes; longer sessions are kept in several.
	cookieBytes, cookieMost = 3600, 4
)

var (
	// ErrNone is the error for a browser that is not signed in.
	ErrNone = errors.New("no session")
	// ErrTooLong is the error for a token that browsers cannot keep.
	ErrTooLong = errors.New("the session does not fit into cookies")
)

// Session is what the browser of a person keeps, encrypted: the token of the API, and what forms have to repeat.
type Session struct {
	Token string
	CSRF  string
	Until time.Time
}

// Holds reports whether a form repeats the CSRF token of the session.
func (s Session) Holds(csrf string) bool {
	return s.CSRF != "" && subtle.ConstantTimeCompare([]byte(s.CSRF), []byte(csrf)) == 1
}

// Person is the name in the token, empty where it has none. It is only shown: the API decides whose token it is.
func (s Session) Person() string {
	var found struct {
		Name    string `json:"preferred_username"`
		Email   string `json:"email"`
		Subject string `json:"sub"`
	}
	if !oidc.Claims(s.Token, &found) {
		return ""
	}
	for _, name := range []string{found.Name, found.Email, found.Subject} {
		if name != "" {
			return name
		}
	}
	return ""
}

// Vault encrypts sessions with a key that all replicas share, so that each serves the sessions of the others and none keeps any.
type Vault struct {
	aead cipher.AEAD
	path string
	now  func() time.Time
}

// NewVault derives the key of sessions from a secret. Browsers send sessions to addresses below the path.
func NewVault(secret []byte, path string, now func() time.Time) (*Vault, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, "muster console session", 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of sessions: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("preparing the key of sessions: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("preparing the key of sessions: %w", err)
	}
	return &Vault{aead, path, now}, nil
}

// Seal packs and encrypts a value. It is unsealed with the same label only.
func (v *Vault) Seal(label string, value any) (string, error) {
	plain, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("writing a cookie: %w", err)
	}
	var packed bytes.Buffer
	writer, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return "", fmt.Errorf("packing a cookie: %w", err)
	}
	_, err = writer.Write(plain)
	if err = errors.Join(err, writer.Close()); err != nil {
		return "", fmt.Errorf("packing a cookie: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(v.aead.Seal(nil, nil, packed.Bytes(), []byte(label))), nil //nolint:gosec // the nonce is random: NewGCMWithRandomNonce makes it
}

// Unseal reads what Seal returned for the label. The error for anything else is ErrNone.
func (v *Vault) Unseal(label, sealed string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) == 0 {
		return ErrNone
	}
	packed, err := v.aead.Open(nil, nil, raw, []byte(label))
	if err != nil {
		return ErrNone
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), 2*MaxToken))
	if err != nil || json.Unmarshal(plain, into) != nil {
		return ErrNone
	}
	return nil
}

// Begin makes a session for a token and hands it to the browser.
func (v *Vault) Begin(w http.ResponseWriter, token string, https bool) error {
	sealed, err := v.Seal(CookieName, Session{Token: token, CSRF: rand.Text(), Until: v.now().Add(longest)})
	if err != nil {
		return err
	}
	if len(sealed) > cookieBytes*cookieMost {
		return ErrTooLong
	}
	for i := range cookieMost {
		part := sealed[min(i*cookieBytes, len(sealed)):min((i+1)*cookieBytes, len(sealed))]
		v.setCookie(w, i, part, https)
	}
	return nil
}

// setCookie keeps a part of a session, or removes what is left of a longer one.
func (v *Vault) setCookie(w http.ResponseWriter, i int, part string, https bool) {
	cookie := &http.Cookie{Name: CookieName + strconv.Itoa(i), Value: part, Path: v.path, HttpOnly: true, Secure: https, SameSite: http.SameSiteStrictMode} //nolint:gosec // Secure where browsers come by TLS
	if part == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// Open reads the session of a request.
func (v *Vault) Open(r *http.Request) (Session, error) {
	var sealed strings.Builder
	for i := range cookieMost {
		cookie, err := r.Cookie(CookieName + strconv.Itoa(i))
		if err != nil {
			break
		}
		sealed.WriteString(cookie.Value)
	}
	var s Session
	if err := v.Unseal(CookieName, sealed.String(), &s); err != nil || !v.now().Before(s.Until) {
		return Session{}, ErrNone
	}
	return s, nil
}

// Forget removes the session from the browser.
func (v *Vault) Forget(w http.ResponseWriter, r *http.Request, https bool) {
	for i := range cookieMost {
		if _, err := r.Cookie(CookieName + strconv.Itoa(i)); err == nil {
			v.setCookie(w, i, "", https)
		}
	}
}
