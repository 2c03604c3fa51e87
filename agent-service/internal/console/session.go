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

	"github.com/muster-io/muster/agent-service/internal/console/oidc"
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

// seal packs and encrypts a value. It is unsealed with the same label only.
func (v *vault) seal(label string, value any) (string, error) {
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

// unseal reads what seal returned for the label. The error for anything else is errNoSession.
func (v *vault) unseal(label, sealed string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) == 0 {
		return errNoSession
	}
	packed, err := v.aead.Open(nil, nil, raw, []byte(label))
	if err != nil {
		return errNoSession
	}
	plain, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), 2*maxToken))
	if err != nil || json.Unmarshal(plain, into) != nil {
		return errNoSession
	}
	return nil
}

// begin makes a session for a token and hands it to the browser.
func (v *vault) begin(w http.ResponseWriter, token string, https bool) error {
	sealed, err := v.seal(cookieName, session{Token: token, CSRF: rand.Text(), Until: v.now().Add(sessionTime)})
	if err != nil {
		return err
	}
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
	var s session
	if err := v.unseal(cookieName, sealed.String(), &s); err != nil || !v.now().Before(s.Until) {
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
