// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// Types of events.
const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning
)

// report writes the claim's status, at most once a pass, and never over a newer claim. After a lost race it leaves that to the pass that follows at once.
func (r *Reconciler) report(ctx context.Context, p *pass, d claimplan.Decision, failure error) error {
	if d.Status == nil || outcome.IsAgain(failure) {
		return nil
	}
	config := hivev1ac.ClusterClaim(p.Claim.Name, p.Claim.Namespace).
		WithUID(p.Claim.UID).WithResourceVersion(p.Claim.ResourceVersion).WithStatus(statusConfiguration(d.Status))
	err := r.Client.Status().Apply(ctx, config, FieldOwner, client.ForceOwnership)
	if apierrors.IsNotFound(err) {
		if p.recorded != "" {
			r.memory.abandons(p.recorded)
			return errAgain
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the claim's status: %w", err)
	}
	if config.ResourceVersion != nil {
		r.memory.written.Wrote(p.Claim.UID, *config.ResourceVersion)
	}
	r.announce(ctx, p, d.Status)
	return nil
}

// announce publishes an event when a claim was served.
func (r *Reconciler) announce(ctx context.Context, p *pass, status *hivev1.ClusterClaimStatus) {
	before := hivev1.FindCondition(p.Claim.Status.Conditions, hivev1.ClusterClaimPending)
	after := hivev1.FindCondition(status.Conditions, hivev1.ClusterClaimPending)
	if after.Status != corev1.ConditionFalse || before != nil && before.Status == corev1.ConditionFalse || !p.Claim.DeletionTimestamp.IsZero() {
		return
	}
	wait := r.Clock.Now().Sub(p.Claim.CreationTimestamp.Time)
	r.Metrics.served(p.PoolKey(), wait)
	r.event(p.Claim, p.Claim.Spec.Namespace, normal, hivev1.ReasonClusterClaimed, "Assign", "Cluster %s is the claim's", p.Claim.Spec.Namespace)
	logf.FromContext(ctx).Info("served a claim", "ClusterDeployment", p.Claim.Spec.Namespace, "waited", wait.Round(time.Millisecond).String())
}

// event publishes an outcome about the claim, in relation to its cluster.
func (r *Reconciler) event(claim *hivev1.ClusterClaim, cluster, kind, reason, action, note string, args ...any) {
	var related runtime.Object
	if cluster != "" {
		related = &hivev1.ClusterDeployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: hivev1.GroupVersion.String(), Kind: "ClusterDeployment"},
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: cluster},
		}
	}
	r.Recorder.Eventf(claim, related, kind, reason, action, note, args...)
}

func statusConfiguration(status *hivev1.ClusterClaimStatus) *hivev1ac.ClusterClaimStatusApplyConfiguration {
	out := hivev1ac.ClusterClaimStatus()
	for i := range status.Conditions {
		c := &status.Conditions[i]
		out.WithConditions(hivev1ac.Condition().WithType(c.Type).WithStatus(c.Status).WithReason(c.Reason).WithMessage(c.Message).
			WithLastProbeTime(c.LastProbeTime).WithLastTransitionTime(c.LastTransitionTime))
	}
	if status.Lifetime != nil {
		out.WithLifetime(*status.Lifetime)
	}
	if status.QueuePosition > 0 {
		out.WithQueuePosition(status.QueuePosition)
	}
	if status.WaitingFor != "" {
		out.WithWaitingFor(status.WaitingFor)
	}
	if status.EstimatedAssignmentTime != nil {
		out.WithEstimatedAssignmentTime(*status.EstimatedAssignmentTime)
	}
	return out
}
