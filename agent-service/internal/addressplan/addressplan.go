// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package addressplan plans the claims by which hosts get addresses of pools for their installed systems: which are made, which are kept, and when an address may be given
// to another machine.
package addressplan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// Snapshot is what is known of the addresses of one host.
type Snapshot struct {
	// Agent is the name of the Agent.
	Agent string
	// Host is nil where the service does not know it.
	Host *domain.Host
	// Pools are those that the InfraEnv names.
	Pools []domain.AddressPool
	// Claims are all that say that they are for the Agent.
	Claims []Claim
	// Cards are those of the machine.
	Cards []hardware.Interface
	// Stated is true where an NMStateConfig may state a network for the machine.
	Stated bool
	// Elsewhere is true while the machine, as a host of another InfraEnv, goes on with the release of this one.
	Elsewhere bool
}

// Claim is a claim of an address.
type Claim struct {
	Name string
	Pool domain.AddressPool
	// Owned is true where the Agent is its controller: others are left alone.
	Owned bool
	// Held is true where it has the finalizer that keeps it, Deleting where it is being deleted.
	Held, Deleting bool
	// Given is the address that it has, nil for none. Refused is why it has none, or why the one that it has cannot be used.
	Given   *Given
	Refused string
}

// Given is an address as a pool gives it.
type Given struct {
	Address netip.Prefix
	Gateway netip.Addr
	DNS     []netip.Addr
}

// Decision is what is done next.
type Decision struct {
	// Choose is true where the host waits for addresses of other pools than its InfraEnv names by now. Nothing else is done before.
	Choose bool
	// Create are claims that are missing, by name.
	Create map[string]domain.AddressPool
	// Hold are names of claims that lack their finalizer, and Release those of claims whose addresses may be given to others.
	Hold, Release []string
	// Note is what the host's record is to say, nil where it does.
	Note *domain.Addressing
}

// ClaimName is the name of the claim of a pool in an installation of an Agent's machine.
func ClaimName(agent, installation string, pool domain.AddressPool) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{installation, pool.Group, pool.Kind, pool.Name}, "|")))
	return agent + "-" + hex.EncodeToString(sum[:5])
}

// Plan decides what to do for one host.
func Plan(s *Snapshot) Decision {
	switch h := s.Host; {
	case h == nil: // it is restored, or its Agent is deleted
		return Decision{}
	case h.NeedsAddresses():
		return s.assign()
	case s.Elsewhere, h.MayUseAddresses() && !h.ReleaseMoved():
		return s.keep()
	}
	d := Decision{}
	for _, claim := range s.Claims {
		d.release(claim)
	}
	d.note(s.Host, domain.Addressing{})
	return d
}

// assign gets an address of each pool for a host that can be installed when it has them.
func (s *Snapshot) assign() Decision {
	is := s.Host.Addressing
	if !slices.Equal(is.Pools, s.Pools) {
		return Decision{Choose: true}
	}
	d := Decision{Create: map[string]domain.AddressPool{}}
	wanted := map[string]bool{}
	is.Given, is.Missing = nil, ""
	var missing []string
	for _, pool := range is.Pools {
		name := ClaimName(s.Agent, is.Installation, pool)
		wanted[name] = true
		given, why := d.obtain(s, name, pool)
		if given != nil {
			is.Given = append(is.Given, *given)
		} else if why != "" {
			missing = append(missing, pool.String()+": "+why)
		}
	}
	for _, claim := range s.Claims {
		if !wanted[claim.Name] {
			d.release(claim)
		}
	}
	if len(is.Given) == 2 && is.Given[0].Address.Addr().Is4() == is.Given[1].Address.Addr().Is4() {
		missing = append(missing, fmt.Sprintf("%s and %s give addresses of the same family: name one pool per family", is.Pools[0], is.Pools[1]))
	}
	if len(missing) > 0 || len(is.Given) < len(is.Pools) {
		is.Given, is.Missing = nil, strings.Join(missing, "; ")
	}
	d.note(s.Host, is)
	return d
}

// obtain is the address of one pool, or why there is none; why is empty while an answer is outstanding.
func (d *Decision) obtain(s *Snapshot, name string, pool domain.AddressPool) (given *domain.NodeAddress, why string) {
	at := slices.IndexFunc(s.Claims, func(c Claim) bool { return c.Name == name })
	if at < 0 {
		d.Create[name] = pool
		return nil, ""
	}
	claim := s.Claims[at]
	switch {
	case !claim.Owned:
		return nil, "a claim " + name + " is there already, and does not belong to the Agent: delete it"
	case claim.Deleting:
		d.Release = append(d.Release, name) // a user deleted it; another one is made when it is gone
		return nil, "the claim " + name + " is being deleted, and made again"
	case claim.Pool.Group != pool.Group || claim.Pool.Kind != pool.Kind || claim.Pool.Name != pool.Name:
		d.release(claim)
		return nil, "the claim " + name + " names " + claim.Pool.String() + ": it is made again"
	case !claim.Held:
		d.Hold = append(d.Hold, name)
		return nil, ""
	case claim.Given == nil:
		return nil, claim.Refused
	}
	card, mac, why := s.card(pool, claim.Given.Address)
	if why != "" {
		return nil, why
	}
	return &domain.NodeAddress{Pool: pool, Interface: card, MAC: mac, Address: claim.Given.Address, Gateway: claim.Given.Gateway, DNS: claim.Given.DNS}, ""
}

// keep leaves the addresses of a machine alone that may use them. Those that the service lost with its data are read from the claims again.
func (s *Snapshot) keep() Decision {
	d := Decision{}
	is := s.Host.Addressing
	wanted := map[string]bool{}
	for _, pool := range is.Pools {
		wanted[ClaimName(s.Agent, is.Installation, pool)] = true
	}
	restored := domain.Addressing{}
	for _, claim := range s.Claims {
		switch {
		case !claim.Owned:
			continue
		case is.Installation != "" && !wanted[claim.Name]: // other pools were chosen before the installation began
			d.release(claim)
			continue
		}
		if !claim.Held && !claim.Deleting {
			d.Hold = append(d.Hold, claim.Name)
		}
		if claim.Given != nil {
			card, mac, _ := s.card(claim.Pool, claim.Given.Address)
			restored.Pools = append(restored.Pools, claim.Pool)
			restored.Given = append(restored.Given, domain.NodeAddress{
				Pool: claim.Pool, Interface: card, MAC: mac, Address: claim.Given.Address, Gateway: claim.Given.Gateway, DNS: claim.Given.DNS,
			})
		}
	}
	if len(is.Given) == 0 {
		if len(restored.Given) > 0 {
			d.note(s.Host, restored)
		}
		return d
	}
	is.Missing = ""
	for _, given := range is.Given {
		if !slices.ContainsFunc(restored.Given, func(g domain.NodeAddress) bool { return g.Address.Addr() == given.Address.Addr() }) {
			is.Missing = fmt.Sprintf("no claim of %s keeps %s any more: another machine may get it", given.Pool, given.Address.Addr())
		}
	}
	d.note(s.Host, is)
	return d
}

// card is the one that gets an address.
func (s *Snapshot) card(pool domain.AddressPool, address netip.Prefix) (name, mac, why string) {
	var inNetwork, carriers []hardware.Interface
	for _, card := range s.Cards {
		if card.MACAddress == "" || card.Type != "" && card.Type != "physical" {
			continue
		}
		if card.Name == pool.Interface {
			return card.Name, strings.ToLower(card.MACAddress), ""
		}
		if card.HasCarrier {
			carriers = append(carriers, card)
		}
		if slices.ContainsFunc(slices.Concat(card.IPV4Addresses, card.IPV6Addresses), func(text string) bool {
			has, err := netip.ParsePrefix(text)
			return err == nil && address.Masked().Contains(has.Addr())
		}) {
			inNetwork = append(inNetwork, card)
		}
	}
	switch {
	case pool.Interface != "" && s.Stated:
		return pool.Interface, "", ""
	case pool.Interface != "":
		return "", "", "the machine has no network card " + pool.Interface
	case len(inNetwork) == 1:
		return inNetwork[0].Name, strings.ToLower(inNetwork[0].MACAddress), ""
	case len(inNetwork) == 0 && len(carriers) == 1:
		return carriers[0].Name, strings.ToLower(carriers[0].MACAddress), ""
	}
	return "", "", fmt.Sprintf("it gives %s, and it is not clear which network card of the machine gets it: write interface in spec.nodeAddresses of the InfraEnv", address)
}

func (d *Decision) release(claim Claim) {
	if claim.Owned && (claim.Held || !claim.Deleting) {
		d.Release = append(d.Release, claim.Name)
	}
}

func (d *Decision) note(h *domain.Host, is domain.Addressing) {
	if !reflect.DeepEqual(h.Addressing, is) {
		d.Note = &is
	}
}
