// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// Kinds of Cluster API's contract, for pools that are no IPPools.
var (
	contractClaimKind   = schema.GroupKind{Group: "ipam.cluster.x-k8s.io", Kind: "IPAddressClaim"}
	contractAddressKind = schema.GroupKind{Group: "ipam.cluster.x-k8s.io", Kind: "IPAddress"}
)

// contractAddress is the address of a pool that Cluster API's contract serves. It has no name servers.
func (r *Reconciler) contractAddress(ctx context.Context, data *infrav1.Metal3Data, subject *render.Subject, pool render.Pool) (render.Address, error) {
	claim, err := r.contractClaim(ctx, data, subject, pool)
	if err != nil {
		return render.Address{}, err
	}
	name := text(claim, "status", "addressRef", "name")
	if name == "" {
		if why := notReady(claim); why != "" {
			return render.Address{}, refuse(errAllocation, pool.Name, why)
		}
		return render.Address{}, errWaiting
	}
	address, err := r.contractObject(contractAddressKind, data.Namespace, name)
	if err != nil {
		return render.Address{}, err
	}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(address), address); apierrors.IsNotFound(err) {
		return render.Address{}, errWaiting
	} else if err != nil {
		return render.Address{}, fmt.Errorf("reading IPAddress %s of pool %s: %w", name, pool.Name, err)
	}
	prefix, _, _ := unstructured.NestedInt64(address.Object, "spec", "prefix")
	return render.Address{IP: text(address, "spec", "address"), Prefix: int(prefix), Gateway: text(address, "spec", "gateway")}, nil
}

// contractClaim is the claim of a pool; it is made unless there is one.
func (r *Reconciler) contractClaim(ctx context.Context, data *infrav1.Metal3Data, subject *render.Subject, pool render.Pool) (*unstructured.Unstructured, error) {
	meta := r.claimMeta(data, subject, pool)
	r.waits.on(client.ObjectKeyFromObject(data), object{kind: contractClaimKind})
	claim, err := r.contractObject(contractClaimKind, meta.Namespace, meta.Name)
	if err != nil {
		return nil, err
	}
	r.waits.on(client.ObjectKeyFromObject(data), object{contractClaimKind, client.ObjectKeyFromObject(claim)})
	err = r.Live.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	switch {
	case err == nil && isOwnedBy(claim, data.UID):
		return claim, nil
	case err == nil:
		return nil, r.occupied(ctx, data, contractClaimKind.Kind, claim)
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading IPAddressClaim %s: %w", meta.Name, err)
	}
	claim.SetLabels(meta.Labels)
	claim.SetFinalizers(meta.Finalizers)
	claim.SetOwnerReferences(meta.OwnerReferences)
	claim.Object["spec"] = map[string]any{"poolRef": map[string]any{"apiGroup": pool.Group, "kind": pool.Kind, "name": pool.Name}}
	if err := r.Client.Create(ctx, claim, client.FieldOwner(FieldOwner)); err != nil {
		return nil, fmt.Errorf("creating IPAddressClaim %s: %w", meta.Name, err)
	}
	return claim, nil
}

// contractClaims are the claims of the contract that Metal3Data of a name own, or owned.
func (r *Reconciler) contractClaims(ctx context.Context, data types.NamespacedName) ([]unstructured.Unstructured, error) {
	kind, ok := r.kinds.get(contractClaimKind)
	if !ok {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind)
	if err := r.Cache.List(ctx, list, client.InNamespace(data.Namespace), client.MatchingFields{ClaimByData: data.Name}); err != nil {
		return nil, fmt.Errorf("listing the IPAddressClaims of Metal3Data %s: %w", data, err)
	}
	return list.Items, nil
}

func (r *Reconciler) contractObject(kind schema.GroupKind, namespace, name string) (*unstructured.Unstructured, error) {
	served, ok := r.kinds.get(contractClaimKind)
	if !ok {
		return nil, refuse("%s %s: the kinds of %s are not installed", contractClaimKind.Kind, name, contractClaimKind.Group)
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.WithVersion(served.Version))
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj, nil
}

// notReady is why a claim of the contract has no address; empty while its status does not say.
func notReady(claim *unstructured.Unstructured) string {
	conditions, _, _ := unstructured.NestedSlice(claim.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["type"] == "Ready" && condition["status"] == "False" {
			message, _ := condition["message"].(string)
			return message
		}
	}
	return ""
}

func text(obj *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(obj.Object, path...)
	return value
}
