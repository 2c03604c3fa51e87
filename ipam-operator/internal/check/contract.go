// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Names of Cluster API's contract.
const (
	contractGroup       = "ipam.cluster.x-k8s.io"
	contractClaimKind   = "IPAddressClaim"
	contractAddressKind = "IPAddress"
)

// contractVersions are those that are tried, in order.
var contractVersions = []string{"v1beta2", "v1beta1"}

// contract is the objects of Cluster API's contract whose pool is an IPPool of ipam.metal3.io, and the claims on pools of other kinds.
type contract struct {
	served    bool
	claims    map[types.NamespacedName]*unstructured.Unstructured
	addresses map[types.NamespacedName]*unstructured.Unstructured
	foreign   map[types.NamespacedName]*unstructured.Unstructured
}

// readContract reads the objects of the contract; where that is not installed there are none.
func readContract(ctx context.Context, reader client.Reader, namespace string) (*contract, error) {
	c := &contract{}
	var served bool
	var err error
	if c.addresses, _, served, err = listContract(ctx, reader, namespace, contractAddressKind); err != nil || !served {
		return c, err
	}
	c.claims, c.foreign, c.served, err = listContract(ctx, reader, namespace, contractClaimKind)
	return c, err
}

// listContract lists the objects of a kind whose pool is an IPPool, and those with another pool.
func listContract(ctx context.Context, reader client.Reader, namespace, kind string) (ours, foreign map[types.NamespacedName]*unstructured.Unstructured, served bool, err error) {
	for _, version := range contractVersions {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: contractGroup, Version: version, Kind: kind + "List"})
		err := reader.List(ctx, list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, nil, false, fmt.Errorf("listing %s of %s: %w", kind, contractGroup, err)
		}
		ours, foreign = map[types.NamespacedName]*unstructured.Unstructured{}, map[types.NamespacedName]*unstructured.Unstructured{}
		for i := range list.Items {
			obj := &list.Items[i]
			if text(obj, "spec", "poolRef", "apiGroup") == ipamv1.GroupVersion.Group && text(obj, "spec", "poolRef", "kind") == ipamv1.IPPoolKind {
				ours[client.ObjectKeyFromObject(obj)] = obj
			} else {
				foreign[client.ObjectKeyFromObject(obj)] = obj
			}
		}
		return ours, foreign, true, nil
	}
	return nil, nil, false, nil
}

// contractFindings looks at the objects of the contract, and at the addresses of ipam.metal3.io that lock theirs.
func (o *objects) contractFindings() []Finding {
	if !o.contract.served {
		return nil
	}
	var out []Finding
	held := map[types.NamespacedName]string{}
	for _, key := range sorted(o.contract.addresses) {
		a := o.contract.addresses[key]
		if a.GetDeletionTimestamp().IsZero() {
			out = append(out, o.contractAddressFindings(key, a, held)...)
		}
	}
	locked := map[types.NamespacedName]string{}
	for _, key := range sorted(o.addresses) {
		if a := o.addresses[key]; a.Spec.Claim.Kind == contractClaimKind && a.DeletionTimestamp.IsZero() {
			out = append(out, o.lockFindings(key, a, locked)...)
		}
	}
	return append(out, o.contractClaimFindings()...)
}

// contractAddressFindings looks for the pool, the claim and the lock of an address.
func (o *objects) contractAddressFindings(key types.NamespacedName, a *unstructured.Unstructured, held map[types.NamespacedName]string) []Finding {
	var out []Finding
	found := func(p Problem, format string, args ...any) {
		out = append(out, Finding{p, "IPAddress." + contractGroup + " " + key.String(), fmt.Sprintf(format, args...)})
	}
	if pool := text(a, "spec", "poolRef", "name"); o.pools[types.NamespacedName{Namespace: key.Namespace, Name: pool}] == nil {
		found(Dangling, "its IPPool %s does not exist", pool)
	}
	claimKey := types.NamespacedName{Namespace: key.Namespace, Name: text(a, "spec", "claimRef", "name")}
	claim, ok := o.contract.claims[claimKey]
	switch {
	case !ok:
		found(Orphan, "its IPAddressClaim %s does not exist", claimKey.Name)
	case !ownedBy(a, claim):
		found(Orphan, "its IPAddressClaim %s was deleted and created again", claimKey.Name)
	case held[claimKey] != "":
		found(Double, "IPAddressClaim %s has IPAddress %s too", claimKey.Name, held[claimKey])
	default:
		held[claimKey] = key.Name
	}
	out = append(out, contractNetworkFindings(key, a)...)
	lock, ok := o.addresses[key]
	switch {
	case !ok:
		found(Dangling, "no IPAddress of ipam.metal3.io locks it")
	case lock.Spec.Claim.Kind != contractClaimKind || lock.Spec.Claim.Name != claimKey.Name:
		found(Double, "the IPAddress of ipam.metal3.io of its name belongs to %s %s", kindOf(lock), lock.Spec.Claim.Name)
	default:
		ours, _ := allocate.ParseAddr(string(lock.Spec.Address))
		if theirs, err := allocate.ParseAddr(text(a, "spec", "address")); err != nil || theirs != ours {
			found(Mismatch, "has %s, and its lock %s", text(a, "spec", "address"), ours)
		}
	}
	return out
}

// lockFindings looks for whose lock an address of ipam.metal3.io is, and whether its claim has another one.
func (o *objects) lockFindings(key types.NamespacedName, a *ipamv1.IPAddress, locked map[types.NamespacedName]string) []Finding {
	claimKey := a.ClaimKey()
	claim, ok := o.contract.claims[claimKey]
	object := "IPAddress " + key.String()
	switch {
	case a.Labels[ipamv1.ImportedFromLabel] != "" && len(a.Finalizers) == 0: // its claim is of another provider's pool
		return nil
	case !ok:
		return []Finding{{Orphan, object, fmt.Sprintf("its IPAddressClaim %s does not exist", claimKey.Name)}}
	case !ownedBy(a, claim):
		return []Finding{{Orphan, object, fmt.Sprintf("its IPAddressClaim %s was deleted and created again", claimKey.Name)}}
	case locked[claimKey] != "":
		return []Finding{{Double, object, fmt.Sprintf("IPAddressClaim %s has IPAddress %s too", claimKey.Name, locked[claimKey])}}
	}
	locked[claimKey] = key.Name
	return nil
}

// contractClaimFindings looks at what claims say that they have.
func (o *objects) contractClaimFindings() []Finding {
	var out []Finding
	named := map[types.NamespacedName]string{}
	for _, key := range sorted(o.contract.claims) {
		c := o.contract.claims[key]
		at := types.NamespacedName{Namespace: key.Namespace, Name: text(c, "status", "addressRef", "name")}
		if at.Name == "" || !c.GetDeletionTimestamp().IsZero() {
			continue
		}
		found := func(p Problem, format string, args ...any) {
			out = append(out, Finding{p, contractClaimKind + " " + key.String(), fmt.Sprintf(format, args...)})
		}
		if other, ok := named[at]; ok {
			found(Double, "names IPAddress %s, as IPAddressClaim %s does", at.Name, other)
		}
		named[at] = key.Name
		switch a, ok := o.contract.addresses[at]; {
		case !ok:
			found(Dangling, "its IPAddress %s does not exist", at.Name)
		case text(a, "spec", "claimRef", "name") != key.Name:
			found(Mismatch, "its IPAddress %s belongs to %s", at.Name, text(a, "spec", "claimRef", "name"))
		}
	}
	return out
}

// ownedBy reports whether an object belongs to this claim, and not to an earlier one of its name. One that names no claim as
// its owner was made by hand.
func ownedBy(obj client.Object, claim *unstructured.Unstructured) bool {
	for _, owner := range obj.GetOwnerReferences() {
		if owner.Kind == contractClaimKind && owner.UID != claim.GetUID() {
			return false
		}
	}
	return true
}

func kindOf(lock *ipamv1.IPAddress) string {
	if lock.Spec.Claim.Kind == "" {
		return ipamv1.IPClaimKind
	}
	return lock.Spec.Claim.Kind
}

func text(obj *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(obj.Object, path...)
	return value
}
