// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeaddress

import (
	"context"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/muster-io/muster/agent-service/internal/addressplan"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// Kind is a kind of claims, and where its objects keep what is read of them.
type Kind struct {
	// Claim and Address are the kinds of claims and of addresses.
	Claim, Address schema.GroupVersionKind
	// pool is the field of a claim that names its pool, and given that which names its address.
	pool, given []string
	// claimOf and poolOf are the fields of an address that name its claim and its pool.
	claimOf, poolOf []string
}

// IPClaims are claims of IPPools.
func IPClaims() Kind {
	return Kind{
		Claim: ipamv1.GroupVersion.WithKind(ipamv1.IPClaimKind), Address: ipamv1.GroupVersion.WithKind("IPAddress"),
		pool: []string{"spec", "pool"}, given: []string{"status", "address", "name"}, claimOf: []string{"spec", "claim", "name"}, poolOf: []string{"spec", "pool", "name"},
	}
}

// IPAddressClaims are claims of pools of Cluster API's contract, in one of its versions.
func IPAddressClaims(version string) Kind {
	contract := schema.GroupVersion{Group: contractGroup, Version: version}
	return Kind{
		Claim: contract.WithKind(contractKind), Address: contract.WithKind("IPAddress"),
		pool: []string{"spec", "poolRef"}, given: []string{"status", "addressRef", "name"}, claimOf: []string{"spec", "claimRef", "name"}, poolOf: []string{"spec", "poolRef", "name"},
	}
}

const contractGroup, contractKind = "ipam.cluster.x-k8s.io", "IPAddressClaim"

// Contract is the kind of claims of Cluster API's contract, in any version.
var Contract = schema.GroupKind{Group: contractGroup, Kind: contractKind}

// KindOf is the kind of claims of a pool.
func KindOf(pool domain.AddressPool) schema.GroupKind {
	if pool.Group == ipamv1.GroupVersion.Group && pool.Kind == ipamv1.IPPoolKind {
		return schema.GroupKind{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPClaimKind}
	}
	return Contract
}

// empty is an object without content.
func empty(of schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(of)
	return object
}

// newClaim is a claim of a pool for an Agent.
func (k Kind) newClaim(agent *agentv1.Agent, name string, pool domain.AddressPool) *unstructured.Unstructured {
	reference := map[string]any{"name": pool.Name}
	if k.Claim.Group == contractGroup {
		reference["apiGroup"], reference["kind"] = pool.Group, pool.Kind
	}
	claim := empty(k.Claim)
	claim.Object["spec"] = map[string]any{k.pool[1]: reference}
	claim.SetNamespace(agent.Namespace)
	claim.SetName(name)
	claim.SetLabels(map[string]string{agentv1.ClaimOwnerLabel: agent.Name})
	claim.SetFinalizers([]string{agentv1.NodeAddressFinalizer})
	claim.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: agentv1.GroupVersion.String(), Kind: "Agent", Name: agent.Name, UID: agent.UID, Controller: new(true),
	}})
	return claim
}

// understand reads a claim, and the address that it has.
func (k Kind) understand(ctx context.Context, live client.Reader, agent *agentv1.Agent, claim *unstructured.Unstructured) (addressplan.Claim, error) {
	seen := addressplan.Claim{
		Name: claim.GetName(), Owned: metav1.IsControlledBy(claim, agent), Deleting: claim.GetDeletionTimestamp() != nil,
		Held: controllerutil.ContainsFinalizer(claim, agentv1.NodeAddressFinalizer),
		Pool: domain.AddressPool{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPPoolKind, Name: text(claim, append(k.pool, "name")...)},
	}
	if k.Claim.Group == contractGroup {
		seen.Pool.Group, seen.Pool.Kind = text(claim, append(k.pool, "apiGroup")...), text(claim, append(k.pool, "kind")...)
	}
	name := text(claim, k.given...)
	if name == "" {
		seen.Refused = refused(claim)
		return seen, nil
	}
	address := empty(k.Address)
	err := live.Get(ctx, client.ObjectKey{Namespace: claim.GetNamespace(), Name: name}, address)
	switch {
	case apierrors.IsNotFound(err):
		seen.Refused = "the IPAddress " + name + " of claim " + seen.Name + " is not there"
	case err != nil:
		return seen, fmt.Errorf("reading IPAddress %s/%s: %w", claim.GetNamespace(), name, err)
	case text(address, k.claimOf...) != seen.Name || text(address, k.poolOf...) != seen.Pool.Name:
		seen.Refused = fmt.Sprintf("the IPAddress %s is not of claim %s and %s", name, seen.Name, seen.Pool)
	default:
		if seen.Given, err = given(address); err != nil {
			seen.Given, seen.Refused = nil, fmt.Sprintf("the IPAddress %s cannot be used: %v", name, err)
		}
	}
	return seen, nil
}

// refused is why a claim has no address; empty while its status does not say.
func refused(claim *unstructured.Unstructured) string {
	if message := text(claim, "status", "errorMessage"); message != "" {
		return message
	}
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

// given reads an IPAddress of either group. Cluster API's has no name servers.
func given(object *unstructured.Unstructured) (*addressplan.Given, error) {
	address, err := netip.ParseAddr(text(object, "spec", "address"))
	if err != nil {
		return nil, fmt.Errorf("spec.address is not an address")
	}
	address = address.Unmap()
	length, has, _ := unstructured.NestedInt64(object.Object, "spec", "prefix")
	if !has || length <= 0 || length > int64(address.BitLen()) {
		return nil, fmt.Errorf("it has no length of a prefix: state prefix in the pool")
	}
	read := &addressplan.Given{Address: netip.PrefixFrom(address, int(length))}
	if gateway := text(object, "spec", "gateway"); gateway != "" {
		if read.Gateway, err = netip.ParseAddr(gateway); err != nil || read.Gateway.Unmap().BitLen() != address.BitLen() {
			return nil, fmt.Errorf("spec.gateway is not an address of the same family")
		}
		read.Gateway = read.Gateway.Unmap()
	}
	servers, _, _ := unstructured.NestedStringSlice(object.Object, "spec", "dnsServers")
	for _, server := range servers {
		parsed, err := netip.ParseAddr(server)
		if err != nil {
			return nil, fmt.Errorf("spec.dnsServers has an entry that is not an address")
		}
		read.DNS = append(read.DNS, parsed.Unmap())
	}
	return read, nil
}

func text(object *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(object.Object, path...)
	return value
}
