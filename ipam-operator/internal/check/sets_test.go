// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

func TestClaimsOfSeveralAddresses(t *testing.T) {
	dual := func() *ipamv1.IPClaim {
		claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "a", UID: "1"}}
		claim.Status.Addresses = []ipamv1.ClaimAddress{{Name: "v6", IPAddress: "fd00::1", Address: ipamv1.ObjectReference{Name: "v6-fd00--1"}}}
		return claim
	}
	child := func(owner types.UID, has string) *ipamv1.IPClaim {
		claim := &ipamv1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "a-v6", OwnerReferences: []metav1.OwnerReference{
			{Kind: ipamv1.IPClaimKind, Name: "a", UID: owner, Controller: new(true)},
		}}}
		claim.Status.Address = &ipamv1.ObjectReference{Name: has}
		return claim
	}
	for name, test := range map[string]struct {
		claims []*ipamv1.IPClaim
		want   []string
	}{
		"whole":                      {[]*ipamv1.IPClaim{dual(), child("1", "v6-fd00--1")}, nil},
		"another address":            {[]*ipamv1.IPClaim{dual(), child("1", "v6-fd00--2")}, []string{"mismatch  IPClaim metal/a: status.addresses has IPAddress v6-fd00--1, and IPClaim a-v6 does not have it"}},
		"no claim of it":             {[]*ipamv1.IPClaim{dual()}, []string{"dangling  IPClaim metal/a: status.addresses has fd00::1, and its IPClaim a-v6 does not exist"}},
		"its claim is gone":          {[]*ipamv1.IPClaim{child("1", "v6-fd00--1")}, []string{"orphan    IPClaim metal/a-v6: IPClaim a that it was made for does not exist"}},
		"its claim was created anew": {[]*ipamv1.IPClaim{dual(), child("2", "v6-fd00--1")}, []string{"orphan    IPClaim metal/a-v6: IPClaim a that it was made for does not exist"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &objects{claims: map[types.NamespacedName]*ipamv1.IPClaim{}}
			for _, claim := range test.claims {
				o.claims[types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}] = claim
			}
			var got []string
			for _, finding := range o.setFindings() {
				got = append(got, finding.String())
			}
			assert.Equal(t, test.want, got)
		})
	}
}
