// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPagesOfAPersonShareWhatTheyRead: all pages that are open read themselves again at a change. Those of other people read what these may see.
func TestPagesOfAPersonShareWhatTheyRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lists sync.Map
		proceed := make(chan struct{})
		count := func(token string) *atomic.Int64 {
			n, _ := lists.LoadOrStore("Bearer "+token, &atomic.Int64{})
			return n.(*atomic.Int64)
		}
		c := served(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/hosts"):
				count(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")).Add(1)
				<-proceed
				_, _ = io.WriteString(w, "[]")
			case strings.HasSuffix(r.URL.Path, "/counts"), strings.HasSuffix(r.URL.Path, "/identity"):
				_, _ = io.WriteString(w, "{}")
			default:
				_, _ = io.WriteString(w, "[]")
			}
		})
		vault := vaultOf(t)
		var answers []*httptest.ResponseRecorder
		read := func(token, query string) {
			began, answer := httptest.NewRecorder(), httptest.NewRecorder()
			require.NoError(t, vault.Begin(began, token, false))
			r := jar(began)
			r.URL.Path, r.URL.RawQuery = Base+"/machines", query
			answers = append(answers, answer)
			go c.ServeHTTP(answer, r)
		}
		read("one", "")
		synctest.Wait()
		for range 20 {
			read("one", "")
		}
		synctest.Wait()
		assert.EqualValues(t, 1, count("one").Load(), "the others wait for the next read, which begins after they came")
		read("one", "state=free")
		read("other", "")
		synctest.Wait()
		assert.EqualValues(t, 2, count("one").Load(), "another list is read at once")
		assert.EqualValues(t, 1, count("other").Load())
		close(proceed)
		synctest.Wait()
		assert.EqualValues(t, 3, count("one").Load())
		for _, answer := range answers {
			assert.Equal(t, http.StatusOK, answer.Code)
		}
	})
}
