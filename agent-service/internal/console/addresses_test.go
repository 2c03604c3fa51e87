// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// TestAddressesOfAPoolAreAPicture of what is free, for those whom RBAC lets read the pool.
func TestAddressesOfAPoolAreAPicture(t *testing.T) {
	t.Parallel()
	chromium := browserOf(t)
	s := newKubeSite(t)
	user := s.account("netops", allow(ipamv1.GroupVersion.Group, "ippools", "get", "list"))
	stranger := s.account("stranger")
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: ipamv1.IPPoolSpec{
		NamePrefix: "rack", Prefix: 24, AddressReuseGracePeriodSeconds: 300, ExcludedAddresses: []ipamv1.AddressSpan{"192.0.2.18-192.0.2.19"},
		Pools: []ipamv1.Pool{{Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.19"))}, {Subnet: new(ipamv1.IPSubnetStr("2001:db8::/64"))}},
	}}
	s.create(pool)
	s.status(pool, func() {
		pool.Status = ipamv1.IPPoolStatus{
			Total: new(int64(8)), Used: new(int64(8)), Free: new(int64(0)), Allocations: map[string]ipamv1.IPAddressStr{"a": "192.0.2.10", "b": "192.0.2.11", "other/c": "192.0.2.15", "d": "2001:db8::8000:0:0:0"},
			Conditions: []metav1.Condition{{Type: ipamv1.ExhaustedCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonAddressesCoolDown, Message: "192.0.2.12 is free at noon <b>", LastTransitionTime: metav1.Now()}},
		}
	})

	b := s.open(chromium, t, user)
	b.visit("/addresses?namespace=" + s.namespace)
	b.sees("tbody", "Exhausted, cools down")
	b.sees("tbody", "192.0.2.12 is free at noon <b>")
	b.looksFine("addresses")
	b.press("rack")
	b.sees("h1", "rack")
	b.sees("dl", "300 s")
	assert.Equal(t, []string{"192.0.2.10 to 192.0.2.19: 3 claims have addresses here", "2001:db8::1 to 2001:db8::ffff:ffff:ffff:ffff: 1 claim has an address here"},
		ask[[]string](b, `Array.from(document.querySelectorAll("svg.strip")).map(e => e.getAttribute("aria-label"))`))
	assert.Equal(t, []string{"excluded 480 120", "used 0 120", "used 300 60", "used 300 2"},
		ask[[]string](b, `Array.from(document.querySelectorAll("svg.strip rect:not(.free)")).map(e => e.className.baseVal + " " + e.getAttribute("x") + " " + e.getAttribute("width"))`))
	b.looksFine("address")

	b = s.open(chromium, t, stranger)
	for _, path := range []string{"/addresses?namespace=" + s.namespace, "/addresses/" + s.namespace + "/rack"} {
		b.visit(path)
		b.sees(".notice", "The Kubernetes API does not let you do this")
		assert.NotContains(t, ask[string](b, `document.querySelector("main").innerText`), "192.0.2")
	}
}
