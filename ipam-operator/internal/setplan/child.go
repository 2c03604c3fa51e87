// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package setplan

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// pausedByClaim is the value of the pause annotation of an IPClaim that is paused because the claim that it was made for is.
const pausedByClaim = "ipclaim"

// followed are the labels that an IPClaim loses with the claim that it was made for: they say who serves it, and which Cluster stops it.
func followed() []string { return []string{ipamv1.ClusterNameLabel, ipamv1.WatchFilterLabel} }

// newChild is the IPClaim that serves an additional address of a claim.
func newChild(claim *ipamv1.IPClaim, address ipamv1.AdditionalAddress) *ipamv1.IPClaim {
	child := &ipamv1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.AddressClaimName(address.Name), Labels: map[string]string{ipamv1.AddressNameLabel: address.Name},
			OwnerReferences: []metav1.OwnerReference{ownerOf(claim)},
		},
		Spec: ipamv1.IPClaimSpec{PoolSelector: address.PoolSelector.DeepCopy(), PrefixLength: address.PrefixLength},
	}
	if address.Pool != nil {
		child.Spec.Pool = ipamv1.ObjectReference{Namespace: address.Pool.Namespace, Name: address.Pool.Name}
	}
	return carried(claim, child)
}

// ownerOf is the owner reference that has the garbage collector delete an IPClaim with the claim that it was made for, and a mover take it along.
func ownerOf(claim *ipamv1.IPClaim) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: ipamv1.GroupVersion.String(), Kind: ipamv1.IPClaimKind, Name: claim.Name, UID: claim.UID, Controller: new(true), BlockOwnerDeletion: new(true),
	}
}

// carried is an IPClaim with the labels and the pause of the claim that it was made for. A pause of its own stays.
func carried(claim, child *ipamv1.IPClaim) *ipamv1.IPClaim {
	out := child.DeepCopy()
	name := out.Labels[ipamv1.AddressNameLabel]
	for _, key := range followed() {
		delete(out.Labels, key)
	}
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	maps.Copy(out.Labels, claim.Labels)
	out.Labels[ipamv1.AddressNameLabel] = name
	_, paused := claim.Annotations[ipamv1.PausedAnnotation]
	value, has := out.Annotations[ipamv1.PausedAnnotation]
	switch {
	case paused && !has:
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[ipamv1.PausedAnnotation] = pausedByClaim
	case !paused && value == pausedByClaim:
		delete(out.Annotations, ipamv1.PausedAnnotation)
	}
	return out
}
