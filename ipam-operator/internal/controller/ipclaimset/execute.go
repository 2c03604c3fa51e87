// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipclaimset

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/setplan"
)

// execute does what was decided. An action that fails stops no other.
func (r *Reconciler) execute(ctx context.Context, claim *ipamv1.IPClaim, actions []setplan.Action) error {
	var first error
	for _, action := range actions {
		var err error
		switch do := action.(type) {
		case setplan.CreateClaim:
			err = r.createClaim(ctx, claim, do.Claim)
		case setplan.UpdateClaim:
			err = r.updateClaim(ctx, do)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// createClaim makes an IPClaim. One that has its name by now is seen by the next pass.
func (r *Reconciler) createClaim(ctx context.Context, claim, child *ipamv1.IPClaim) error {
	err := r.Client.Create(ctx, child, client.FieldOwner(FieldOwner))
	if apierrors.IsAlreadyExists(err) {
		err = outcome.Again(err) // the event of the write that came first is on its way
	}
	if err != nil {
		return fmt.Errorf("creating IPClaim %s for IPClaim %s: %w", child.Name, claim.Name, err)
	}
	ctrl.LoggerFrom(ctx).Info("Claimed an additional address", "address", child.Labels[ipamv1.AddressNameLabel])
	return nil
}

// updateClaim changes the metadata of an IPClaim.
func (r *Reconciler) updateClaim(ctx context.Context, do setplan.UpdateClaim) error {
	patch := client.MergeFromWithOptions(do.Before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, do.After.DeepCopy(), patch, client.FieldOwner(FieldOwner)); outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("changing IPClaim %s: %w", do.After.Name, err)
	}
	return nil
}

// report writes the additional addresses into the status of a claim. The condition Ready is written once the claim has its first address: until then it says why there
// is none.
func (r *Reconciler) report(ctx context.Context, claim *ipamv1.IPClaim, report *setplan.Report) error {
	if report == nil {
		return nil
	}
	before := claim.DeepCopy()
	claim.Status.Addresses = report.Addresses
	if claim.Status.Address != nil && claim.Status.IPAddress != nil {
		meta.SetStatusCondition(&claim.Status.Conditions, setplan.Ready(claim, report.Missing))
	}
	if equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, claim, patch, client.FieldOwner(FieldOwner)); err != nil {
		return outcome.IgnoreGone(fmt.Errorf("writing the status of IPClaim %s: %w", claim.Name, err))
	}
	r.tell(ctx, before, claim)
	return nil
}

// tell writes an event where the condition Ready has another reason than before.
func (r *Reconciler) tell(ctx context.Context, before, claim *ipamv1.IPClaim) {
	was, is := ready(before), ready(claim)
	if is == nil || was != nil && was.Status == is.Status && was.Reason == is.Reason || is.Reason == ipamv1.ReasonAddressesPending {
		return
	}
	ctrl.LoggerFrom(ctx).Info("Addresses of a claim were collected", "why", is.Reason, "message", is.Message)
	kind := corev1.EventTypeWarning
	if is.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeNormal
	}
	r.Recorder.Eventf(claim, nil, kind, is.Reason, "Allocate", "%s", is.Message)
}

func ready(claim *ipamv1.IPClaim) *metav1.Condition {
	return meta.FindStatusCondition(claim.Status.Conditions, ipamv1.ReadyCondition)
}
