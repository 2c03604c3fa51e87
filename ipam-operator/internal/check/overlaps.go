// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// overlapFindings looks for prefixes that hold other addresses or prefixes of pools with the same namePrefix. Two objects for one address have one name already.
func (o *objects) overlapFindings() []Finding {
	type taken struct {
		group  string
		prefix netip.Prefix
		object types.NamespacedName
	}
	var all []taken
	for _, key := range sorted(o.addresses) {
		a := o.addresses[key]
		pool, ok := o.pools[types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}]
		ip, err := allocate.ParseAddr(string(a.Spec.Address))
		if !ok || err != nil {
			continue
		}
		prefix := netip.PrefixFrom(ip, ip.BitLen())
		if a.Spec.PrefixLength != 0 {
			prefix = netip.PrefixFrom(ip, a.Spec.PrefixLength).Masked()
		}
		all = append(all, taken{a.Namespace + "/" + pool.Spec.NamePrefix, prefix, key})
	}
	slices.SortStableFunc(all, func(a, b taken) int {
		return cmp.Or(cmp.Compare(a.group, b.group), a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	var out []Finding
	var widest taken
	for _, t := range all {
		if t.group == widest.group && widest.prefix.Overlaps(t.prefix) {
			if widest.prefix.Bits() < t.prefix.Bits() || !t.prefix.IsSingleIP() {
				out = append(out, Finding{Double, "IPAddress " + t.object.String(), fmt.Sprintf("has %s, which is a part of %s of IPAddress %s", t.prefix, widest.prefix, widest.object.Name)})
			}
			continue
		}
		widest = t
	}
	return out
}
