// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/join"
)

// A node that had the name of the API server or of a Service would get a certificate that is good in its place.
func TestNoNodeHasTheNameOfTheAPIServer(t *testing.T) {
	access := &Access{values: join.Values{Server: "https://API.blue.example.com:6443", TLSServerName: "Blue.example.com", ClusterDomain: "cluster.local"}}
	named := func(name, role string) *domain.Host {
		return &domain.Host{HostSettings: domain.HostSettings{Role: role, RequestedHostname: name}}
	}
	for name, want := range map[string]bool{
		"kubernetes": true, "kubernetes.default": true, "kubernetes.default.svc": true, "kubernetes.default.svc.cluster.local": true, "hooks.shop.svc": true,
		"api.blue.example.com": true, "blue.example.com": true,
		"worker-1": false, "kubernetes-1": false, "worker-1.cluster.local": false, "worker-1.blue.example.com": false, "svc": false,
	} {
		assert.Equal(t, want, access.RefusesName(named(name, "worker")), name)
		assert.False(t, access.RefusesName(named(name, "master")), "it was chosen to run the API server: %s", name)
	}
	assert.False(t, (&Access{}).RefusesName(named("worker-1", "worker")))
}

// Each case is what host a may serve at, in a cluster whose API server is 192.0.2.1.
func TestAddresses(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	access := &Access{values: join.Values{
		Server: "https://192.0.2.1:6443", ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}}
	host := func(id, discovered string, reports ...[]string) domain.Host {
		h := domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: id}, InventoryAt: noon}
		h.Summary.Addresses = []string{discovered}
		for i, report := range reports {
			h.ReportAddresses(noon.Add(time.Duration(i+1)*time.Hour), report)
		}
		return h
	}
	master := func(h domain.Host) domain.Host {
		h.Role = "master"
		return h
	}
	pooled := func(h domain.Host, address string) domain.Host {
		h.Addressing.Given = []domain.NodeAddress{{Address: netip.MustParsePrefix(address)}}
		return h
	}
	late := func(h domain.Host) domain.Host {
		h.InventoryAt = noon.Add(5 * time.Hour)
		return h
	}
	for name, c := range map[string]struct {
		given []domain.Host
		want  []string
	}{
		"the discovery image reported it":        {[]domain.Host{host("a", "192.0.2.11/24")}, []string{"192.0.2.11"}},
		"the installed system confirms it":       {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.11/24"})}, []string{"192.0.2.11"}},
		"DHCP gave another one":                  {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.12/24"})}, []string{"192.0.2.12"}},
		"it has a second one":                    {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.11/24", "2001:db8::1/64"})}, []string{"192.0.2.11", "2001:db8::1"}},
		"another host was discovered with it":    {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.12/24"}), host("b", "192.0.2.12/24")}, nil},
		"another host reported it before":        {[]domain.Host{host("a", "192.0.2.11/24", nil, []string{"192.0.2.13/24"}), host("b", "192.0.2.12/24", []string{"192.0.2.13/24"})}, nil},
		"another host reports it later":          {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.13/24"}), host("b", "192.0.2.12/24", nil, []string{"192.0.2.13/24"})}, []string{"192.0.2.13"}},
		"another host left it":                   {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.12/24"}), host("b", "192.0.2.12/24", []string{"192.0.2.14/24"})}, []string{"192.0.2.12"}},
		"it comes back to one that it lost":      {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.15/24"}, nil, []string{"192.0.2.11/24"}), host("b", "192.0.2.12/24", nil, []string{"192.0.2.11/24"})}, nil},
		"another host has it from a pool":        {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.20/24"}), pooled(host("b", "192.0.2.12/24"), "192.0.2.20/24")}, nil},
		"it is discovered with one of a pool":    {[]domain.Host{host("a", "192.0.2.20/24"), pooled(host("b", "192.0.2.12/24"), "192.0.2.20/24")}, nil},
		"it is discovered with one of a node":    {[]domain.Host{late(host("a", "192.0.2.13/24")), host("b", "192.0.2.12/24", []string{"192.0.2.13/24"})}, nil},
		"it is discovered with one of a host":    {[]domain.Host{late(host("a", "192.0.2.12/24")), host("b", "192.0.2.12/24")}, nil},
		"another host is discovered with it":     {[]domain.Host{host("a", "192.0.2.12/24"), late(host("b", "192.0.2.12/24"))}, []string{"192.0.2.12"}},
		"it is discovered with one that is free": {[]domain.Host{late(host("a", "192.0.2.12/24")), host("b", "192.0.2.12/24", []string{"192.0.2.14/24"})}, []string{"192.0.2.12"}},
		"it has one of a pool, and says others":  {[]domain.Host{pooled(host("a", "192.0.2.11/24", []string{"192.0.2.12/24"}), "192.0.2.20/24")}, []string{"192.0.2.20"}},
		"the address of the API server":          {[]domain.Host{host("a", "192.0.2.11/24", []string{"192.0.2.1/24"})}, nil},
		"it is the API server's machine":         {[]domain.Host{master(host("a", "192.0.2.1/24", []string{"192.0.2.1/24"}))}, []string{"192.0.2.1"}},
		"it says so, and is none":                {[]domain.Host{host("a", "192.0.2.1/24", []string{"192.0.2.1/24"})}, nil},
		"its discovery image says so":            {[]domain.Host{host("a", "192.0.2.1/24")}, nil},
		"its discovery image is the resolver":    {[]domain.Host{host("a", "10.96.0.10/16")}, nil},
		"the address of a Service":               {[]domain.Host{host("a", "192.0.2.11/24", []string{"10.96.0.1/16", "192.0.2.11/24"})}, []string{"192.0.2.11"}},
		"the bridge of its pods":                 {[]domain.Host{host("a", "192.0.2.11/24", []string{"10.244.1.1/24", "192.0.2.11/24"})}, []string{"192.0.2.11"}},
		"no address of a card":                   {[]domain.Host{host("a", "192.0.2.11/24", []string{"127.0.0.1/8", "169.254.1.1/16", "224.0.0.1/4", "0.0.0.0/0"})}, nil},
		"the API server's, as IPv6":              {[]domain.Host{host("a", "192.0.2.11/24", []string{"::ffff:192.0.2.1/120"})}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, address := range Addresses(c.given, access.Reserved())[c.given[0].HostKey] {
				got = append(got, address.String())
			}
			assert.Equal(t, c.want, got)
		})
	}
}
