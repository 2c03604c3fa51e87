// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
)

// The kubelet of a machine that runs a control plane with others would choose the address of the API, while the machine has that.
func TestANodeWithAControlPlaneHasTheAddressOfItsMember(t *testing.T) {
	member, worker := host("a"), host("worker")
	plane := &domain.ControlPlane{
		Host: member.HostKey, Server: "https://192.0.2.100:6443", Version: "v1.37.2", Shared: true,
		Members:  []domain.ControlPlaneMember{{Host: member.HostKey, Name: "a", Address: netip.MustParseAddr("192.0.2.11")}},
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
	}
	ca, secrets, err := controlplane.New(time.Now(), "blue", plane.Server)
	require.NoError(t, err)
	plane.CA = ca
	access, err := OwnAccess(plane, secrets.NodeManager)
	require.NoError(t, err)
	tokens, err := NewTokens([]byte("key"))
	require.NoError(t, err)
	joiner, cluster := &Joiner{Tokens: tokens}, &domain.Cluster{Name: "blue", ControlPlane: plane}
	values := func(h *domain.Host) *join.Values {
		t.Helper()
		made, err := joiner.valuesOf(access, h, cluster)
		require.NoError(t, err)
		return made
	}
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.11")}, values(member).NodeIPs)
	assert.Equal(t, []join.Taint{{Key: ControlPlaneLabel, Effect: "NoSchedule"}}, values(member).Taints)
	assert.Empty(t, values(worker).NodeIPs)
	assert.Empty(t, values(worker).Taints)
	member.Addressing.Given = []domain.NodeAddress{{Address: netip.MustParsePrefix("192.0.2.11/24")}, {Address: netip.MustParsePrefix("2001:db8::11/64")}}
	assert.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")}, values(member).NodeIPs)
	member.DayTwo = true
	assert.Empty(t, values(member).Taints, "a machine that was released joins again as a worker")
}
