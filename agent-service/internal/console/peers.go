// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"cmp"
	"slices"

	"github.com/google/uuid"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/console/machinefilter"
	"github.com/muster-io/muster/agent-service/internal/console/status"
)

const (
	// mostPeers is how many hosts of a cluster are asked for, and mostDrawn how many of them a picture shows, those with problems first.
	mostPeers, mostDrawn = 200, 24
	// peerStep is the distance of two peers in the picture, mostLetters what fits of a name.
	peerStep, mostLetters = 30, 26
)

// peersPicture is the way from a machine to the others of its cluster.
type peersPicture struct {
	Name           string
	Peers          []peer
	Reached, Total int
}

// peer is a machine at the end of a way.
type peer struct {
	machine
	// Says is how it is reached, in words, and Tone in a colour.
	Says, Tone string
	at         int
}

// Y is where the peer is drawn.
func (p peer) Y() int { return p.at*peerStep + peerStep/2 }

// Short is the name as far as it fits.
func (p peer) Short() string { return short(p.Name()) }

// Short is the name of the machine as far as it fits.
func (p *peersPicture) Short() string { return short(p.Name) }

// Height of the picture, in its own units.
func (p *peersPicture) Height() int { return len(p.Peers) * peerStep }

// Middle is where the machine itself is drawn.
func (p *peersPicture) Middle() int { return p.Height() / 2 }

// More is how many peers are not drawn.
func (p *peersPicture) More() int { return p.Total - len(p.Peers) }

func short(name string) string {
	if letters := []rune(name); len(letters) > mostLetters {
		return string(letters[:mostLetters-1]) + "…"
	}
	return name
}

// peersOf draws the ways of a machine that is in a cluster and has tried them; nil for any other.
func (v *visit) peersOf(m *machine, n named) (*peersPicture, error) {
	if m.ClusterID == (uuid.UUID{}) || !m.Peers.Tried {
		return nil, nil
	}
	hosts, total, err := v.hosts(machinefilter.Filter{Cluster: &m.ClusterID}, mostPeers, 0)
	if err != nil {
		return nil, err
	}
	p := &peersPicture{Name: m.Name(), Total: max(total-1, 0)}
	for i := range hosts {
		if hosts[i].ID == m.ID {
			continue
		}
		next := peer{machine: newMachine(hosts[i], n)}
		next.Says, next.Tone = way(m.Peers, hosts[i].Peers, m.ID.String(), hosts[i].ID.String())
		if next.Tone != status.Bad {
			p.Reached++
		}
		p.Peers = append(p.Peers, next)
	}
	order := []string{status.Bad, status.Warn, status.OK}
	slices.SortStableFunc(p.Peers, func(a, b peer) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Tone), slices.Index(order, b.Tone)), cmp.Compare(a.Name(), b.Name()))
	})
	p.Peers = p.Peers[:min(len(p.Peers), mostDrawn)]
	for i := range p.Peers {
		p.Peers[i].at = i
	}
	if len(p.Peers) == 0 {
		return nil, nil
	}
	return p, nil
}

// way says how a machine reaches a peer, by what both of them found out; the worst counts.
func way(here, there api.HostPeers, host, peer string) (says, tone string) {
	switch {
	case slices.Contains(here.Unreachable, peer):
		return t("peer.unreachable"), status.Bad
	case slices.Contains(there.Unreachable, host):
		return t("peer.back"), status.Bad
	case here.Lossy[peer] > 0:
		return t("peer.lossy", here.Lossy[peer]), status.Warn
	case here.Slow[peer] > 0:
		return t("peer.slow", here.Slow[peer]), status.Warn
	case slices.Contains(here.ShortMtu, peer):
		return t("peer.short_mtu"), status.Warn
	default:
		return t("peer.reached"), status.OK
	}
}
