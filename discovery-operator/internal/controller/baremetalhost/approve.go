// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// approve notes on a host that a user has approved it, whatever else the host waits for, and says who. The write fails if the host changed since it was read.
func (r *Reconciler) approve(ctx context.Context, host *metal3v1.BareMetalHost) (changed bool, err error) {
	pause, paused := host.Annotations[metal3v1.PausedAnnotation]
	if host.Labels[metal3v1.ApprovalLabel] != "pending" || host.Annotations[metal3v1.ApprovedAnnotation] != "true" || host.DeletionTimestamp != nil ||
		paused && pause != metal3v1.DiscoveryPausedValue {
		return false, nil
	}
	key := client.ObjectKeyFromObject(host)
	next := host.DeepCopy()
	next.Labels[metal3v1.ApprovalLabel] = "approved"
	patch := client.MergeFromWithOptions(host, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, next, patch, client.FieldOwner(FieldOwner)); apierrors.IsNotFound(err) {
		return true, nil
	} else if err != nil {
		return false, wrap(err, "approving host %s", key)
	}
	who := r.approver(ctx, next) // the answer has the managers, which the cache leaves out
	r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, metal3v1.EventHostApproved, "Approve", "Approved by %s, with the annotation %s", who, metal3v1.ApprovedAnnotation)
	ctrl.LoggerFrom(ctx).Info("host approved", "BareMetalHost", key.String(), "by", who)
	return true, nil
}

// maxUser bounds the name of a user in an event.
const maxUser = 256

// approver is the user who approved a host, as the admission check recorded it. Where there is no check, it is the name under which the client writes, which the
// client chooses.
func (r *Reconciler) approver(ctx context.Context, h *metal3v1.BareMetalHost) string {
	lease, err := r.lease(ctx, r.Live, strings.ToLower(h.Spec.BootMACAddress))
	if err != nil {
		ctrl.LoggerFrom(ctx).Info("reservation not read", "why", err.Error())
	} else if lease != nil {
		was := reservation.Of(lease)
		if was.ApprovedBy != "" && was.Host == (inventory.Ref{Namespace: h.Namespace, Name: h.Name}) {
			return "user " + was.ApprovedBy[:min(len(was.ApprovedBy), maxUser)]
		}
	}
	for _, f := range h.ManagedFields {
		if f.FieldsV1 != nil && strings.Contains(f.FieldsV1.String(), `"f:`+metal3v1.ApprovedAnnotation+`"`) {
			return fmt.Sprintf("the field manager %s", f.Manager)
		}
	}
	return "an unknown client"
}
