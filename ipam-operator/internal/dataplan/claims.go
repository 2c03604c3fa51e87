// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package dataplan

import (
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// ContractClaimKind is the kind of claims of pools that are no IPPools.
var ContractClaimKind = schema.GroupKind{Group: "ipam.cluster.x-k8s.io", Kind: "IPAddressClaim"}

// Labels of IPClaims that are named after a host.
const (
	dataNameLabel = "infrastructure.cluster.x-k8s.io/data-name"
	poolNameLabel = "infrastructure.cluster.x-k8s.io/pool-name"
)

// isOf reports whether data owns a claim.
func (c *Claim) isOf(data types.UID) bool {
	for _, owner := range c.GetOwnerReferences() {
		if owner.UID == data {
			return true
		}
	}
	return false
}

// isRestored reports whether a claim of a pool was made by hand, or restored without its owner.
func (c *Claim) isRestored(of render.Pool) bool {
	if len(c.GetOwnerReferences()) > 0 || !c.GetDeletionTimestamp().IsZero() {
		return false
	}
	switch claim := c.Object.(type) {
	case *ipamv1.IPClaim:
		return claim.PoolKey() == types.NamespacedName{Namespace: claim.Namespace, Name: of.Name}
	case *unstructured.Unstructured:
		return of == render.Pool{Group: text(claim, "spec", "poolRef", "apiGroup"), Kind: text(claim, "spec", "poolRef", "kind"), Name: text(claim, "spec", "poolRef", "name")}
	default:
		return false
	}
}

// AddressName is the name of the IPAddress that a claim has; empty while it has none.
func (c *Claim) AddressName() string {
	switch claim := c.Object.(type) {
	case *ipamv1.IPClaim:
		if claim.Status.Address != nil && claim.Status.ErrorMessage == nil {
			return claim.Status.Address.Name
		}
	case *unstructured.Unstructured:
		return text(claim, "status", "addressRef", "name")
	}
	return ""
}

// PoolToRead is the name of the IPPool that tells the prefix of an address that was made without one; empty where it states one.
func (c *Claim) PoolToRead() string {
	if address, ok := c.Address.(*ipamv1.IPAddress); ok && address.Spec.Prefix == 0 {
		return address.Spec.Pool.Name
	}
	return ""
}

// refused is why a claim has no address; empty while its status does not say.
func (c *Claim) refused() string {
	switch claim := c.Object.(type) {
	case *ipamv1.IPClaim:
		if claim.Status.ErrorMessage != nil {
			return *claim.Status.ErrorMessage
		}
		if ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse {
			return ready.Message
		}
	case *unstructured.Unstructured:
		conditions, _, _ := unstructured.NestedSlice(claim.Object, "status", "conditions")
		for _, entry := range conditions {
			condition, _ := entry.(map[string]any)
			if condition["type"] == "Ready" && condition["status"] == "False" {
				message, _ := condition["message"].(string)
				return message
			}
		}
	}
	return ""
}

// given is the address that a claim has got, as it is rendered. An address of Cluster API's contract has no name servers.
func (c *Claim) given() (render.Address, error) {
	switch address := c.Address.(type) {
	case *ipamv1.IPAddress:
		out := render.Address{IP: string(address.Spec.Address), Prefix: address.Spec.Prefix}
		if out.Prefix == 0 && c.Layout != nil {
			ip, err := allocate.ParseAddr(out.IP)
			if err != nil {
				return out, fmt.Errorf("IPAddress %s: %w", address.Name, err)
			}
			network, _ := c.Layout.NetworkOf(ip, 0)
			out.Prefix = network.Prefix
		}
		if address.Spec.Gateway != nil {
			out.Gateway = string(*address.Spec.Gateway)
		}
		for _, server := range address.Spec.DNSServers {
			out.DNSServers = append(out.DNSServers, string(server))
		}
		return out, nil
	case *unstructured.Unstructured:
		prefix, _, _ := unstructured.NestedInt64(address.Object, "spec", "prefix")
		return render.Address{IP: text(address, "spec", "address"), Prefix: int(prefix), Gateway: text(address, "spec", "gateway")}, nil
	default:
		return render.Address{}, nil
	}
}

func text(obj *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(obj.Object, path...)
	return value
}

// addresses are those of the pools that a template names. Claims that are not there are made, and those of restored data get their owner, all at once; why says what is missing, and is
// empty for a wait that a claim reports itself.
func (s *Snapshot) addresses(subject *render.Subject, pools []render.Pool) (addresses render.Addresses, claims []Action, why string, complete bool) {
	addresses, complete = render.Addresses{}, true
	for _, want := range s.wants(subject, pools) {
		claim, found := s.Claims[want.Pool]
		address, message, ok := render.Address{}, "", false
		switch {
		case want.Kind == ContractClaimKind.Kind && s.NoContract:
			message = fmt.Sprintf("%s %s: the kinds of %s are not installed", want.Kind, want.Name, ContractClaimKind.Group)
		case !found:
			claims = append(claims, CreateClaim{want.Kind, s.newClaim(want)})
		case !claim.isOf(s.Data.UID) && isRestored(s.Data) && claim.isRestored(want.Pool):
			claims = append(claims, AdoptClaim{claim, s.controller()})
		case !claim.isOf(s.Data.UID):
			message = s.occupied(&claim)
		default:
			address, message, ok = claim.address(want.Pool.Name)
		}
		if ok {
			addresses[want.Pool.Name] = address
			continue
		}
		complete = false
		if why == "" {
			why = message
		}
	}
	return addresses, claims, why, complete
}

// address is that of a pool that a claim has got, or why there is none.
func (c *Claim) address(pool string) (address render.Address, why string, ok bool) {
	if c.AddressName() == "" {
		if refused := c.refused(); refused != "" {
			why = fmt.Sprintf("IP Allocation for %s failed : %s", pool, refused)
		}
		return address, why, false
	}
	if c.Address == nil {
		return address, "", false // the claim notices, and gets another
	}
	address, err := c.given()
	if err != nil {
		return address, err.Error(), false
	}
	return address, "", true
}

// occupied says whose claim has the name of one that data wants; empty while data of this name that is gone still has it.
func (s *Snapshot) occupied(claim *Claim) string {
	owner := metav1.GetControllerOf(claim)
	switch {
	case owner != nil && owner.Kind == infrav1.Metal3DataKind && owner.Name == s.Data.Name:
		return ""
	case owner != nil:
		return fmt.Sprintf("%s %s belongs to %s %s", claim.Kind, claim.GetName(), owner.Kind, owner.Name)
	default:
		return fmt.Sprintf("%s %s is there already and has no owner", claim.Kind, claim.GetName())
	}
}

// wants are the claims of pools. A claim that the data has already for an IPPool is kept under its name.
func (s *Snapshot) wants(subject *render.Subject, pools []render.Pool) []Want {
	out := make([]Want, 0, len(pools))
	for _, pool := range pools {
		want := Want{Pool: pool, Kind: ContractClaimKind.Kind, Name: s.Data.Name + "-" + pool.Name}
		if pool.IsIPPool() {
			want.Kind = ipamv1.IPClaimKind
			if s.NameByHost {
				want.Name = subject.Host.Name + "-" + pool.Name
			}
			if claim := s.ownedOf(pool.Name); claim != nil {
				want.Name = claim.GetName()
			}
		}
		out = append(out, want)
	}
	return out
}

// ownedOf is the IPClaim that the data has for an IPPool.
func (s *Snapshot) ownedOf(pool string) *ipamv1.IPClaim {
	for i := range s.Owned {
		if claim, ok := s.Owned[i].Object.(*ipamv1.IPClaim); ok && s.Owned[i].isOf(s.Data.UID) && claim.Spec.Pool.Name == pool {
			return claim
		}
	}
	return nil
}

// newClaim is the claim of a pool.
func (s *Snapshot) newClaim(want Want) Object {
	m := metav1.ObjectMeta{
		Namespace: s.Data.Namespace, Name: want.Name, Labels: maps.Clone(s.Data.Labels), Finalizers: []string{infrav1.DataFinalizer},
		OwnerReferences: []metav1.OwnerReference{s.controller()},
	}
	if !want.Pool.IsIPPool() {
		claim := &unstructured.Unstructured{Object: map[string]any{
			"spec": map[string]any{"poolRef": map[string]any{"apiGroup": want.Pool.Group, "kind": want.Pool.Kind, "name": want.Pool.Name}},
		}}
		claim.SetNamespace(m.Namespace)
		claim.SetName(m.Name)
		claim.SetLabels(m.Labels)
		claim.SetFinalizers(m.Finalizers)
		claim.SetOwnerReferences(m.OwnerReferences)
		return claim
	}
	if s.NameByHost {
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[dataNameLabel], m.Labels[poolNameLabel] = s.Data.Name, want.Pool.Name
	}
	return &ipamv1.IPClaim{ObjectMeta: m, Spec: ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: want.Pool.Name, Namespace: s.Data.Namespace}}}
}

func (s *Snapshot) controller() metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataKind, Name: s.Data.Name, UID: s.Data.UID, Controller: new(true),
	}
}
