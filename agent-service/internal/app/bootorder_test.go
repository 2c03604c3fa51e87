// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/token"
)

// A service that has not read its hosts names no image to a machine: it may be installed.
func TestNoImageIsNamedToAMachineBeforeTheHostsAreKnown(t *testing.T) {
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "a.db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	svc := service.New(db, service.Options{})
	key, err := token.Key(filepath.Join(t.TempDir(), "a.key"))
	require.NoError(t, err)
	authority, err := token.New(token.Options{Key: key, Generations: svc})
	require.NoError(t, err)
	env, err := svc.CreateInfraEnv(t.Context(), domain.Kubernetes, domain.NewInfraEnv{Name: "e"})
	require.NoError(t, err)
	short, err := authority.Short(env.ID, env.Generations)
	require.NoError(t, err)
	mux := http.NewServeMux()
	newDiscovery(Options{}, nil, svc, authority, "", nil, zap.NewNop()).mount(mux)
	asks := func(query string) *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, bootOrderPath+short+"/ipxe-script"+query, http.NoBody))
		return answer
	}
	const machine = "?mac=52:54:00:00:00:01"
	answer := asks(machine)
	assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
	assert.Equal(t, "5", answer.Header().Get("Retry-After"))
	assert.NotContains(t, answer.Body.String(), "ipxe")
	assert.Equal(t, http.StatusOK, asks("").Code, "it is asked again with a MAC")

	start(t, svc.Run)
	require.Eventually(t, func() bool { return asks(machine).Code == http.StatusOK }, patience, 10*time.Millisecond)
	assert.Contains(t, asks(machine).Body.String(), "/images/"+short+"/ipxe-script", "a machine that is not known boots the discovery image")
}
