// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package bodylimit

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEachHasOneTurn(t *testing.T) {
	turns := NewTurns[string](2)
	a := turns.Take("a")
	require.NotNil(t, a)
	assert.Nil(t, turns.Take("a"), "it has one")
	b := turns.Take("b")
	require.NotNil(t, b)
	assert.Nil(t, turns.Take("c"), "there are two")
	a()
	assert.NotNil(t, turns.Take("a"))
	b()
	assert.NotNil(t, turns.Take("b"))
}

func TestABodyArrivesOrEnds(t *testing.T) {
	const never = time.Hour
	for name, c := range map[string]struct {
		pause, whole time.Duration
		// send writes the body.
		send func(t *testing.T, body io.Writer)
		want string
	}{
		"nothing more comes": {100 * time.Millisecond, never, func(_ *testing.T, body io.Writer) { _, _ = io.WriteString(body, "a") }, ""},
		"a little comes for ever": {never, 100 * time.Millisecond, func(t *testing.T, body io.Writer) {
			for ticks := time.NewTicker(5 * time.Millisecond); ; {
				select {
				case <-t.Context().Done():
					return
				case <-ticks.C:
					if _, err := io.WriteString(body, "a"); err != nil {
						return
					}
				}
			}
		}, ""},
		"all comes": {time.Minute, time.Minute, func(_ *testing.T, body io.Writer) {
			_, _ = io.WriteString(body, "abc")
			_ = body.(io.Closer).Close()
		}, "abc"},
	} {
		t.Run(name, func(t *testing.T) {
			type outcome struct {
				got string
				err error
			}
			read := make(chan outcome, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(Paced(w, r.Body, c.pause, c.whole))
				read <- outcome{string(got), err}
			}))
			defer server.Close()
			body, writer := io.Pipe()
			defer func() { _ = writer.Close() }()
			go c.send(t, writer)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
			require.NoError(t, err)
			response, err := server.Client().Do(request)
			if err == nil {
				require.NoError(t, response.Body.Close())
			}
			has := <-read
			if c.want == "" {
				require.ErrorIs(t, has.err, os.ErrDeadlineExceeded)
				return
			}
			require.NoError(t, has.err)
			assert.Equal(t, c.want, has.got)
		})
	}
}

// TestARequestGoesOnAfterItsBody has a handler that works for longer than the body may take: the connection is read then, to see that the client is still there.
func TestARequestGoesOnAfterItsBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const pause = 50 * time.Millisecond
		if _, err := io.ReadAll(Paced(w, r.Body, pause, pause)); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusServiceUnavailable)
		case <-time.After(4 * pause):
		}
	}))
	defer server.Close()
	for range 2 { // on the same connection
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("abc"))
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusOK, response.StatusCode)
	}
}
