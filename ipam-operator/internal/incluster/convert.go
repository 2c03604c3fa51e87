// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package incluster imports the pools of Cluster API's in-cluster IPAM provider: what such a pool hands out becomes an IPPool, and what it has handed out stays taken.
package incluster

import (
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/ipset"
)

// Kinds of pools that are imported.
const (
	// poolKind is a pool of one namespace.
	poolKind = "InClusterIPPool"
	// globalPoolKind is a pool of all namespaces.
	globalPoolKind = "GlobalInClusterIPPool"
)

// Provider is the value of the label of what was imported.
const Provider = "in-cluster"

// claimKind is the kind of the claims of such pools.
const claimKind = "IPAddressClaim"

// Spec is the spec of an InClusterIPPool or a GlobalInClusterIPPool of v1alpha2.
type Spec struct {
	Addresses                      []string `json:"addresses"`
	Prefix                         int      `json:"prefix"`
	Gateway                        string   `json:"gateway,omitempty"`
	AllocateReservedIPAddresses    bool     `json:"allocateReservedIPAddresses,omitempty"`
	ExcludedAddresses              []string `json:"excludedAddresses,omitempty"`
	AddressReuseGracePeriodSeconds int64    `json:"addressReuseGracePeriodSeconds,omitempty"`
}

// Source is a pool to import. Namespace is empty for a GlobalInClusterIPPool.
type Source struct {
	Kind, Namespace, Name string
	Spec                  Spec
}

// String names the pool.
func (s Source) String() string {
	if s.Namespace == "" {
		return s.Kind + " " + s.Name
	}
	return s.Kind + " " + s.Namespace + "/" + s.Name
}

// Used is an address that such a pool has handed out.
type Used struct {
	IP    netip.Addr
	Claim types.NamespacedName
}

// Pool is the IPPool that hands out what a pool does, in the same order and by the same rules.
func Pool(source Source, namespace string) (*ipamv1.IPPool, error) {
	if source.Spec.Prefix == 0 {
		return nil, fmt.Errorf("%s has the prefix 0: write the length of its network prefix into it first", source)
	}
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: source.Name,
			Labels: map[string]string{ipamv1.ImportedFromLabel: Provider}, Annotations: map[string]string{ipamv1.ImportedPoolAnnotation: source.String()},
		},
		Spec: ipamv1.IPPoolSpec{
			NamePrefix: source.Name, Prefix: source.Spec.Prefix, AllocationStrategy: ipamv1.SequentialAllocation,
			AllocateReservedAddresses: source.Spec.AllocateReservedIPAddresses, AddressReuseGracePeriodSeconds: source.Spec.AddressReuseGracePeriodSeconds,
		},
	}
	if source.Namespace == "" {
		pool.Spec.AllowedNamespaces = &ipamv1.AllowedNamespaces{From: ipamv1.FromAll}
	}
	if source.Spec.Gateway != "" {
		pool.Spec.Gateway = new(ipamv1.IPAddressStr(source.Spec.Gateway))
	}
	for _, text := range source.Spec.ExcludedAddresses {
		pool.Spec.ExcludedAddresses = append(pool.Spec.ExcludedAddresses, ipamv1.AddressSpan(text))
	}
	for _, r := range slices.SortedFunc(addresses(source).Ranges(), func(a, b ipset.Range) int { return a.First.Compare(b.First) }) {
		entry, err := entryOf(r, source)
		if err != nil {
			return nil, err
		}
		pool.Spec.Pools = append(pool.Spec.Pools, entry)
	}
	if problems := allocate.Parse(&pool.Spec, ipamv1.SequentialAllocation).Problems; len(problems) > 0 {
		return nil, fmt.Errorf("%s cannot be imported: %s", source, problems[0])
	}
	return pool, nil
}

// entryOf is the entry of an IPPool for a range. Its subnet says which addresses are reserved.
func entryOf(r ipset.Range, source Source) (ipamv1.Pool, error) {
	subnet, err := r.First.Prefix(source.Spec.Prefix)
	if err != nil || !subnet.Contains(r.Last) {
		return ipamv1.Pool{}, fmt.Errorf("%s cannot be imported: %s is not in one network of the prefix %d", source, r, source.Spec.Prefix)
	}
	first, last := ipamv1.IPAddressStr(r.First.String()), ipamv1.IPAddressStr(r.Last.String())
	return ipamv1.Pool{Start: &first, End: &last, Subnet: new(ipamv1.IPSubnetStr(subnet.String()))}, nil
}

// addresses are those that a pool lists. The in-cluster provider does not hand out entries that cannot be read.
func addresses(source Source) *ipset.Set {
	set := ipset.New()
	for _, text := range source.Spec.Addresses {
		if span, err := allocate.ParseSpan(text); err == nil {
			set.Add(span)
		}
	}
	return set
}

// Closed are the excludedAddresses with which a pool hands out nothing more: those that it has, and all that are not used.
func Closed(source Source, used []Used) []string {
	rest := addresses(source)
	for _, text := range source.Spec.ExcludedAddresses {
		if span, err := allocate.ParseSpan(text); err == nil {
			rest.Remove(span)
		}
	}
	for _, u := range used {
		rest.Take(u.IP)
	}
	out := slices.Clone(source.Spec.ExcludedAddresses)
	for r := range rest.Ranges() {
		out = append(out, r.String())
	}
	return out
}

// Reservation is the IPAddress that keeps an address in use from being handed out by the IPPool. A claim of that name that names the IPPool one day gets it.
func Reservation(pool *ipamv1.IPPool, used Used) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pool.Namespace, Name: allocate.AddressName(pool.Spec.NamePrefix, used.IP), Labels: map[string]string{ipamv1.ImportedFromLabel: Provider},
		},
		Spec: ipamv1.IPAddressSpec{
			Address: ipamv1.IPAddressStr(used.IP.String()), Prefix: pool.Spec.Prefix, Gateway: pool.Spec.Gateway,
			Pool:  ipamv1.ObjectReference{Namespace: pool.Namespace, Name: pool.Name},
			Claim: ipamv1.ObjectReference{Kind: claimKind, Namespace: used.Claim.Namespace, Name: used.Claim.Name},
		},
	}
}
