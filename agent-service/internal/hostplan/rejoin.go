// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan

import (
	"cmp"
	"time"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

const (
	// askedEach is how often it is kept that an installed system still has no certificate.
	askedEach = 15 * time.Minute
	// lossPause is the least time between two losses. A system that says anything makes no more events and tokens than that.
	lossPause = 10 * time.Minute
)

// TakeCertificate keeps what the installed system of a host says of its kubelet's client certificate. Words of agents that are newer change nothing.
func (p *Plan) TakeCertificate(h *domain.Host, said agentproto.KubeletCertificate) {
	if !lifecycle.WasInstalled(h.State) || h.ClusterID == "" || h.Node.Name == "" {
		return
	}
	rejoin := &h.Node.Rejoin
	switch said {
	case agentproto.CertificateValid:
		rejoin.AskedAt = time.Time{}
	case agentproto.CertificateExpired, agentproto.CertificateMissing:
		switch {
		case !rejoin.Lost() && p.Now.Sub(rejoin.LostAt) < lossPause:
		case !rejoin.Lost():
			*rejoin = domain.Rejoin{Stamp: p.NewStamp(), LostAt: p.Now, AskedAt: p.Now}
			p.tellLost(h, said)
		case p.Now.Sub(rejoin.AskedAt) >= askedEach:
			rejoin.AskedAt = p.Now
		}
	}
}

func (p *Plan) tellLost(h *domain.Host, said agentproto.KubeletCertificate) {
	next := "it is given another bootstrap token"
	if !h.Node.Seen {
		next = "its cluster has no such Node any more, so it does not join again by itself: release the host and bind it again to use it"
	}
	p.Tell(h, h.ClusterID, domain.Warning, "host_node_certificate_lost", false, "Host %s: the client certificate of the kubelet of node %s is %s; %s", h.Label(), h.Node.Name, said, next)
}

// TakeJoin keeps why an installed system could not take what its kubelet asks for a certificate with.
func (p *Plan) TakeJoin(h *domain.Host, reply agentproto.StepReply) {
	if reply.Type != agentproto.StepJoinCluster || reply.ExitCode == 0 || !h.Rejoins() {
		return
	}
	why := domain.Truncate(domain.WithoutSecrets(cmp.Or(reply.Error, reply.Output, "the agent does not say why")), 1000)
	p.Tell(h, h.ClusterID, domain.Warning, "host_node_join_failed", false, "Host %s: node %s was not given another bootstrap token: %s", h.Label(), h.Node.Name, why)
}
