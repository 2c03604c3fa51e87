// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestAClaimShowsItsAddressAndTheHolderOfTheOneItRequests has claims of both kinds hold addresses that another claim asks for.
func TestAClaimShowsItsAddressAndTheHolderOfTheOneItRequests(t *testing.T) {
	w := newTestEnv(t)
	w.installContract()
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.12")} })
	w.claim("a", "p")
	held := w.address("a")
	assert.Equal(t, held.Spec.Address, *w.getClaim("a").Status.IPAddress)
	w.addressClaim("b", "p", nil)
	contract := w.contractAddress("b")
	byHand := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p-10-0-0-12"},
		Spec:       ipamv1.IPAddressSpec{Address: "10.0.0.12", Pool: ipamv1.ObjectReference{Name: "p"}, Claim: ipamv1.ObjectReference{Name: "missing"}},
	}
	require.NoError(t, w.user.Create(t.Context(), byHand))
	w.untilUsed("p", 3)
	for ip, says := range map[string]string{
		string(held.Spec.Address): "is taken by IPClaim a", ipOf(contract): "is taken by IPAddressClaim b", "10.0.0.12": "is taken by IPAddress p-10-0-0-12, which reserves it",
	} {
		claim := w.newClaim("wants-"+strings.ReplaceAll(ip, ".", "-"), "p")
		claim.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: ip}
		require.NoError(t, w.user.Create(t.Context(), claim))
		w.eventually("the message does not name the holder of "+ip, func() bool { return strings.HasSuffix(w.waitMessage(claim), ip+" "+says) })
	}
	next := "wants-" + strings.ReplaceAll(string(held.Spec.Address), ".", "-")
	w.delete(w.getClaim("a"))
	assert.Equal(t, held.Spec.Address, w.address(next).Spec.Address)
}

// TestACoolDownDiffersFromExhaustion releases the only address of a pool that keeps it for a time.
func TestACoolDownDiffersFromExhaustion(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("p", func(s *ipamv1.IPPoolSpec) {
		s.Pools, s.AddressReuseGracePeriodSeconds = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")}, 3600
	})
	exhausted := func(reason, says string) func() bool {
		return func() bool {
			condition := meta.FindStatusCondition(w.getPool("p").Status.Conditions, ipamv1.ExhaustedCondition)
			return condition != nil && condition.Reason == reason && strings.Contains(condition.Message, says)
		}
	}
	w.claim("a", "p")
	address := w.address("a")
	w.eventually("the pool is not exhausted", exhausted(ipamv1.ReasonNoAddressFree, "taken or reserved"))
	w.delete(w.getClaim("a"))
	w.eventually("the address is not released", func() bool {
		return w.user.Get(t.Context(), client.ObjectKeyFromObject(address), address) == nil && address.DeletionTimestamp != nil
	})
	at := address.DeletionTimestamp.Add(time.Hour).UTC().Format(time.RFC3339)
	w.eventually("the pool does not tell when its address is free", exhausted(ipamv1.ReasonAddressesCoolDown, at))
	waiting := w.claim("b", "p")
	w.eventually("the claim is not told when an address is free", func() bool { return strings.Contains(w.waitMessage(waiting), "cool down is free at "+at) })
	asking := w.newClaim("c", "p")
	asking.Annotations = map[string]string{ipamv1.RequestedAddressAnnotation: "10.0.0.10"}
	require.NoError(t, w.user.Create(t.Context(), asking))
	w.eventually("the claim is not told when its address is free", func() bool {
		return strings.HasSuffix(w.waitMessage(asking), "10.0.0.10 is taken by IPClaim a, which released it: it is free at "+at)
	})
}

// TestPoolsThatOverlapAreWarnedAbout has two pools of a namespace hand out the same addresses, and then not any more.
func TestPoolsThatOverlapAreWarnedAbout(t *testing.T) {
	w := newTestEnv(t)
	w.operator(nil)
	w.pool("a", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.20")} })
	w.pool("beside", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.30", "10.0.0.40")} })
	overlapping := func(pool string) *metav1.Condition {
		return meta.FindStatusCondition(w.getPool(pool).Status.Conditions, ipamv1.OverlappingCondition)
	}
	other := w.pool("b", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.15", "10.0.0.25")} })
	for pool, says := range map[string]string{"a": "IPPool b hands out 10.0.0.15-10.0.0.20, too", "b": "IPPool a hands out 10.0.0.15-10.0.0.20, too"} {
		w.eventually("the overlap is not told at "+pool, func() bool {
			condition := overlapping(pool)
			return condition != nil && condition.Status == metav1.ConditionTrue && strings.Contains(condition.Message, says)
		})
		w.eventually("there is no event about "+pool, func() bool { return w.hasEvent(pool, ipamv1.ReasonRangesOverlap) })
	}
	w.merge(other, `{"spec":{"pools":[{"start":"10.0.0.21","end":"10.0.0.25"}]}}`)
	for _, pool := range []string{"a", "b"} {
		w.eventually("the end of the overlap is not told at "+pool, func() bool { return overlapping(pool).Status == metav1.ConditionFalse })
	}
	assert.Nil(t, overlapping("beside"))
	w.merge(other, `{"spec":{"pools":[{"start":"10.0.0.30","end":"10.0.0.30"}]}}`)
	w.eventually("the overlap is not told", func() bool {
		return overlapping("beside") != nil && overlapping("beside").Status == metav1.ConditionTrue
	})
	w.delete(other)
	w.eventually("the end of the overlap is not told", func() bool { return overlapping("beside").Status == metav1.ConditionFalse })
}

// hasEvent reports whether there is an event about an object.
func (w *site) hasEvent(name, reason string) bool {
	list := &eventsv1.EventList{}
	require.NoError(w.t, w.user.List(w.t.Context(), list, client.InNamespace(w.namespace)))
	for i := range list.Items {
		if list.Items[i].Regarding.Name == name && list.Items[i].Reason == reason {
			return true
		}
	}
	return false
}

// TestTheSchemaSaysWhatToWrite asks the API server what it says to what is no address, MAC address or annotation.
func TestTheSchemaSaysWhatToWrite(t *testing.T) {
	w := newTestEnv(t)
	pool := func(spec map[string]any) *unstructured.Unstructured {
		spec["namePrefix"] = "p"
		return w.untyped("ipam.metal3.io", "v1alpha1", "IPPool", spec)
	}
	template := func(data map[string]any) *unstructured.Unstructured {
		return w.untyped("infrastructure.cluster.x-k8s.io", "v1beta1", "Metal3DataTemplate", data)
	}
	ethernet := func(mac map[string]any) *unstructured.Unstructured {
		return template(map[string]any{"networkData": map[string]any{"links": map[string]any{"ethernets": []any{map[string]any{"type": "phy", "id": "e", "macAddress": mac}}}}})
	}
	route := func(gateway string) *unstructured.Unstructured {
		return template(map[string]any{"networkData": map[string]any{"networks": map[string]any{"ipv4": []any{map[string]any{
			"id": "n", "link": "e", "ipAddressFromIPPool": "p", "routes": []any{map[string]any{"network": "0.0.0.0", "gateway": map[string]any{"string": gateway}}},
		}}}}})
	}
	for name, test := range map[string]struct {
		obj  *unstructured.Unstructured
		says string // empty: accepted
	}{
		"the gateway of a pool":      {pool(map[string]any{"gateway": "10.0.0.256"}), "gateway must be an address such as 192.168.0.1"},
		"the gateway of an entry":    {pool(map[string]any{"pools": []any{map[string]any{"subnet": "10.0.0.0/24", "gateway": "10.0.0"}}}), "gateway must be an address such as"},
		"a start":                    {pool(map[string]any{"pools": []any{map[string]any{"start": "10.0.0.x"}}}), "start must be an address such as"},
		"a subnet":                   {pool(map[string]any{"pools": []any{map[string]any{"subnet": "10.0.0.0/33"}}}), "subnet must be a network such as"},
		"a MAC address":              {ethernet(map[string]any{"string": "52:54:00:12:34"}), "string must be a MAC address such as 52:54:00:12:34:56"},
		"a good MAC address":         {ethernet(map[string]any{"string": "52:54:00:12:34:5F"}), ""},
		"an annotation":              {ethernet(map[string]any{"fromAnnotation": map[string]any{"object": "baremetalhost", "annotation": "mac of eth0"}}), "must be the key of an annotation"},
		"a good annotation":          {ethernet(map[string]any{"fromAnnotation": map[string]any{"object": "baremetalhost", "annotation": "example.com/mac"}}), ""},
		"the gateway of a route":     {route("10.0.0.1/24"), "string must be an address such as 192.168.0.1"},
		"a good gateway of a route":  {route("10.0.0.1"), ""},
		"an annotation of meta data": {template(map[string]any{"metaData": map[string]any{"fromAnnotations": []any{map[string]any{"key": "k", "object": "machine", "annotation": "/rack"}}}}), "must be the key of an annotation"},
	} {
		t.Run(name, func(t *testing.T) {
			err := w.user.Create(t.Context(), test.obj, client.DryRunAll)
			if test.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.says)
		})
	}
}

func (w *site) untyped(group, version, kind string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: kind})
	obj.SetNamespace(w.namespace)
	obj.SetName("said")
	return obj
}
