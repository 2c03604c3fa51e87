// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

var specTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// ruled is a pool of a /29 with a gateway, an excluded and a preallocated address, whose spec was written at specTime.
func ruled(change ...func(*ipamv1.IPPool)) *ipamv1.IPPool {
	p := pool("p", ipamv1.IPPoolStatus{})
	p.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", Time: new(metav1.NewTime(specTime))},
		{Manager: "ipam-operator/ippool", Subresource: "status", Time: new(metav1.NewTime(specTime.Add(time.Hour)))},
	}
	p.Spec.Pools = []ipamv1.Pool{{Subnet: new(ipamv1.IPSubnetStr("10.0.0.0/29"))}}
	p.Spec.Gateway = new(ipamv1.IPAddressStr("10.0.0.1"))
	p.Spec.ExcludedAddresses = []ipamv1.AddressSpan{"10.0.0.2"}
	p.Spec.PreAllocations = map[string]ipamv1.IPAddressStr{"reserved": "10.0.0.3"}
	for _, f := range change {
		f(p)
	}
	return p
}

// counted sets the counts of a status.
func counted(total, free, outOfRange int64) func(*ipamv1.IPPool) {
	return func(p *ipamv1.IPPool) {
		p.Status.Total, p.Status.Free, p.Status.OutOfRange = &total, &free, &outOfRange
	}
}

// given is an address that a manager made some time after specTime.
func given(name, ip, claim, manager string, after time.Duration) *ipamv1.IPAddress {
	a := address(name, ip, claim)
	a.CreationTimestamp = metav1.NewTime(specTime.Add(after))
	a.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:address":{}}}`)}}
	return a
}

func unserved(c *ipamv1.IPClaim, kind, apiVersion string) *ipamv1.IPClaim {
	c.Finalizers = []string{ipamv1.IPClaimFinalizer}
	c.Spec.Pool = ipamv1.ObjectReference{Kind: kind, APIVersion: apiVersion, Name: "p"}
	return c
}

// ofContract is an object of the contract with a prefix and a gateway.
func ofContract(kind, name string, spec map[string]any, finalizers ...string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetAPIVersion(contractGroup + "/v1beta2")
	obj.SetKind(kind)
	obj.SetNamespace("ns")
	obj.SetName(name)
	obj.SetFinalizers(finalizers)
	return obj
}

// TestEachRule injects one fault at a time.
func TestEachRule(t *testing.T) {
	const operator = "ipam-operator/ipclaim"
	poolRef := map[string]any{"apiGroup": ipamv1.GroupVersion.Group, "kind": ipamv1.IPPoolKind, "name": "p"}
	elsewhere := map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}
	for name, test := range map[string]struct {
		objects []client.Object
		want    []string
	}{
		"what the spec allows": {objects: []client.Object{
			ruled(counted(4, 2, 0)), given("p-10-0-0-3", "10.0.0.3", "reserved", operator, time.Minute), given("p-10-0-0-4", "10.0.0.4", "a", operator, time.Minute),
		}},
		"a gateway": {
			objects: []client.Object{ruled(), given("p-10-0-0-1", "10.0.0.1", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPAddress ns/p-10-0-0-1: IPClaim a has 10.0.0.1, which is a gateway of the pool"},
		},
		"a network address": {
			objects: []client.Object{ruled(), given("p-10-0-0-0", "10.0.0.0", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPAddress ns/p-10-0-0-0: IPClaim a has 10.0.0.0, which is the network address of 10.0.0.0/29"},
		},
		"a broadcast address": {
			objects: []client.Object{ruled(), given("p-10-0-0-7", "10.0.0.7", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPAddress ns/p-10-0-0-7: IPClaim a has 10.0.0.7, which is the broadcast address of 10.0.0.0/29"},
		},
		"a gateway that is preallocated to its claim": {objects: []client.Object{
			ruled(func(p *ipamv1.IPPool) { p.Spec.PreAllocations["a"] = "10.0.0.1" }), given("p-10-0-0-1", "10.0.0.1", "a", operator, time.Minute),
		}},
		"an excluded address": {
			objects: []client.Object{ruled(), given("p-10-0-0-2", "10.0.0.2", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPAddress ns/p-10-0-0-2: IPClaim a has 10.0.0.2, which is excluded"},
		},
		"an address that is preallocated to another claim": {
			objects: []client.Object{ruled(), given("p-10-0-0-3", "10.0.0.3", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPAddress ns/p-10-0-0-3: IPClaim a has 10.0.0.3, which is preallocated to claim reserved"},
		},
		"one that was given before the spec excluded it": {
			objects: []client.Object{ruled(), given("p-10-0-0-2", "10.0.0.2", "a", operator, -time.Minute)},
			want:    []string{"notice    IPAddress ns/p-10-0-0-2: IPClaim a has 10.0.0.2, which is excluded"},
		},
		"one that a user restored": {
			objects: []client.Object{ruled(), given("p-10-0-0-2", "10.0.0.2", "a", "velero", time.Minute)},
			want:    []string{"notice    IPAddress ns/p-10-0-0-2: IPClaim a has 10.0.0.2, which is excluded"},
		},
		"a total that is wrong": {
			objects: []client.Object{ruled(counted(5, 3, 0))},
			want:    []string{"mismatch  IPPool ns/p: status.total is 5, and by spec and addresses it is 4"},
		},
		"a count of free addresses that is wrong": {
			objects: []client.Object{ruled(counted(4, 3, 0)), given("p-10-0-0-4", "10.0.0.4", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPPool ns/p: status.free is 3, and by spec and addresses it is 2"},
		},
		"an address out of range that is not counted": {
			objects: []client.Object{ruled(counted(4, 3, 0)), given("p-10-0-0-9", "10.0.0.9", "a", operator, time.Minute)},
			want:    []string{"mismatch  IPPool ns/p: status.outOfRange is 0, and by spec and addresses it is 1"},
		},
		"counts beside an inventory": {objects: []client.Object{ruled(counted(4, 1, 0), func(p *ipamv1.IPPool) { p.Status.External = new(int64(2)) })}},
		"counts of an earlier spec":  {objects: []client.Object{ruled(counted(9, 9, 9), func(p *ipamv1.IPPool) { p.Generation = 2 })}},
		"a finalizer on an IPClaim that is not served": {
			objects: []client.Object{unserved(claim("a", ""), "InClusterIPPool", "ipam.cluster.x-k8s.io/v1beta2"), unserved(claim("served", ""), "IPPool", "ipam.metal3.io/v1beta1")},
			want:    []string{"mismatch  IPClaim ns/a: carries the finalizer ipclaim.ipam.metal3.io, and its pool is of kind InClusterIPPool of ipam.cluster.x-k8s.io/v1beta2, which is not served"},
		},
		"a finalizer on an IPAddressClaim that is not served": {
			objects: []client.Object{
				ofContract(contractClaimKind, "a", map[string]any{"poolRef": elsewhere}, ipamv1.ContractClaimFinalizer), ofContract(contractClaimKind, "b", map[string]any{"poolRef": elsewhere}),
			},
			want: []string{"mismatch  IPAddressClaim ns/a: carries the finalizer ipam.metal3.io/ipaddressclaim, and its pool is of kind InClusterIPPool of ipam.cluster.x-k8s.io, which is not served"},
		},
		"an address of the contract without a prefix": {
			objects: []client.Object{ofContract(contractAddressKind, "x", map[string]any{"poolRef": poolRef, "address": "10.0.0.4", "prefix": int64(0)})},
			want:    []string{"mismatch  IPAddress.ipam.cluster.x-k8s.io ns/x: has no prefix"},
		},
		"an address of the contract with a gateway of the other family": {
			objects: []client.Object{ofContract(contractAddressKind, "x", map[string]any{"poolRef": poolRef, "address": "10.0.0.4", "prefix": int64(24), "gateway": "fd00::1"})},
			want:    []string{"mismatch  IPAddress.ipam.cluster.x-k8s.io ns/x: has the gateway fd00::1, which is not of the family of 10.0.0.4"},
		},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, ruleFindings(test.objects)) })
	}
}

// ruleFindings is what the rules of this file find, without the others.
func ruleFindings(all []client.Object) (found []string) {
	o := &objects{
		pools: map[types.NamespacedName]*ipamv1.IPPool{}, claims: map[types.NamespacedName]*ipamv1.IPClaim{}, addresses: map[types.NamespacedName]*ipamv1.IPAddress{},
		contract: &contract{foreign: map[types.NamespacedName]*unstructured.Unstructured{}},
	}
	var findings []Finding
	for _, obj := range all {
		key := client.ObjectKeyFromObject(obj)
		switch obj := obj.(type) {
		case *ipamv1.IPPool:
			o.pools[key] = obj
		case *ipamv1.IPClaim:
			o.claims[key] = obj
		case *ipamv1.IPAddress:
			o.addresses[key] = obj
		case *unstructured.Unstructured:
			if obj.GetKind() == contractClaimKind {
				o.contract.foreign[key] = obj
			} else {
				findings = append(findings, contractNetworkFindings(key, obj)...)
			}
		}
	}
	layouts := o.layoutsOf()
	findings = append(findings, o.withheldFindings(layouts)...)
	findings = append(findings, o.countFindings(layouts)...)
	for _, finding := range append(findings, o.unservedFindings()...) {
		found = append(found, finding.String())
	}
	return found
}
