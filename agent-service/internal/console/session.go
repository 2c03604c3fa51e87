// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

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
)

const (
	cookieName = "muster-console"
	csrfField  = "csrf"
	// sessionTime is how long a session lasts at most. The API refuses a token that ends before.
	sessionTime = 12 * time.Hour
	// A browser keeps at least 4096 bytes of a cookie with its name and attributes; longer sessions are kept in several.
	cookieBytes, cookieMost = 3600, 4
	// maxToken bounds a token that is pasted.
	maxToken = 16 << 10
)

var (
	errNoSession = errors.New("no session")
	errTooLong   = errors.New("the session does not fit into cookies")
)

// session is what the browser of a person keeps, encrypted: the token of the API, and what forms have to repeat.
type session struct {
	Token string
	CSRF  string
	Until time.Time
}

func (s session) holds(csrf string) bool {
	return s.CSRF != "" && subtle.ConstantTimeCompare([]byte(s.CSRF), []byte(csrf)) == 1
}

// Person is the name in the token, empty where it has none. It is only shown: the API decides whose token it is.
func (s session) Person() string {
	parts := strings.Split(s.Token, ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Name    string `json:"preferred_username"`
		Email   string `json:"email"`
		Subject string `json:"sub"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	for _, name := range []string{claims.Name, claims.Email, claims.Subject} {
		if name != "" {
			return name
		}
	}
	return ""
}

// vault encrypts sessions with a key that all replicas share, so that each serves the sessions of the others and none keeps any.
type vault struct {
	aead cipher.AEAD
	now  func() time.Time
}

func newVault(secret []byte, now func() time.Time) (*vault, error) {
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
	return &vault{aead, now}, nil
}

// begin makes a session for a token and hands it to the browser.
func (v *vault) begin(w http.ResponseWriter, token string, https bool) error {
	s := session{Token: token, CSRF: rand.Text(), Until: v.now().Add(sessionTime)}
	plain, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("writing a session: %w", err)
	}
	var packed bytes.Buffer
	writer, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		return fmt.Errorf("packing a session: %w", err)
	}
	_, err = writer.Write(plain)
	if err = errors.Join(err, writer.Close()); err != nil {
		return fmt.Errorf("packing a session: %w", err)
	}
	sealed := base64.RawURLEncoding.EncodeToString(v.aead.Seal(nil, nil, packed.Bytes(), []byte(cookieName))) //nolint:gosec // the nonce is random: NewGCMWithRandomNonce makes it
	if len(sealed) > cookieBytes*cookieMost {
		return errTooLong
	}
	for i := range cookieMost {
		part := sealed[min(i*cookieBytes, len(sealed)):min((i+1)*cookieBytes, len(sealed))]
		setCookie(w, i, part, https)
	}
	return nil
}

// setCookie keeps a part of a session, or removes what is left of a longer one.
func setCookie(w http.ResponseWriter, i int, part string, https bool) {
	cookie := &http.Cookie{Name: cookieName + strconv.Itoa(i), Value: part, Path: Base, HttpOnly: true, Secure: https, SameSite: http.SameSiteStrictMode} //nolint:gosec // Secure where browsers come by TLS
	if part == "" {
		cookie.MaxAge = -1
	}
	http.SetCookie(w, cookie)
}

// open reads the session of a request.
func (v *vault) open(r *http.Request) (session, error) {
	var sealed strings.Builder
	for i := range cookieMost {
		cookie, err := r.Cookie(cookieName + strconv.Itoa(i))
		if err != nil {
			break
		}
		sealed.WriteString(cookie.Value)
	}
	raw, err := base64.RawURLEncoding.DecodeString(sealed.String())
	if err != nil || len(raw) == 0 {
		return session{}, errNoSession
	}
	packed, err := v.aead.Open(nil, nil, raw, []byte(cookieName))
	if err != nil {
		return session{}, errNoSession
	}
	var s session
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), 2*maxToken))
	if err != nil || json.Unmarshal(plain, &s) != nil || !v.now().Before(s.Until) {
		return session{}, errNoSession
	}
	return s, nil
}

// forget removes the session from the browser.
func (v *vault) forget(w http.ResponseWriter, r *http.Request, https bool) {
	for i := range cookieMost {
		if _, err := r.Cookie(cookieName + strconv.Itoa(i)); err == nil {
			setCookie(w, i, "", https)
		}
	}
}
