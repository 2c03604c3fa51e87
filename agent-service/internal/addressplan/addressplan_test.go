// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package addressplan_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/addressplan"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

var (
	four = domain.AddressPool{Group: "ipam.metal3.io", Kind: "IPPool", Name: "four"}
	six  = domain.AddressPool{Group: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool", Name: "six"}
)

const agent = "5f1c"

func name(pool domain.AddressPool) string { return addressplan.ClaimName(agent, "i", pool) }

// claim is one of this installation that has an address.
func claim(pool domain.AddressPool, address string) addressplan.Claim {
	return addressplan.Claim{Name: name(pool), Pool: pool, Owned: true, Held: true, Given: &addressplan.Given{Address: netip.MustParsePrefix(address)}}
}

func given(pool domain.AddressPool, address string) domain.NodeAddress {
	return domain.NodeAddress{Pool: pool, Interface: "eno1", MAC: "52:54:00:00:00:01", Address: netip.MustParsePrefix(address)}
}

// waiting is a host that is bound and has no address of the pools yet.
func waiting(pools ...domain.AddressPool) *addressplan.Snapshot {
	return &addressplan.Snapshot{
		Agent: agent, Pools: pools,
		Host: &domain.Host{ClusterID: "c", State: lifecycle.Insufficient, Addressing: domain.Addressing{Installation: "i", Pools: pools}},
		Cards: []hardware.Interface{
			{Name: "eno1", MACAddress: "52:54:00:00:00:01", IPV4Addresses: []string{"192.0.2.200/24"}, IPV6Addresses: []string{"2001:db8::200/64"}, HasCarrier: true},
			{Name: "eno2", MACAddress: "52:54:00:00:00:02", HasCarrier: true},
			{Name: "bond0", MACAddress: "52:54:00:00:00:01", Type: "bond", IPV4Addresses: []string{"192.0.2.201/24"}},
		},
	}
}

func with(s *addressplan.Snapshot, claims ...addressplan.Claim) *addressplan.Snapshot {
	s.Claims = claims
	return s
}

func TestAHostGetsItsAddresses(t *testing.T) {
	one := domain.Addressing{Installation: "i", Pools: []domain.AddressPool{four}}
	missing := func(why string) *domain.Addressing {
		return &domain.Addressing{Installation: "i", Pools: []domain.AddressPool{four}, Missing: "IPPool four: " + why}
	}
	assigned := one
	assigned.Given = []domain.NodeAddress{given(four, "192.0.2.7/24")}
	former := claim(four, "192.0.2.3/24")
	former.Name = addressplan.ClaimName(agent, "former", four)
	changed := func(do func(*addressplan.Claim)) addressplan.Claim {
		c := claim(four, "192.0.2.7/24")
		do(&c)
		return c
	}
	for what, c := range map[string]struct {
		given *addressplan.Snapshot
		want  addressplan.Decision
	}{
		"claims are made":               {waiting(four, six), addressplan.Decision{Create: map[string]domain.AddressPool{name(four): four, name(six): six}}},
		"an outstanding answer":         {with(waiting(four), changed(func(c *addressplan.Claim) { c.Given = nil })), addressplan.Decision{}},
		"an exhausted pool":             {with(waiting(four), changed(func(c *addressplan.Claim) { c.Given, c.Refused = nil, "Exhausted IP Pools" })), addressplan.Decision{Note: missing("Exhausted IP Pools")}},
		"an address":                    {with(waiting(four), claim(four, "192.0.2.7/24")), addressplan.Decision{Note: &assigned}},
		"one of two addresses":          {with(waiting(four, six), claim(four, "192.0.2.7/24"), addressplan.Claim{Name: name(six), Pool: six, Owned: true, Held: true}), addressplan.Decision{}},
		"a claim of another owner":      {with(waiting(four), changed(func(c *addressplan.Claim) { c.Owned = false })), addressplan.Decision{Note: missing("a claim " + name(four) + " is there already, and does not belong to the Agent: delete it")}},
		"a claim that a user deleted":   {with(waiting(four), changed(func(c *addressplan.Claim) { c.Deleting = true })), addressplan.Decision{Release: []string{name(four)}, Note: missing("the claim " + name(four) + " is being deleted, and made again")}},
		"a claim without its finalizer": {with(waiting(four), changed(func(c *addressplan.Claim) { c.Held = false })), addressplan.Decision{Hold: []string{name(four)}}},
		"a claim of another pool":       {with(waiting(four), changed(func(c *addressplan.Claim) { c.Pool.Name = "other" })), addressplan.Decision{Release: []string{name(four)}, Note: missing("the claim " + name(four) + " names IPPool other: it is made again")}},
		"a claim of an earlier binding": {with(waiting(four), former), addressplan.Decision{Create: map[string]domain.AddressPool{name(four): four}, Release: []string{former.Name}}},
		"other pools in the InfraEnv":   {&addressplan.Snapshot{Agent: agent, Pools: []domain.AddressPool{six}, Host: waiting(four).Host, Claims: []addressplan.Claim{claim(four, "192.0.2.7/24")}}, addressplan.Decision{Choose: true}},
		"an address of no card's network": {with(waiting(four), claim(four, "203.0.113.7/24")), addressplan.Decision{Note: missing(
			"it gives 203.0.113.7/24, and it is not clear which network card of the machine gets it: write interface in spec.nodeAddresses of the InfraEnv")}},
	} {
		t.Run(what, func(t *testing.T) {
			got := addressplan.Plan(c.given)
			if len(got.Create) == 0 {
				got.Create = nil
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestTwoPoolsOfOneFamilyAreRefused(t *testing.T) {
	other := domain.AddressPool{Group: four.Group, Kind: four.Kind, Name: "other"}
	got := addressplan.Plan(with(waiting(four, other), claim(four, "192.0.2.7/24"), claim(other, "192.0.2.8/24")))
	assert.Empty(t, got.Note.Given)
	assert.Equal(t, "IPPool four and IPPool other give addresses of the same family: name one pool per family", got.Note.Missing)
	got = addressplan.Plan(with(waiting(four, six), claim(six, "2001:db8::7/64"), claim(four, "192.0.2.7/24")))
	assert.Equal(t, []domain.NodeAddress{given(four, "192.0.2.7/24"), given(six, "2001:db8::7/64")}, got.Note.Given, "in the order of the pools")
}

func TestTheCardOfAnAddress(t *testing.T) {
	named := func(card string) domain.AddressPool {
		return domain.AddressPool{Group: four.Group, Kind: four.Kind, Name: four.Name, Interface: card}
	}
	for what, c := range map[string]struct {
		pool    domain.AddressPool
		address string
		change  func(*addressplan.Snapshot)
		card    string
		mac     string
	}{
		"the one in its network":              {four, "192.0.2.7/24", nil, "eno1", "52:54:00:00:00:01"},
		"the one that is named":               {named("eno2"), "192.0.2.7/24", nil, "eno2", "52:54:00:00:00:02"},
		"the only one with a carrier":         {four, "203.0.113.7/24", func(s *addressplan.Snapshot) { s.Cards[1].HasCarrier = false }, "eno1", "52:54:00:00:00:01"},
		"none that the machine has":           {named("eno9"), "192.0.2.7/24", nil, "", ""},
		"an interface of the stated network":  {named("bond0"), "192.0.2.7/24", func(s *addressplan.Snapshot) { s.Stated = true }, "bond0", ""},
		"two cards in one network":            {four, "192.0.2.7/24", func(s *addressplan.Snapshot) { s.Cards[1].IPV4Addresses = []string{"192.0.2.9/24"} }, "", ""},
		"a machine that reported no hardware": {four, "192.0.2.7/24", func(s *addressplan.Snapshot) { s.Cards = nil }, "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			s := with(waiting(c.pool), claim(c.pool, c.address))
			if c.change != nil {
				c.change(s)
			}
			got := addressplan.Plan(s)
			if c.card == "" {
				assert.Empty(t, got.Note.Given)
				assert.NotEmpty(t, got.Note.Missing)
				return
			}
			assert.Equal(t, []string{c.card, c.mac}, []string{got.Note.Given[0].Interface, got.Note.Given[0].MAC})
		})
	}
}

// TestAnAddressIsGivenOutAgainOnlyAfterItsMachine goes through all states.
func TestAnAddressIsGivenOutAgainOnlyAfterItsMachine(t *testing.T) {
	has := domain.Addressing{Installation: "i", Pools: []domain.AddressPool{four}, Given: []domain.NodeAddress{given(four, "192.0.2.7/24")}}
	free := map[lifecycle.State]bool{lifecycle.DiscoveringUnbound: true, lifecycle.InsufficientUnbound: true, lifecycle.KnownUnbound: true, lifecycle.DisconnectedUnbound: true, lifecycle.Unbinding: true}
	for _, state := range lifecycle.States {
		for _, underway := range []bool{false, true} {
			s := with(waiting(four), claim(four, "192.0.2.7/24"))
			s.Host.State, s.Host.Addressing = state, has
			if lifecycle.Unbound(state) {
				s.Host.ClusterID = ""
			}
			if underway {
				s.Host.Release.StartedAt = s.Host.Release.StartedAt.AddDate(2026, 0, 0)
			}
			if underway && !lifecycle.Unbound(state) {
				continue // a host that is bound is not being released
			}
			got := addressplan.Plan(s)
			got.Create = nil
			want := addressplan.Decision{}
			if free[state] && !underway {
				want = addressplan.Decision{Release: []string{name(four)}, Note: &domain.Addressing{}}
			}
			assert.Equal(t, want, got, "%s, released: %t", state, underway)
		}
	}
}

// A machine that boots the image of another InfraEnv while it is being released is wiped as a host of that one.
func TestAnAddressIsKeptWhileItsMachineIsWipedElsewhere(t *testing.T) {
	has := domain.Addressing{Installation: "i", Pools: []domain.AddressPool{four}, Given: []domain.NodeAddress{given(four, "192.0.2.7/24")}}
	for _, state := range []lifecycle.State{lifecycle.DisconnectedUnbound, lifecycle.UnbindingPendingUserAction} {
		s := with(waiting(four), claim(four, "192.0.2.7/24"))
		s.Host = &domain.Host{State: state, Addressing: has, ReleaseMovedAt: time.Unix(1800000000, 0)}
		s.Elsewhere = true
		assert.Equal(t, addressplan.Decision{}, addressplan.Plan(s), state)
		s.Elsewhere = false
		assert.Equal(t, addressplan.Decision{Release: []string{name(four)}, Note: &domain.Addressing{}}, addressplan.Plan(s), state)
	}
}

func TestAMachineKeepsItsAddress(t *testing.T) {
	has := domain.Addressing{Installation: "i", Pools: []domain.AddressPool{four}, Given: []domain.NodeAddress{given(four, "192.0.2.7/24")}}
	installed := func(claims ...addressplan.Claim) *addressplan.Snapshot {
		s := with(waiting(four), claims...)
		s.Host.State, s.Host.Addressing, s.Pools = lifecycle.AddedToExistingCluster, has, []domain.AddressPool{six}
		return s
	}
	deleted := claim(four, "192.0.2.7/24")
	deleted.Deleting = true
	assert.Equal(t, addressplan.Decision{}, addressplan.Plan(installed(deleted)), "a user deleted the claim: its finalizer keeps the address")
	stripped := claim(four, "192.0.2.7/24")
	stripped.Held = false
	assert.Equal(t, addressplan.Decision{Hold: []string{name(four)}}, addressplan.Plan(installed(stripped)))
	lost := addressplan.Plan(installed()).Note
	assert.Equal(t, has.Given, lost.Given)
	assert.Equal(t, "no claim of IPPool four keeps 192.0.2.7 any more: another machine may get it", lost.Missing)

	former := claim(four, "192.0.2.9/24")
	former.Name = "former"
	assert.Equal(t, addressplan.Decision{Release: []string{"former"}}, addressplan.Plan(installed(claim(four, "192.0.2.7/24"), former)), "other pools were chosen before it was installed")

	restored := installed(claim(four, "192.0.2.7/24"))
	restored.Host.Addressing = domain.Addressing{}
	assert.Equal(t, has.Given, addressplan.Plan(restored).Note.Given, "the service lost its data")
	assert.Equal(t, addressplan.Decision{}, addressplan.Plan(&addressplan.Snapshot{Agent: agent, Claims: []addressplan.Claim{claim(four, "192.0.2.7/24")}}), "it does not know the host yet")
}
