// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestWhichNamespacesAPoolAllows(t *testing.T) {
	selector := func(s metav1.LabelSelector) *ipamv1.AllowedNamespaces {
		return &ipamv1.AllowedNamespaces{From: ipamv1.FromSelector, Selector: &s}
	}
	team := map[string]string{"team": "a"}
	for name, test := range map[string]struct {
		given     *ipamv1.AllowedNamespaces
		namespace map[string]string
		want      bool
		problem   string
	}{
		"none are stated":                 {},
		"an empty choice is Same":         {given: &ipamv1.AllowedNamespaces{}},
		"Same":                            {given: &ipamv1.AllowedNamespaces{From: ipamv1.FromSame}},
		"All":                             {given: &ipamv1.AllowedNamespaces{From: ipamv1.FromAll}, want: true},
		"a selector that matches":         {given: selector(metav1.LabelSelector{MatchLabels: team}), namespace: team, want: true},
		"a selector that does not match":  {given: selector(metav1.LabelSelector{MatchLabels: team}), namespace: map[string]string{"team": "b"}},
		"an empty selector matches all":   {given: selector(metav1.LabelSelector{}), want: true},
		"Selector without a selector":     {given: &ipamv1.AllowedNamespaces{From: ipamv1.FromSelector}, problem: "allowedNamespaces: from Selector needs a selector"},
		"a selector that cannot be read":  {given: selector(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Like"}}}), problem: `allowedNamespaces.selector: "Like" is not a valid label selector operator`},
		"a word that means nothing to us": {given: &ipamv1.AllowedNamespaces{From: "Some"}},
	} {
		t.Run(name, func(t *testing.T) {
			layout := Parse(&ipamv1.IPPoolSpec{NamePrefix: "p", AllowedNamespaces: test.given}, ipamv1.RandomAllocation)
			assert.Equal(t, test.want, layout.Allows(test.namespace))
			if test.problem != "" {
				assert.Equal(t, []string{test.problem}, layout.Problems)
			} else {
				assert.Empty(t, layout.Problems)
			}
		})
	}
}

func TestPlanForAClaimOfAnotherNamespace(t *testing.T) {
	const absent = "IPPool ns/p does not exist or does not allow claims of namespace team: its spec.allowedNamespaces says which it allows"
	made := func(addr string, why Why) Decision {
		parsed := netip.MustParseAddr(addr)
		return Decision{Create{IP: parsed, Name: AddressName("p", parsed), Network: Network{Prefix: 24, Gateway: ip("10.0.0.1")}, Tenant: "team"}, why}
	}
	quota := Decision{Refuse{
		Error: "Quota of the namespace exceeded",
		Message: "Quota of the namespace exceeded: claims of namespace team have 1 addresses of IPPool ns/p, and more are not allowed; delete claims, or ask for a greater " +
			"maxAddressesPerNamespace",
	}, WhyQuota}
	for name, test := range map[string]struct {
		given  func(*Snapshot, *ipamv1.IPPoolSpec)
		charge string
		want   Decision
	}{
		"it is allowed": {want: made("10.0.0.10", WhyChosen)},
		"it is not allowed": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Allows = false },
			want:  Decision{Refuse{Error: "Namespace not allowed", Message: absent}, WhyNotAllowed},
		},
		"a pool that does not exist is refused in the same words": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) { s.Pool.Found = false },
			want:  Decision{Refuse{Error: "Namespace not allowed", Message: absent}, WhyNotAllowed},
		},
		"one that has an address keeps it": {
			given: func(s *Snapshot, _ *ipamv1.IPPoolSpec) {
				s.Pool.Allows, s.Owned, s.Claim.Bound, s.Claim.Reported, s.Claim.Finalized = false, []Address{owned("p-10-0-0-10")}, "p-10-0-0-10", true, true
			},
			want: Decision{Nothing{}, WhyServed},
		},
		"the preallocation of a claim of the pool's namespace is not its own": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"c": "10.0.0.10"}
			},
			want: made("10.0.0.11", WhyChosen),
		},
		"its preallocation has its namespace": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"team/c": "10.0.0.12"}
			},
			want: made("10.0.0.12", WhyPreallocated),
		},
		"the refusal does not name the other claim of a preallocated address": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				s.Claim.Requested = "10.0.0.10"
				p.PreAllocations = map[string]ipamv1.IPAddressStr{"secret": "10.0.0.10"}
			},
			want: Decision{Refuse{Error: ErrNotFree, Message: ErrNotFree + ": 10.0.0.10 is pre-allocated to another claim"}, WhyRefused},
		},
		"below the quota": {
			given:  func(_ *Snapshot, p *ipamv1.IPPoolSpec) { p.MaxAddressesPerNamespace = 2 },
			charge: "team", want: made("10.0.0.10", WhyChosen),
		},
		"at the quota": {
			given:  func(_ *Snapshot, p *ipamv1.IPPoolSpec) { p.MaxAddressesPerNamespace = 1 },
			charge: "team", want: quota,
		},
		"addresses of other namespaces do not count": {
			given:  func(_ *Snapshot, p *ipamv1.IPPoolSpec) { p.MaxAddressesPerNamespace = 1 },
			charge: "other", want: made("10.0.0.10", WhyChosen),
		},
		"the address that is kept for the claim counts already": {
			given: func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				p.MaxAddressesPerNamespace = 1
				s.Pool.Free, s.Kept = taken("10.0.0.12"), Address{Name: "p-10-0-0-12", UID: "u", IP: netip.MustParseAddr("10.0.0.12")}
			},
			charge: "team",
			want: Decision{Create{
				IP: netip.MustParseAddr("10.0.0.12"), Name: "p-10-0-0-12", Network: Network{Prefix: 24, Gateway: ip("10.0.0.1")}, Tenant: "team",
				Replaces: Address{Name: "p-10-0-0-12", UID: "u", IP: netip.MustParseAddr("10.0.0.12")},
			}, WhyRestored},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(func(s *Snapshot, p *ipamv1.IPPoolSpec) {
				s.Claim.Name, s.Claim.Tenant, s.Pool.Name, s.Pool.Allows = "team/c", "team", "ns/p", true
				p.AllocationStrategy = ipamv1.SequentialAllocation
				if test.given != nil {
					test.given(s, p)
				}
			})
			s.Pool.Free.Charge(test.charge, netip.MustParseAddr("10.0.0.12"))
			assert.Equal(t, test.want, Plan(s))
		})
	}
}
