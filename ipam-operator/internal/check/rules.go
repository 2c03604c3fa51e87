// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bytes"
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// managerPrefix begins the field managers of the operator.
const managerPrefix = "ipam-operator"

// layoutsOf parses the specs of all pools. The strategy decides which address is chosen, and nothing that is checked.
func (o *objects) layoutsOf() map[types.NamespacedName]*allocate.Layout {
	out := map[types.NamespacedName]*allocate.Layout{}
	for key, pool := range o.pools {
		out[key] = allocate.Parse(&pool.Spec, ipamv1.SequentialAllocation)
	}
	return out
}

// withheldFindings looks for addresses that the pool does not give to their claims: gateways, network and broadcast addresses, excluded ones, and those that are
// preallocated to others. One that may be older than the spec stays with its claim, and one that the operator did not make was given by a user: they are notices.
func (o *objects) withheldFindings(layouts map[types.NamespacedName]*allocate.Layout) []Finding {
	var out []Finding
	for _, key := range sorted(o.addresses) {
		a := o.addresses[key]
		poolKey := types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}
		pool := o.pools[poolKey]
		addr, err := allocate.ParseAddr(string(a.Spec.Address))
		if pool == nil || err != nil || a.Spec.PrefixLength != 0 || a.Spec.Claim.Name == "" || !slices.Contains(a.Finalizers, ipamv1.IPAddressFinalizer) {
			continue
		}
		what := layouts[poolKey].Withheld(addr, a.ClaimInPool())
		if what == "" {
			continue
		}
		finding := Finding{Mismatch, "IPAddress " + key.String(), fmt.Sprintf("%s %s has %s, which is %s", kindOf(a), a.ClaimInPool(), addr, what)}
		if !isGivenUnder(a, pool) || o.isHeldBefore(key, a) {
			finding.Problem = Notice
		}
		out = append(out, finding)
	}
	return out
}

// isGivenUnder reports whether the operator made an address under the present spec of its pool, by the times of writes.
func isGivenUnder(a *ipamv1.IPAddress, pool *ipamv1.IPPool) bool {
	made := func(entry metav1.ManagedFieldsEntry) bool {
		return strings.HasPrefix(entry.Manager, managerPrefix) && entry.FieldsV1 != nil && bytes.Contains(entry.FieldsV1.GetRawBytes(), []byte(`"f:spec"`))
	}
	written := specWritten(pool)
	return slices.ContainsFunc(a.ManagedFields, made) && !written.IsZero() && a.CreationTimestamp.After(written)
}

// specWritten is when the spec or the metadata of a pool was written last; zero where that is not known.
func specWritten(pool *ipamv1.IPPool) (last time.Time) {
	for _, entry := range pool.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// isHeldBefore reports whether an address of the contract was there before the one that locks it: the claim keeps it.
func (o *objects) isHeldBefore(key types.NamespacedName, lock *ipamv1.IPAddress) bool {
	held, ok := o.contract.addresses[key]
	return ok && held.GetCreationTimestamp().Time.Before(lock.CreationTimestamp.Time)
}

// countFindings compares the counts of pools with those of their addresses. A pool whose status is not about its spec was not looked at yet. Addresses that an inventory
// names are not known here, and change what is free.
func (o *objects) countFindings(layouts map[types.NamespacedName]*allocate.Layout) []Finding {
	used, prefixes := map[types.NamespacedName]map[netip.Addr]struct{}{}, map[types.NamespacedName]map[netip.Prefix]struct{}{}
	for key := range o.pools {
		used[key], prefixes[key] = map[netip.Addr]struct{}{}, map[netip.Prefix]struct{}{}
	}
	for _, a := range o.addresses {
		pool := types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}
		ip, err := allocate.ParseAddr(string(a.Spec.Address))
		if err != nil || used[pool] == nil {
			continue
		}
		if a.Spec.PrefixLength == 0 {
			used[pool][ip] = struct{}{}
		} else if prefix, err := ip.Prefix(a.Spec.PrefixLength); err == nil {
			prefixes[pool][prefix] = struct{}{}
		}
	}
	var out []Finding
	for _, key := range sorted(o.pools) {
		p := o.pools[key]
		if p.Status.ObservedGeneration != p.Generation {
			continue
		}
		counts := allocate.Tally(layouts[key], used[key], prefixes[key], nil)
		compare := func(field string, status *int64, want int64) {
			if status != nil && *status != want {
				out = append(out, Finding{Mismatch, "IPPool " + key.String(), fmt.Sprintf("status.%s is %d, and by spec and addresses it is %d", field, *status, want)})
			}
		}
		compare("total", p.Status.Total, counts.Total)
		compare("outOfRange", p.Status.OutOfRange, counts.OutOfRange)
		if p.Status.External == nil {
			compare("free", p.Status.Free, counts.Free)
		}
	}
	return out
}

// unservedFindings looks for claims that carry a finalizer of the operator, have no address, and name a pool that it does not serve: their finalizer would stay for ever.
func (o *objects) unservedFindings() []Finding {
	has := map[string]bool{}
	for _, a := range o.addresses {
		has[kindOf(a)+" "+a.ClaimKey().String()] = true
	}
	var out []Finding
	unserved := func(kind string, claim client.Object, finalizer, pool string) {
		key := client.ObjectKeyFromObject(claim)
		if slices.Contains(claim.GetFinalizers(), finalizer) && !has[kind+" "+key.String()] {
			out = append(out, Finding{Mismatch, kind + " " + key.String(), fmt.Sprintf("carries the finalizer %s, and its pool is of kind %s, which is not served", finalizer, pool)})
		}
	}
	for _, key := range sorted(o.claims) {
		ref := o.claims[key].Spec.Pool
		gv, err := schema.ParseGroupVersion(ref.APIVersion)
		if ref.Kind != "" && ref.Kind != ipamv1.IPPoolKind || ref.APIVersion != "" && (err != nil || gv.Group != ipamv1.GroupVersion.Group) {
			unserved(ipamv1.IPClaimKind, o.claims[key], ipamv1.IPClaimFinalizer, cmp.Or(ref.Kind, ipamv1.IPPoolKind)+" of "+ref.APIVersion)
		}
	}
	for _, key := range sorted(o.contract.foreign) {
		claim := o.contract.foreign[key]
		unserved(contractClaimKind, claim, ipamv1.ContractClaimFinalizer, text(claim, "spec", "poolRef", "kind")+" of "+text(claim, "spec", "poolRef", "apiGroup"))
	}
	return out
}

// contractNetworkFindings looks at what an address of the contract tells Cluster API of its network.
func contractNetworkFindings(key types.NamespacedName, a *unstructured.Unstructured) []Finding {
	var out []Finding
	found := func(format string, args ...any) {
		out = append(out, Finding{Mismatch, "IPAddress." + contractGroup + " " + key.String(), fmt.Sprintf(format, args...)})
	}
	if prefix, _, err := unstructured.NestedInt64(a.Object, "spec", "prefix"); err != nil || prefix <= 0 {
		found("has no prefix")
	}
	addr, err := allocate.ParseAddr(text(a, "spec", "address"))
	if gateway := text(a, "spec", "gateway"); err == nil && gateway != "" {
		if parsed, err := allocate.ParseAddr(gateway); err != nil || parsed.Is4() != addr.Is4() {
			found("has the gateway %s, which is not of the family of %s", gateway, addr)
		}
	}
	return out
}
