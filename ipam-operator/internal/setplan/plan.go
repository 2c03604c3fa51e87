// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package setplan decides what is done for a claim that asks for several addresses: each one beside the first is served by an IPClaim of its own, and the status of the
// claim collects what these have. It is a pure function of what was observed.
package setplan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// Snapshot is what a decision rests on.
type Snapshot struct {
	// Claim asks for several addresses.
	Claim *ipamv1.IPClaim
	// Held says that nothing may be done for the claim: it is paused, its pool or a Cluster is, or the Cluster is missing.
	Held bool
	// Entries are the additional addresses of the claim, in the order of its spec.
	Entries []Entry
}

// Entry is an additional address of a claim.
type Entry struct {
	// Address is what is asked for.
	Address ipamv1.AdditionalAddress
	// Held says that nothing may be done for this address.
	Held bool
	// Child is the IPClaim that has the name of the one for this address; nil where there is none.
	Child *ipamv1.IPClaim
	// Pool is where the address of the child comes from; nil where that is not known.
	Pool *ipamv1.PoolReference
}

// Action is a CreateClaim or an UpdateClaim.
//
//sumtype:decl
type Action interface{ isAction() }

// CreateClaim makes the IPClaim of an address, where none has its name.
type CreateClaim struct{ Claim *ipamv1.IPClaim }

// UpdateClaim changes the metadata of an IPClaim, under the resourceVersion that it had before.
type UpdateClaim struct{ Before, After *ipamv1.IPClaim }

func (CreateClaim) isAction() {}
func (UpdateClaim) isAction() {}

// Decision is what to do, and then what to write into the status of the claim.
type Decision struct {
	Actions []Action
	// Report is nil where the status is left alone.
	Report *Report
}

// Report is what the status of a claim says of its additional addresses.
type Report struct {
	// Addresses are those that the claim has, in the order of its spec.
	Addresses []ipamv1.ClaimAddress
	// Missing are the others.
	Missing []Missing
}

// Missing is an additional address that a claim does not have, and why.
type Missing struct {
	// Name of the address.
	Name string
	// Reason for the condition Ready of the claim.
	Reason string
	// Message says what the address waits for.
	Message string
}

// Plan decides what is done for a claim. The IPClaims of a deleted one are left to the garbage collector, which knows whether they shall go with it.
func Plan(s Snapshot) Decision {
	var decision Decision
	if !s.Claim.DeletionTimestamp.IsZero() {
		return decision
	}
	report := &Report{}
	for _, entry := range s.Entries {
		entry.Held = entry.Held || s.Held
		action, missing := planEntry(s.Claim, entry)
		if action != nil {
			decision.Actions = append(decision.Actions, action)
		}
		if missing != nil {
			missing.Name = entry.Address.Name
			report.Missing = append(report.Missing, *missing)
			continue
		}
		report.Addresses = append(report.Addresses, addressOf(entry))
	}
	if !s.Held {
		decision.Report = report
	}
	return decision
}

// planEntry decides about one address: what is done for it, and what it waits for.
func planEntry(claim *ipamv1.IPClaim, entry Entry) (Action, *Missing) {
	child := entry.Child
	name := "IPClaim " + claim.AddressClaimName(entry.Address.Name)
	switch {
	case child == nil && entry.Held:
		return nil, pending(name + " is made when neither the pool nor the Cluster is paused or missing")
	case child == nil:
		return CreateClaim{newChild(claim, entry.Address)}, pending(name + " is being made")
	}
	switch owner := metav1.GetControllerOf(child); {
	case owner == nil && isRestored(claim, entry):
		if entry.Held {
			return nil, pending(name + " has no owner yet")
		}
		after := carried(claim, child)
		after.OwnerReferences = append(after.OwnerReferences, ownerOf(claim))
		return UpdateClaim{child, after}, waitsOf(child, name)
	case owner != nil && owner.UID != claim.UID && owner.Kind == ipamv1.IPClaimKind && owner.Name == claim.Name:
		return nil, pending(name + " of an earlier claim of this name is still there")
	case owner == nil || owner.UID != claim.UID:
		return nil, &Missing{Reason: ipamv1.ReasonAllocationFailed, Message: name + " is there already and does not belong to this claim: delete one of the two"}
	}
	var action Action
	_, paused := claim.Annotations[ipamv1.PausedAnnotation]
	if after := carried(claim, child); (paused || !entry.Held) && child.DeletionTimestamp.IsZero() && !equality.Semantic.DeepEqual(child.ObjectMeta, after.ObjectMeta) {
		action = UpdateClaim{child, after}
	}
	return action, waitsOf(child, name)
}

// waitsOf says what an IPClaim waits for; nil for nothing.
func waitsOf(child *ipamv1.IPClaim, name string) *Missing {
	switch {
	case !child.DeletionTimestamp.IsZero():
		return pending(name + " is being deleted, and made again when it is gone")
	case child.Status.Address != nil && child.Status.IPAddress != nil:
		return nil
	}
	for _, condition := range child.Status.Conditions {
		if condition.Type == ipamv1.ReadyCondition && condition.Status == metav1.ConditionFalse {
			return &Missing{Reason: condition.Reason, Message: condition.Message}
		}
	}
	return pending(name + " has no address yet")
}

func pending(message string) *Missing {
	return &Missing{Reason: ipamv1.ReasonAddressesPending, Message: message}
}

// isRestored reports whether an IPClaim without owner was made for an address before, and lost its owner in a backup.
func isRestored(claim *ipamv1.IPClaim, entry Entry) bool {
	wanted := newChild(claim, entry.Address)
	return entry.Child.Labels[ipamv1.AddressNameLabel] == entry.Address.Name && entry.Child.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(entry.Child.Spec, wanted.Spec)
}

func addressOf(entry Entry) ipamv1.ClaimAddress {
	status := entry.Child.Status
	return ipamv1.ClaimAddress{
		Name: entry.Address.Name, Address: *status.Address, IPAddress: *status.IPAddress, Pool: entry.Pool,
		Prefix: status.Prefix, Gateway: status.Gateway, DNSServers: slices.Clone(status.DNSServers),
	}
}
