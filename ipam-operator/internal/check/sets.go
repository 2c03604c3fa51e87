// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// setFindings looks at claims of several addresses: whether the status says what the IPClaims of these have, and whether one of those is left whose claim is gone.
func (o *objects) setFindings() []Finding {
	var out []Finding
	for _, key := range sorted(o.claims) {
		claim := o.claims[key]
		if !claim.DeletionTimestamp.IsZero() {
			continue
		}
		found := func(p Problem, format string, args ...any) {
			out = append(out, Finding{p, "IPClaim " + key.String(), fmt.Sprintf(format, args...)})
		}
		for _, has := range claim.Status.Addresses {
			child := o.claims[types.NamespacedName{Namespace: key.Namespace, Name: claim.AddressClaimName(has.Name)}]
			switch {
			case child == nil:
				found(Dangling, "status.addresses has %s, and its IPClaim %s does not exist", has.IPAddress, claim.AddressClaimName(has.Name))
			case child.Status.Address == nil || child.Status.Address.Name != has.Address.Name:
				found(Mismatch, "status.addresses has IPAddress %s, and IPClaim %s does not have it", has.Address.Name, child.Name)
			}
		}
		if owner := metav1.GetControllerOf(claim); owner != nil && owner.Kind == ipamv1.IPClaimKind {
			if parent := o.claims[types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}]; parent == nil || parent.UID != owner.UID {
				found(Orphan, "IPClaim %s that it was made for does not exist", owner.Name)
			}
		}
	}
	return out
}
