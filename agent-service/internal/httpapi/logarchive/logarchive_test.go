// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package logarchive

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

var errAway = errors.New("the database is away")

// archiveOf has logs of these sizes, of which the first ones can be read.
func archiveOf(reads int, sizes ...int) *Archive {
	a := &Archive{Name: "all.tar"}
	for i, size := range sizes {
		a.Logs = append(a.Logs, domain.FileInfo{Name: "logs/" + strconv.Itoa(i), Size: int64(size), UpdatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)})
	}
	a.Turn = func() (func(), error) { return func() {}, nil }
	a.Read = func(name string) ([]byte, error) {
		at, err := strconv.Atoi(strings.TrimPrefix(name, "logs/"))
		if err != nil || at >= reads {
			return nil, errAway
		}
		return []byte(strings.Repeat(strconv.Itoa(at), sizes[at])), nil
	}
	return a
}

func TestLogsAreWrittenAsTheyAreRead(t *testing.T) {
	sizes := []int{700, 0, 1, 511, 512, 513, 1024, 5000}
	answer := httptest.NewRecorder()
	a := archiveOf(len(sizes), sizes...)
	read, written := a.Read, 0
	a.Read = func(name string) ([]byte, error) {
		if name != "logs/0" {
			assert.Greater(t, answer.Body.Len(), written, "the last one was written before the next one is read")
		}
		written = answer.Body.Len()
		return read(name)
	}
	require.NoError(t, a.VisitDownloadClusterLogsResponse(answer))
	assert.Equal(t, strconv.Itoa(answer.Body.Len()), answer.Header().Get("Content-Length"))
	assert.Equal(t, "application/octet-stream", answer.Header().Get("Content-Type"))
	assert.Equal(t, `attachment; filename="all.tar"`, answer.Header().Get("Content-Disposition"))
	found := tar.NewReader(answer.Body)
	for i, size := range sizes {
		entry, err := found.Next()
		require.NoError(t, err)
		assert.Equal(t, "logs/"+strconv.Itoa(i)+".tar.gz", entry.Name)
		content, err := io.ReadAll(found)
		require.NoError(t, err)
		assert.Equal(t, strings.Repeat(strconv.Itoa(i), size), string(content))
	}
	_, err := found.Next()
	require.ErrorIs(t, err, io.EOF)
}

func TestLogsThatCannotBeReadAreNoWholeAnswer(t *testing.T) {
	answer := httptest.NewRecorder()
	require.ErrorIs(t, archiveOf(0, 10).VisitDownloadClusterLogsResponse(answer), errAway)
	assert.Zero(t, answer.Body.Len())
	assert.Empty(t, answer.Header(), "the answer is free for the error")

	for name, change := range map[string]func(a *Archive){
		"away": func(a *Archive) { *a = *archiveOf(1, 10, 20) }, "another size": func(a *Archive) { a.Logs[1].Size++ },
	} {
		a := archiveOf(2, 10, 20)
		change(a)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = a.VisitDownloadClusterLogsResponse(w) }))
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		require.NoError(t, err)
		response, err := server.Client().Do(request)
		require.NoError(t, err, name)
		_, err = io.ReadAll(response.Body)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		require.NoError(t, response.Body.Close())
		server.Close()
	}
}

// Each archive that is sent is in memory: one more waits for its turn, and is refused in the end.
func TestDownloadsOfLogsTakeTurns(t *testing.T) {
	turns, reads := NewTurns(), 0
	one := func(ctx context.Context) *One {
		return &One{Log: "logs/a", Source: Source{
			Read: func(string) ([]byte, error) { reads++; return []byte("abc"), nil },
			Turn: func() (func(), error) { return turns.Take(ctx) },
		}}
	}
	var taken []func()
	for range atOnce {
		release, err := turns.Take(t.Context())
		require.NoError(t, err)
		taken = append(taken, release)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	answer := httptest.NewRecorder()
	require.ErrorContains(t, one(gone).VisitDownloadClusterLogsResponse(answer), "others download logs at the moment; try again")
	assert.Zero(t, reads)
	assert.Empty(t, answer.Header(), "the answer is free for the error")
	taken[0]()
	for range 2 {
		answer = httptest.NewRecorder()
		require.NoError(t, one(t.Context()).VisitDownloadClusterLogsResponse(answer))
		assert.Equal(t, "abc", answer.Body.String())
		assert.Equal(t, `attachment; filename="logs_a.tar.gz"`, answer.Header().Get("Content-Disposition"))
		assert.Equal(t, "3", answer.Header().Get("Content-Length"))
	}
}

// A client that takes nothing of what is sent, or a little at a time for ever, does not keep its turn.
func TestADownloadThatStallsEnds(t *testing.T) {
	for name, c := range map[string]struct {
		stall, whole time.Duration
		// take reads of the answer until it ends.
		take func(t *testing.T, answer io.Reader)
	}{
		"nothing is taken": {50 * time.Millisecond, time.Hour, func(*testing.T, io.Reader) {}},
		"a little is taken for ever": {time.Hour, 200 * time.Millisecond, func(t *testing.T, answer io.Reader) {
			ticks := time.NewTicker(time.Millisecond)
			defer ticks.Stop()
			for {
				if _, err := io.CopyN(io.Discard, answer, 16<<10); err != nil {
					return
				}
				select {
				case <-t.Context().Done():
					return
				case <-ticks.C:
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				out := paced(w)
				out.stall, out.whole = c.stall, c.whole
				_, err := out.Write(make([]byte, 64<<20))
				ended <- err
			}))
			defer server.Close()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			require.NoError(t, err)
			response, err := server.Client().Do(request)
			require.NoError(t, err)
			c.take(t, response.Body)
			require.ErrorIs(t, <-ended, os.ErrDeadlineExceeded)
			require.NoError(t, response.Body.Close())
		})
	}
}
