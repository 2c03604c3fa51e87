// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package setplan

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// Ready is the condition of a claim that has its first address: true when it has all the others, too.
func Ready(claim *ipamv1.IPClaim, missing []Missing) metav1.Condition {
	has := []string{string(*claim.Status.IPAddress)}
	for _, address := range claim.Status.Addresses {
		has = append(has, string(address.IPAddress))
	}
	ready := metav1.Condition{
		Type: ipamv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: ipamv1.ReasonAllocated,
		Message: "The claim has " + strings.Join(has, ", "), ObservedGeneration: claim.Generation,
	}
	if len(missing) > 0 {
		ready.Status, ready.Reason = metav1.ConditionFalse, missing[0].Reason
	}
	for _, address := range missing {
		ready.Message += "; " + address.Name + ": " + address.Message
	}
	return ready
}

// Unreported are the additional addresses of a claim that its status does not have.
func Unreported(claim *ipamv1.IPClaim) []Missing {
	var out []Missing
	for _, address := range claim.Spec.AdditionalAddresses {
		if !slices.ContainsFunc(claim.Status.Addresses, func(has ipamv1.ClaimAddress) bool { return has.Name == address.Name }) {
			missing := pending("IPClaim " + claim.AddressClaimName(address.Name) + " has no address yet")
			missing.Name = address.Name
			out = append(out, *missing)
		}
	}
	return out
}
