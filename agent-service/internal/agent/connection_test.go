// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFirstBootDataIsTakenWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	for size, whole := range map[int]bool{12 << 20: true, maxFirstBoot: true, maxFirstBoot + 1: false} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
		t.Cleanup(server.Close)
		connection, err := NewConnection(server.URL, uuid.New(), "", server.Client())
		require.NoError(t, err)
		data, err := connection.FirstBoot(t.Context(), "/first-boot")
		if whole {
			require.NoError(t, err)
			assert.Len(t, data, size)
			continue
		}
		require.ErrorContains(t, err, "first-boot data has more than")
		assert.Equal(t, http.StatusRequestEntityTooLarge, statusOf(err), "asking again does not help")
	}
}
