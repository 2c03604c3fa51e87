// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hostplan"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

func node(state lifecycle.State) *domain.Host {
	return &domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c", State: state, Node: domain.Node{Name: "n", Seen: true}}
}

func TestALossOfACertificateHasAStampOfItsOwn(t *testing.T) {
	p, stamps := &hostplan.Plan{Now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}, 0
	p.NewStamp = func() string { stamps++; return string(rune('a' + stamps - 1)) }
	h := node(lifecycle.AddedToExistingCluster)
	p.TakeCertificate(h, agentproto.CertificateValid)
	p.TakeCertificate(h, "")
	p.TakeCertificate(h, "revoked")
	assert.Equal(t, domain.Rejoin{}, h.Node.Rejoin)
	for range 3 { // with each poll
		p.TakeCertificate(h, agentproto.CertificateExpired)
	}
	began := p.Now
	assert.Equal(t, domain.Rejoin{Stamp: "a", LostAt: began, AskedAt: began}, h.Node.Rejoin)
	assert.True(t, h.Rejoins())
	assert.Len(t, p.Recorded, 1)
	assert.Contains(t, p.Recorded[0].Message, "of node n is expired; it is given another bootstrap token")
	for range 3 { // a system that says anything
		p.TakeCertificate(h, agentproto.CertificateValid)
		p.TakeCertificate(h, agentproto.CertificateExpired)
	}
	assert.Len(t, p.Recorded, 1)
	assert.Equal(t, domain.Rejoin{Stamp: "a", LostAt: began}, h.Node.Rejoin, "the token that ends is still known by it")
	assert.False(t, h.Rejoins())
	h.Node.Rejoin.AskedAt, p.Now = began, began.Add(time.Hour)
	p.TakeCertificate(h, agentproto.CertificateExpired)
	assert.Equal(t, domain.Rejoin{Stamp: "a", LostAt: began, AskedAt: p.Now}, h.Node.Rejoin, "it still asks, with the token that it has")
	p.TakeCertificate(h, agentproto.CertificateValid)
	h.Node.Seen = false
	p.TakeCertificate(h, agentproto.CertificateMissing)
	assert.Equal(t, "b", h.Node.Rejoin.Stamp, "a former token is not good again")
	assert.False(t, h.Rejoins(), "its Node was deleted")
	assert.Contains(t, p.Recorded[1].Message, "its cluster has no such Node any more")
	h.Leave(p.Now)
	assert.Equal(t, "b", h.Release.Rejoin, "the release ends the token")
	assert.Equal(t, domain.Rejoin{}, h.Node.Rejoin)
}

// What is no node of a cluster loses nothing.
func TestOnlyANodeLosesItsCertificate(t *testing.T) {
	p := &hostplan.Plan{Now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), NewStamp: func() string { return "s" }}
	for _, state := range lifecycle.States {
		h := node(state)
		p.TakeCertificate(h, agentproto.CertificateMissing)
		assert.Equal(t, lifecycle.WasInstalled(state), h.Node.Rejoin.Lost(), state)
		assert.Equal(t, lifecycle.WasInstalled(state), h.Rejoins(), state)
	}
	free, foreign := node(lifecycle.Installed), node(lifecycle.Installed)
	free.ClusterID, foreign.Node.Name = "", ""
	for _, h := range []*domain.Host{free, foreign} {
		p.TakeCertificate(h, agentproto.CertificateMissing)
		assert.False(t, h.Node.Rejoin.Lost())
	}
}
