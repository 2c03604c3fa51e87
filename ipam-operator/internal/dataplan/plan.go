// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package dataplan

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Plan decides what is done about a Metal3Data.
func Plan(s Snapshot) Decision {
	switch {
	case s.Data == nil:
		return Decision{Actions: s.releaseStray()}
	case s.isPaused():
		return Decision{Why: allocate.WhyPaused}
	case s.isDeleted():
		return Decision{Actions: s.giveBack(), Why: allocate.WhyDeleted}
	case s.Claim == nil && (isRestored(s.Data) || !slices.ContainsFunc(s.Data.Finalizers, isOurs)):
		// Data that this operator has never served was made by hand or restored, and may be ahead of its claim.
		return refuse(WhyClaimNotFound, "Metal3DataClaim "+s.Data.Spec.Claim.Name+" not found")
	case s.Claim == nil:
		return Decision{Actions: []Action{DeleteData{}}}
	}
	d := s.serve()
	d.Actions = append(s.releaseStray(), d.Actions...)
	return d
}

// serve decides about data that has its claim.
func (s *Snapshot) serve() Decision {
	switch {
	case s.isRendered():
		return ready()
	case s.Hold == allocate.HeldClusterMissing:
		return refuse(allocate.WhyClusterNotFound, "Cluster "+s.Template.Spec.ClusterName+" not found")
	case s.Template == nil:
		return refuse(WhyTemplateNotFound, "Metal3DataTemplate "+s.Data.Spec.Template.Name+" not found")
	default:
		return s.render()
	}
}

func ready() Decision { return Decision{Why: allocate.WhyServed, Report: &Report{Ready: true}} }

func refuse(why allocate.Why, message string) Decision {
	return Decision{Why: why, Report: &Report{Message: message}}
}

// stray are claims that are being deleted, and whose data is gone: data of the same name with another UID has no part in them.
func (s *Snapshot) stray() []Claim {
	var out []Claim
	for _, claim := range s.Owned {
		if !claim.GetDeletionTimestamp().IsZero() && !claim.isOf(s.uid()) && !claim.Paused {
			out = append(out, claim)
		}
	}
	return out
}

func (s *Snapshot) releaseStray() []Action {
	var out []Action
	for _, claim := range s.stray() {
		out = append(out, ReleaseClaim{claim})
	}
	return out
}

// giveBack deletes the claims of deleted data and, when they are gone, removes the finalizer of the data. Its Secrets are deleted with it.
func (s *Snapshot) giveBack() []Action {
	if !slices.ContainsFunc(s.Data.Finalizers, isOurs) {
		return nil
	}
	var out []Action
	left := false
	for _, claim := range s.Owned {
		if !claim.isOf(s.Data.UID) {
			continue
		}
		left = true
		if claim.Paused {
			continue
		}
		out = append(out, ReleaseClaim{claim})
		if claim.GetDeletionTimestamp().IsZero() {
			out = append(out, DeleteClaim{claim})
		}
	}
	if !left {
		out = append(out, ReleaseData{})
	}
	return out
}

// isOurs reports whether a finalizer of a Metal3Data is one that waits for its addresses. The second one is on data that was
// made before this operator served it.
func isOurs(finalizer string) bool {
	return finalizer == infrav1.DataFinalizer || finalizer == infrav1.ClaimFinalizer
}

// WithoutOurs are the finalizers that stay on data whose addresses are given back.
func WithoutOurs(finalizers []string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), isOurs)
}

// Belongs reports whether a Metal3Data is that of a claim. A claim that was created again under its name is another one: the
// owner reference decides by UID. Where there is none, the garbage collector may have removed it because that claim is gone. Data that was restored belongs to the claim that it names.
func Belongs(data, claim metav1.Object) bool {
	for _, owner := range data.GetOwnerReferences() {
		if owner.Kind == infrav1.Metal3DataClaimKind && owner.Name == claim.GetName() {
			return owner.UID == claim.GetUID()
		}
	}
	of, ok := data.(*infrav1.Metal3Data)
	created := claim.GetCreationTimestamp()
	return ok && of.Spec.Claim.Name == claim.GetName() && (isRestored(of) || !created.After(of.CreationTimestamp.Time))
}

// isRestored reports whether data was made by hand, or restored without its owners: its template does not own it. Where its claim goes away, the garbage collector leaves that owner.
func isRestored(data *infrav1.Metal3Data) bool {
	return !slices.ContainsFunc(data.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == infrav1.Metal3DataTemplateKind })
}

// Owners are the owner references of data of a template that was made for a claim and its machine.
func Owners(template *infrav1.Metal3DataTemplate, claim metav1.Object, machine metav1.OwnerReference) []metav1.OwnerReference {
	return []metav1.OwnerReference{
		{APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataTemplateKind, Name: template.Name, UID: template.UID, Controller: new(true)},
		{APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataClaimKind, Name: claim.GetName(), UID: claim.GetUID()},
		{APIVersion: machine.APIVersion, Kind: machine.Kind, Name: machine.Name, UID: machine.UID},
	}
}
