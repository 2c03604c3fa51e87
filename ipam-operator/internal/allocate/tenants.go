// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package allocate

import (
	"fmt"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// allow reads which namespaces claims may come from. A selector that cannot be read allows none.
func (l *Layout) allow(allowed *ipamv1.AllowedNamespaces) {
	if allowed == nil {
		return
	}
	switch allowed.From {
	case ipamv1.FromAll:
		l.allowed = labels.Everything()
	case ipamv1.FromSelector:
		if allowed.Selector == nil {
			l.complain("allowedNamespaces: from Selector needs a selector")
			return
		}
		selector, err := metav1.LabelSelectorAsSelector(allowed.Selector)
		if err != nil {
			l.complain("allowedNamespaces.selector: %v", err)
			return
		}
		l.allowed = selector
	case ipamv1.FromSame:
	}
}

// Allows reports whether claims of another namespace are served, by the labels of that namespace.
func (l *Layout) Allows(namespace map[string]string) bool {
	return l.allowed.Matches(labels.Set(namespace))
}

// SelectsNamespaces reports whether labels of namespaces say which are allowed.
func (l *Layout) SelectsNamespaces() bool {
	requirements, _ := l.allowed.Requirements()
	return len(requirements) > 0
}

// Charge counts an address for another namespace. An address that several objects stand for counts once.
func (f *Free) Charge(tenant string, addr netip.Addr) {
	if tenant == "" {
		return
	}
	if f.tenants[tenant] == nil {
		f.tenants[tenant] = map[netip.Addr]int{}
	}
	f.tenants[tenant][addr]++
}

// Discharge undoes one Charge and reports whether the namespace has an address less now.
func (f *Free) Discharge(tenant string, addr netip.Addr) bool {
	held := f.tenants[tenant]
	if held[addr] > 1 {
		held[addr]--
		return false
	}
	_, ok := held[addr]
	delete(held, addr)
	if len(held) == 0 {
		delete(f.tenants, tenant)
	}
	return ok
}

// Room is how many addresses the claims of another namespace can get beside those that they have.
func (f *Free) Room(tenant string) int64 {
	if tenant == "" || f.Layout.PerNamespace == 0 {
		return f.Count()
	}
	return max(f.Layout.PerNamespace-int64(len(f.tenants[tenant])), 0)
}

// overQuota reports whether a claim of another namespace would get more addresses than its namespace may have. One that is kept for the claim counts already.
func (s Snapshot) overQuota(addr netip.Addr) bool {
	free, tenant := s.Pool.Free, s.Claim.Tenant
	if tenant == "" || free.Layout.PerNamespace == 0 {
		return false
	}
	_, counts := free.tenants[tenant][addr]
	return !counts && free.Room(tenant) == 0
}

// notAllowed refuses a claim of a namespace that its pool does not serve. It says the same where there is no such pool, to disclose nothing about another namespace.
func notAllowed(s Snapshot) Decision {
	message := fmt.Sprintf("IPPool %s does not exist or does not allow claims of namespace %s: its spec.allowedNamespaces says which it allows", s.Pool.Name, s.Claim.Tenant)
	return Decision{Refuse{Error: errNotAllowed, Message: message}, WhyNotAllowed}
}

// QuotaExceeded refuses a claim whose namespace has as many addresses of a pool as it may have.
func QuotaExceeded(pool, tenant string, limit int64) Decision {
	message := fmt.Sprintf("%s: claims of namespace %s have %d addresses of IPPool %s, and more are not allowed; delete claims, or ask for a greater maxAddressesPerNamespace",
		errQuota, tenant, limit, pool)
	return Decision{Refuse{Error: errQuota, Message: message}, WhyQuota}
}
