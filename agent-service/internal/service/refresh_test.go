// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// memberHosts makes a cluster with n hosts, each with a card and an address of its own.
func (w *testEnv) memberHosts(n int) (*domain.Cluster, []domain.HostKey) {
	w.t.Helper()
	e, c := w.infraEnv(alice), w.cluster(alice)
	keys := make([]domain.HostKey, n)
	for i := range keys {
		keys[i] = w.register(e, fmt.Sprintf("n%d", i))
		w.inventory(keys[i], fmt.Sprintf("n%d", i), i, i)
		_, err := w.BindHost(w.t.Context(), alice, keys[i], c.ID, false)
		require.NoError(w.t, err)
	}
	return c, keys
}

// inventory reports a host with the name, the card and the address.
func (w *testEnv) inventory(key domain.HostKey, name string, card, address int) {
	w.t.Helper()
	w.reply(key, agentproto.StepInventory, 0, machine(name, func(i *hardware.Inventory) {
		i.Interfaces[0].MACAddress = fmt.Sprintf("52:54:00:00:%02x:%02x", card/256, card%256)
		i.Interfaces[0].IPV4Addresses = []string{fmt.Sprintf("192.0.2.%d/24", address+1)}
	}))
}

func connectivity(reached bool, others ...domain.HostKey) string {
	report := map[string]any{}
	var hosts []any
	for _, other := range others {
		hosts = append(hosts, map[string]any{"host_id": other.HostID, "l3_connectivity": []any{map[string]any{"successful": reached, "average_rtt_ms": 1.0}}})
	}
	report["remote_hosts"] = hosts
	encoded, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	return string(encoded)
}

func (w *testEnv) result(key domain.HostKey, id string) validate.Result {
	w.t.Helper()
	h, err := w.GetHost(w.t.Context(), admin, key)
	require.NoError(w.t, err)
	for _, r := range h.Validations {
		if r.ID == id {
			return r
		}
	}
	require.Fail(w.t, "there is no validation "+id)
	return validate.Result{}
}

// TestAReplyRefreshesWhatItChanges shows that a check of one host assesses that host, and that what others see of it assesses them, too.
func TestAReplyRefreshesWhatItChanges(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.memberHosts(4)
	revisions := func() (all []int64) {
		for _, key := range keys {
			h, err := w.GetHost(t.Context(), admin, key)
			require.NoError(t, err)
			all = append(all, h.Revision)
		}
		return all
	}
	service.Review(w.Service, c.ID, false)
	before := revisions()
	w.reply(keys[0], agentproto.StepConnectivity, 0, connectivity(false, keys[1:3]...))
	after := revisions()
	assert.Equal(t, append([]int64{before[0] + 1}, before[1:]...), after)
	assert.Equal(t, validate.Failure, w.result(keys[0], "belongs-to-majority-group").Status)

	statements := w.store.Statements.Load()
	w.reply(keys[0], agentproto.StepConnectivity, 0, connectivity(false, keys[1:3]...))
	assert.Equal(t, statements, w.store.Statements.Load(), "the same again changes nothing, and asks the database nothing")

	w.inventory(keys[0], "n1", 0, 1)
	for _, id := range []string{"hostname-unique", "no-ip-collisions-in-network"} {
		for i, want := range []validate.Status{validate.Failure, validate.Failure, validate.Success} {
			assert.Equal(t, want, w.result(keys[i], id).Status, "%s of %d", id, i)
		}
	}
	w.inventory(keys[0], "n0", 0, 0)
	assert.Equal(t, validate.Success, w.result(keys[1], "hostname-unique").Status)
	assert.Equal(t, validate.Success, w.result(keys[1], "no-ip-collisions-in-network").Status)

	require.NoError(t, w.DeleteHost(t.Context(), alice, keys[2]))
	assert.Equal(t, validate.Success, w.result(keys[0], "belongs-to-majority-group").Status, "one host that is not reached is left, and the other one is gone")
}

// TestAClusterIsReviewed shows that the hosts of a cluster are assessed again from time to time, whatever they report.
func TestAClusterIsReviewed(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.memberHosts(2)
	minimums := w.Minimums["worker"]
	w.Minimums = validate.Minimums{"auto-assign": {CPUs: 64}, "worker": minimums, "master": minimums}
	service.Review(w.Service, c.ID, false)
	w.reply(keys[0], agentproto.StepConnectivity, 0, connectivity(true, keys[1]))
	assert.Equal(t, validate.Success, w.result(keys[1], "has-min-cpu-cores").Status)
	service.Review(w.Service, c.ID, true)
	w.reply(keys[0], agentproto.StepConnectivity, 0, connectivity(true, keys[1]))
	assert.Equal(t, validate.Failure, w.result(keys[1], "has-min-cpu-cores").Status)
}

// TestARefreshWakesNoOtherHost shows that polls of other hosts of the cluster stay held.
func TestARefreshWakesNoOtherHost(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.memberHosts(3)
	service.Review(w.Service, c.ID, true)
	woken := service.Woken(w.Service, keys[2])
	w.reply(keys[0], agentproto.StepConnectivity, 0, connectivity(false, keys[1]))
	assert.False(t, woken(), "the host did not change")
	w.inventory(keys[0], "n2", 0, 0)
	assert.True(t, woken(), "its name is another one's now")
}
