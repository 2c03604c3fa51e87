// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
)

// takeBack makes a host that this operator managed, when it still managed hosts, what it was before: held where discovery made it, and in a
// state that every operator knows. The hold comes first, so that no operator acts in between.
func (r *Reconciler) takeBack(ctx context.Context, host *metal3v1.BareMetalHost, s handover.TakeBack) error {
	_, paused := host.Annotations[metal3v1.PausedAnnotation]
	if s.Hold && !paused {
		next := host.DeepCopy()
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, metal3v1.PausedAnnotation, metal3v1.DiscoveryPausedValue)
		controllerutil.AddFinalizer(next, metal3v1.DiscoveryFinalizer)
		controllerutil.RemoveFinalizer(next, metal3v1.BareMetalHostFinalizer)
		patch := client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})
		if err := r.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner)); err != nil {
			return outcome.IgnoreGone(wrap(err, "holding host %s", client.ObjectKeyFromObject(host)))
		}
		host = next
	}
	first := handover.First(host.Labels[metal3v1.ApprovalLabel] == "pending")
	now := metav1.NewTime(r.Now())
	status := host.Status.DeepCopy()
	status.Provisioning.State, status.OperationalStatus, status.LastUpdated = metal3v1.StateUnmanaged, metal3v1.OperationalStatusDiscovered, &now
	status.ErrorType, status.ErrorMessage, status.ErrorCount = "", "", 0
	status.GoodCredentials = metal3v1.CredentialsStatus{}
	status.Conditions = []metav1.Condition{{
		Type: metal3v1.ConditionHandedOver, Status: metav1.ConditionFalse, Reason: first.Reason, Message: first.Message, LastTransitionTime: now,
		ObservedGeneration: host.Generation,
	}}
	err := writeStatus(ctx, r.Client, host, status)
	return outcome.IgnoreGone(wrap(err, "taking the status of host %s back", client.ObjectKeyFromObject(host)))
}
