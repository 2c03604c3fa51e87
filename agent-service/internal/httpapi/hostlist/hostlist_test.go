// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostlist

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

var errAway = errors.New("the database is away")

// listOf are hosts of which inventories can be read so often.
func listOf(hosts, reads int) *List {
	l := &List{Total: 2 * hosts, Shown: func(h *domain.Host) api.Host { return api.Host{ID: uuid.MustParse(h.HostID)} }}
	for range hosts {
		l.Hosts = append(l.Hosts, domain.Host{HostKey: domain.HostKey{HostID: uuid.NewString()}})
	}
	l.Inventories = func(some []domain.Host) (map[domain.HostKey][]byte, error) {
		if reads--; reads < 0 {
			return nil, errAway
		}
		found := map[domain.HostKey][]byte{}
		for _, h := range some {
			found[h.HostKey] = []byte(`{"hostname":"` + h.HostID + `"}`)
		}
		return found, nil
	}
	return l
}

func TestHostsAreWrittenAsTheyAreRead(t *testing.T) {
	for _, count := range []int{0, 1, atOnce, atOnce + 1, 3*atOnce - 1} {
		l := listOf(count, 3)
		list, cluster := httptest.NewRecorder(), httptest.NewRecorder()
		require.NoError(t, l.VisitListHostsResponse(list))
		assert.Equal(t, "application/json", list.Header().Get("Content-Type"))
		require.NoError(t, (&Cluster{api.Cluster{Name: `a "b" <c>`}, listOf(count, 3)}).VisitGetClusterResponse(cluster))
		var hosts []api.Host
		require.NoError(t, json.Unmarshal(list.Body.Bytes(), &hosts), list.Body)
		require.Len(t, hosts, count)
		for i := range hosts {
			assert.Equal(t, l.Hosts[i].HostID, hosts[i].ID.String())
			assert.Contains(t, hosts[i].Inventory, l.Hosts[i].HostID)
		}
		var whole api.Cluster
		require.NoError(t, json.Unmarshal(cluster.Body.Bytes(), &whole), cluster.Body)
		assert.Equal(t, `a "b" <c>`, whole.Name)
		assert.Len(t, whole.Hosts, count)
		assert.Equal(t, http.StatusOK, cluster.Code)
		changed := httptest.NewRecorder()
		require.NoError(t, (&Cluster{whole, listOf(count, 3)}).VisitUpdateClusterResponse(changed))
		assert.Equal(t, http.StatusCreated, changed.Code)
		assert.True(t, json.Valid(changed.Body.Bytes()), changed.Body)
	}
}

func TestAListWithoutAnEndIsNoJSON(t *testing.T) {
	for reads, begins := range map[int]bool{0: false, 1: true} {
		answer := httptest.NewRecorder()
		require.ErrorIs(t, (&Cluster{api.Cluster{Name: "c"}, listOf(2*atOnce, reads)}).VisitInstallClusterResponse(answer), errAway)
		assert.Equal(t, begins, answer.Code == http.StatusAccepted, "the status is free for the error")
		assert.Equal(t, begins, answer.Body.Len() > 0, "an error before the first host is answered as such")
		assert.False(t, json.Valid(answer.Body.Bytes()))
		assert.LessOrEqual(t, strings.Count(answer.Body.String(), "hostname"), atOnce)
	}
}
