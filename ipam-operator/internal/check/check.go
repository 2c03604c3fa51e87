// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check looks for contradictions between pools, claims and addresses, those of Cluster API's
// contract and network data included. It only reads.
package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Problem names what kind of contradiction was found.
type Problem string

// Problems.
const (
	// Orphan is an address, or data, whose claim is gone.
	Orphan Problem = "orphan"
	// Double is an address or data that two claims have, or a claim that has two.
	Double Problem = "double"
	// Dangling is a reference to an object that is not there.
	Dangling Problem = "dangling"
	// Mismatch is a status that says something else than the addresses do.
	Mismatch Problem = "mismatch"
	// Notice is no contradiction: something that may stay as it is, and that the operator would not do now.
	Notice Problem = "notice"
)

// Finding is one contradiction.
type Finding struct {
	Problem Problem
	// Object is the kind and the name of the object.
	Object string
	// Message says what is wrong with it.
	Message string
}

// String is one line.
func (f Finding) String() string { return fmt.Sprintf("%-8s  %s: %s", f.Problem, f.Object, f.Message) }

type objects struct {
	pools     map[types.NamespacedName]*ipamv1.IPPool
	claims    map[types.NamespacedName]*ipamv1.IPClaim
	addresses map[types.NamespacedName]*ipamv1.IPAddress
	// elsewhere are the addresses of claims in namespaces that are not looked at.
	elsewhere map[types.NamespacedName]*ipamv1.IPAddress
	contract  *contract
	network   *networkData
}

// Run reads a namespace, or all of them, and returns the contradictions that it found, in order. Objects that change in the meantime can
// make findings that are gone when it is run again.
func Run(ctx context.Context, reader client.Reader, namespace string) ([]Finding, error) {
	findings, _, err := Inspect(ctx, reader, namespace)
	return findings, err
}

// Inspect is like Run and returns notices, too.
func Inspect(ctx context.Context, reader client.Reader, namespace string) (findings, notices []Finding, err error) {
	o, err := read(ctx, reader, namespace)
	if err != nil {
		return nil, nil, err
	}
	for _, finding := range o.findings() {
		if finding.Problem == Notice {
			notices = append(notices, finding)
		} else {
			findings = append(findings, finding)
		}
	}
	return findings, notices, nil
}

func (o *objects) findings() []Finding {
	layouts := o.layoutsOf()
	all := slices.Concat(
		o.addressFindings(), o.coolDownFindings(time.Now()), o.claimFindings(), o.contractFindings(), o.networkDataFindings(), o.poolFindings(), o.tenantFindings(), o.overlapFindings(),
		o.withheldFindings(layouts), o.countFindings(layouts), o.unservedFindings(), o.setFindings(),
	)
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Problem, b.Problem), cmp.Compare(a.Object, b.Object), cmp.Compare(a.Message, b.Message))
	})
	return all
}

func read(ctx context.Context, reader client.Reader, namespace string) (*objects, error) {
	o := &objects{
		pools: map[types.NamespacedName]*ipamv1.IPPool{}, claims: map[types.NamespacedName]*ipamv1.IPClaim{},
		addresses: map[types.NamespacedName]*ipamv1.IPAddress{}, elsewhere: map[types.NamespacedName]*ipamv1.IPAddress{},
	}
	var err error
	if o.contract, err = readContract(ctx, reader, namespace); err != nil {
		return nil, err
	}
	if o.network, err = readNetworkData(ctx, reader, namespace); err != nil {
		return nil, err
	}
	pools, claims, addresses := &ipamv1.IPPoolList{}, &ipamv1.IPClaimList{}, &ipamv1.IPAddressList{}
	for _, list := range []client.ObjectList{addresses, claims, pools} {
		if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	index(o.pools, pools.Items)
	index(o.claims, claims.Items)
	index(o.addresses, addresses.Items)
	return o, o.readOtherNamespaces(ctx, reader)
}

func index[T any, P interface {
	*T
	client.Object
}](m map[types.NamespacedName]P, items []T) {
	for i := range items {
		obj := P(&items[i])
		m[client.ObjectKeyFromObject(obj)] = obj
	}
}

// addressFindings checks the owners of addresses, and whether two objects have the same address.
func (o *objects) addressFindings() []Finding {
	var out []Finding
	type slot struct{ pool, ip string }
	holders := map[slot]*ipamv1.IPAddress{}
	owned := map[types.NamespacedName]*ipamv1.IPAddress{}
	for _, key := range sorted(o.addresses) {
		a := o.addresses[key]
		found := func(p Problem, format string, args ...any) {
			out = append(out, Finding{p, "IPAddress " + key.String(), fmt.Sprintf(format, args...)})
		}
		pool, ok := o.pools[types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}]
		if !ok {
			found(Dangling, "its IPPool %s does not exist", a.Spec.Pool.Name)
		}
		ip, err := allocate.ParseAddr(string(a.Spec.Address))
		if err != nil {
			found(Mismatch, "%v", err)
			continue
		}
		prefix := "pool " + a.Spec.Pool.Name
		if pool != nil {
			prefix = "prefix " + pool.Spec.NamePrefix
			if want := allocate.AddressName(pool.Spec.NamePrefix, ip); a.Name != want {
				found(Mismatch, "has %s, whose name in the pool is %s", ip, want)
			}
		}
		at := slot{a.Namespace + "/" + prefix, ip.String()}
		if other, ok := holders[at]; ok {
			found(Double, "has %s, as IPAddress %s does", ip, other.Name)
		}
		holders[at] = a
		out = append(out, o.ownerFindings(a, owned)...)
	}
	return out
}

// ownerFindings looks for the claim of an address. An address that no claim owns was made by hand.
func (o *objects) ownerFindings(a *ipamv1.IPAddress, owned map[types.NamespacedName]*ipamv1.IPAddress) []Finding {
	if kind := a.Spec.Claim.Kind; kind != "" && kind != ipamv1.IPClaimKind || !a.DeletionTimestamp.IsZero() {
		return nil
	}
	object := "IPAddress " + client.ObjectKeyFromObject(a).String()
	key := a.ClaimKey()
	owner := tenantOwner(a)
	for _, ref := range a.OwnerReferences {
		if ref.Kind == ipamv1.IPClaimKind && ref.Name == key.Name {
			owner = ref.UID
		}
	}
	claim, ok := o.claims[key]
	switch {
	case owner == "" && !slices.Contains(a.Finalizers, ipamv1.IPAddressFinalizer):
		return nil
	case !ok:
		return []Finding{{Orphan, object, fmt.Sprintf("its IPClaim %s does not exist", a.ClaimInPool())}}
	case owner != "" && owner != claim.UID:
		return []Finding{{Orphan, object, fmt.Sprintf("its IPClaim %s was deleted and created again", a.ClaimInPool())}}
	}
	if other, ok := owned[key]; ok {
		return []Finding{{Double, object, fmt.Sprintf("IPClaim %s has IPAddress %s too", key.Name, other.Name)}}
	}
	owned[key] = a
	return nil
}

// claimFindings looks at what claims say that they have.
func (o *objects) claimFindings() []Finding {
	var out []Finding
	named := map[types.NamespacedName]string{}
	for _, key := range sorted(o.claims) {
		c := o.claims[key]
		if c.Status.Address == nil || !c.DeletionTimestamp.IsZero() {
			continue
		}
		found := func(p Problem, format string, args ...any) {
			out = append(out, Finding{p, "IPClaim " + key.String(), fmt.Sprintf(format, args...)})
		}
		at := types.NamespacedName{Namespace: c.PoolKey().Namespace, Name: c.Status.Address.Name}
		if other, ok := named[at]; ok {
			found(Double, "names IPAddress %s, as IPClaim %s does", at.Name, other)
		}
		named[at] = c.Name
		a, ok := o.addresses[at]
		if !ok {
			a, ok = o.elsewhere[at]
		}
		switch {
		case !ok:
			found(Dangling, "its IPAddress %s does not exist", at.Name)
		case a.ClaimKey() != key:
			found(Mismatch, "its IPAddress %s belongs to %s", at.Name, a.ClaimInPool())
		}
	}
	return out
}

// poolFindings compares the status of pools with the addresses. A pool that was not looked at yet has none.
func (o *objects) poolFindings() []Finding {
	used := map[types.NamespacedName]int64{}
	for _, a := range o.addresses {
		used[types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.Pool.Name}]++
	}
	var out []Finding
	for _, key := range sorted(o.pools) {
		p := o.pools[key]
		if p.Status.Used != nil && *p.Status.Used != used[key] {
			out = append(out, Finding{Mismatch, "IPPool " + key.String(), fmt.Sprintf("status.used is %d, and it has %d addresses", *p.Status.Used, used[key])})
		}
		for claim, ip := range p.Status.Allocations {
			addr, err := allocate.ParseAddr(string(ip))
			if err != nil {
				continue
			}
			a, ok := o.addresses[types.NamespacedName{Namespace: key.Namespace, Name: allocate.AddressName(p.Spec.NamePrefix, addr)}]
			if !ok || a.ClaimInPool() != claim {
				out = append(out, Finding{Mismatch, "IPPool " + key.String(), fmt.Sprintf("status.indexes gives %s to %s, who does not have it", ip, claim)})
			}
		}
	}
	return out
}

func sorted[V any](m map[types.NamespacedName]V) []types.NamespacedName {
	keys := make([]types.NamespacedName, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b types.NamespacedName) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}
