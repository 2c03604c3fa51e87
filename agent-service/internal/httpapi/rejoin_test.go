// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package httpapi_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
)

// bootstrapToken is that of each node that lost its certificate.
const bootstrapToken = "abcdef.fedcba9876543210"

// The token of a node is in the answer to the poll of its own installed system, and nowhere else.
func TestTheTokenOfANodeIsInTheAnswerToItsOwnPoll(t *testing.T) {
	w := newTestEnv(t)
	admin := w.person("root", "admins")
	env, cluster := w.infraEnv(admin, "e"), w.cluster(admin, "c")
	require.Equal(t, 201, w.call(admin, "PATCH", "/clusters/"+cluster, map[string]any{"control_plane_count": 1}).status)
	host, token := w.host(env)
	w.install(admin, host, token, cluster)
	first := w.call(caller{"X-Secret-Key": token}, "GET", host+"/first-boot", nil)
	found := inFirstBoot.FindStringSubmatch(first.raw)
	require.Len(t, found, 2, first.raw)
	installed := caller{"X-Secret-Key": found[1]}
	require.Equal(t, 200, w.call(installed, "PUT", host+"/progress", map[string]any{"current_stage": "Done"}).status)
	key := domain.HostKey{InfraEnvID: env, HostID: host[strings.LastIndex(host, "/")+1:]}
	require.NoError(t, w.service.NoteNode(t.Context(), key, cluster, domain.Node{Name: "h1", Seen: true}))
	_, other := w.host(env)

	poll := host + "/instructions?wait=0"
	lost := poll + "&kubelet_certificate=expired"
	attack := func() {
		t.Helper()
		for who, c := range map[string]caller{"another host": {"X-Secret-Key": other}, "the image": {"X-Secret-Key": w.image(env)}, "the agent": {"X-Secret-Key": token}, "a user": admin} {
			a := w.call(c, "GET", lost, nil)
			assert.NotContains(t, a.raw, bootstrapToken, who)
			assert.NotContains(t, a.raw, "join-cluster", who)
			if who == "another host" {
				assert.Equal(t, 404, a.status)
			}
		}
	}
	attack()
	for _, said := range []string{poll, poll + "&kubelet_certificate=valid", poll + "&kubelet_certificate=revoked"} {
		a := w.call(installed, "GET", said, nil)
		assert.Equal(t, 200, a.status, "words of newer agents are taken")
		assert.NotContains(t, a.raw, "join-cluster")
	}
	given := w.call(installed, "GET", lost, nil)
	require.Equal(t, 200, given.status, given.raw)
	assert.Contains(t, given.raw, bootstrapToken)
	attack()
	for _, path := range []string{host, "/clusters/" + cluster, "/events?infra_env_id=" + env, "/events?cluster_id=" + cluster} {
		a := w.call(admin, "GET", path, nil)
		require.Equal(t, 200, a.status, a.raw)
		assert.NotContains(t, a.raw, bootstrapToken[:6], path)
	}
	assert.Contains(t, w.call(admin, "GET", "/events?cluster_id="+cluster, nil).raw, "the client certificate of the kubelet of node h1 is expired")
	require.Equal(t, 200, w.call(admin, "POST", host+"/actions/revoke-tokens", nil).status)
	assert.Equal(t, 401, w.call(installed, "GET", lost, nil).status)
}
