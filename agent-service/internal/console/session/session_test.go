// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"crypto/rand"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// jar hands the cookies of an answer back, as a browser does.
func jar(answer *httptest.ResponseRecorder) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/console/", http.NoBody)
	for _, cookie := range answer.Result().Cookies() {
		if cookie.MaxAge >= 0 {
			r.AddCookie(cookie)
		}
	}
	return r
}

func vaultOf(t *testing.T, key string, now func() time.Time) *Vault {
	t.Helper()
	v, err := NewVault([]byte(key), "/console", now)
	require.NoError(t, err)
	return v
}

func TestASessionIsReadByReplicasWithTheSameKeyAlone(t *testing.T) {
	one, other := vaultOf(t, "key", time.Now), vaultOf(t, "key", time.Now)
	long := rand.Text()
	for len(long) < 6000 { // as long as a token with many groups, which does not compress
		long += rand.Text()
	}
	for _, token := range []string{"", "a.b.c", long} {
		answer := httptest.NewRecorder()
		require.NoError(t, one.Begin(answer, token, true))
		for _, cookie := range answer.Result().Cookies() {
			assert.True(t, cookie.HttpOnly && cookie.Secure && cookie.SameSite == http.SameSiteStrictMode, cookie.Name)
			assert.Less(t, len(cookie.String()), 4096)
			if token != "" {
				assert.NotContains(t, cookie.Value, token)
			}
		}
		found, err := other.Open(jar(answer))
		require.NoError(t, err)
		assert.Equal(t, token, found.Token)
		assert.True(t, found.Holds(found.CSRF))
		assert.False(t, found.Holds("") || found.Holds(found.CSRF+"x"))

		_, err = vaultOf(t, "another key", time.Now).Open(jar(answer))
		require.ErrorIs(t, err, ErrNone)
		_, err = vaultOf(t, "key", func() time.Time { return time.Now().Add(longest) }).Open(jar(answer))
		require.ErrorIs(t, err, ErrNone, "it ended")
		forged := jar(answer)
		name, value, _ := strings.Cut(forged.Header.Get("Cookie"), "=")
		forged.Header.Set("Cookie", name+"="+map[bool]string{true: "B", false: "A"}[value[0] == 'A']+value[1:])
		_, err = other.Open(forged)
		require.ErrorIs(t, err, ErrNone)
	}
	for len(long) < 2*cookieMost*cookieBytes {
		long += rand.Text()
	}
	require.ErrorIs(t, one.Begin(httptest.NewRecorder(), long, true), ErrTooLong)
}

func TestAShorterSessionLeavesNothingOfALongerOne(t *testing.T) {
	v := vaultOf(t, "key", time.Now)
	answer := httptest.NewRecorder()
	require.NoError(t, v.Begin(answer, "a.b.c", false))
	removed := 0
	for _, cookie := range answer.Result().Cookies() {
		if cookie.MaxAge < 0 {
			removed++
		}
	}
	assert.Equal(t, cookieMost-1, removed)
	assert.Equal(t, "jane", Session{Token: "x.eyJzdWIiOiJqYW5lIn0.y"}.Person())
	assert.Empty(t, Session{Token: "opaque"}.Person())
}
