// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
	"github.com/muster-io/muster/pool-operator/internal/requeue"
)

// releaseOrphans looks after clusters that record a claim of this name which does not exist any more: because it was deleted by force, because it was not restored yet, or because a pass
// with an old view recorded it. p is the claim that has the name now; nil when none has. The result is when to look again; 0 is never.
func (r *Reconciler) releaseOrphans(ctx context.Context, key types.NamespacedName, p *pass) (again time.Duration, err error) {
	var clusters hivev1.ClusterDeploymentList
	if err := r.Client.List(ctx, &clusters, client.MatchingFields{indexClusterClaim: key.String()}); err != nil {
		return 0, fmt.Errorf("listing clusters that record claim %s: %w", key, err)
	}
	var failures []error
	for i := range clusters.Items {
		cd := &clusters.Items[i]
		if p != nil && recorded(cd, p.Claim) {
			continue
		}
		member, err := r.isMember(ctx, cd)
		if err == nil && member {
			var wait time.Duration
			wait, err = r.releaseOrphan(ctx, key, cd)
			again = requeue.Sooner(again, wait)
		}
		failures = append(failures, err)
	}
	return again, errors.Join(failures...)
}

// releaseOrphan makes sure on the API server that the claim is gone and takes the next steps.
func (r *Reconciler) releaseOrphan(ctx context.Context, key types.NamespacedName, cd *hivev1.ClusterDeployment) (wait time.Duration, err error) {
	if r.memory.ahead(cd) {
		return catchUp, nil
	}
	s := claimplan.Snapshot{Own: new(claimplan.ClusterOf(cd))}
	s.Own.Deleting = s.Own.Deleting || r.memory.dying(cd.UID)
	if s.Pool, err = r.pool(ctx, s.Own.Pool); err != nil {
		return 0, err
	}
	if err := r.observeRights(ctx, r.Client, &s, cd.Namespace); err != nil {
		return 0, err
	}
	for {
		action, wait := claimplan.GiveUp(r.Clock.Now(), s, r.memory.abandoned(cd.UID))
		if action == nil {
			return wait, nil
		}
		exists, err := r.claimExists(ctx, key, cd)
		if err != nil {
			return 0, fmt.Errorf("looking for claim %s of cluster %s: %w", key, cd.Namespace, err)
		}
		if exists {
			return 0, errAgain
		}
		if err := r.giveUp(ctx, &s, action); err != nil {
			return 0, err
		}
		r.Metrics.acted(action)
	}
}

func (r *Reconciler) giveUp(ctx context.Context, s *claimplan.Snapshot, action claimplan.Action) error {
	switch a := action.(type) {
	case claimplan.RevokeRights:
		return r.rights.revoke(ctx, s, a)
	case claimplan.ReleaseCluster:
		return r.releaseCluster(ctx, s, a)
	case claimplan.ReportMissing:
		return r.reportMissing(ctx, s, a)
	default:
		return fmt.Errorf("giving up cluster %s: %T is none of it", s.Own.Namespace, action)
	}
}

// reportMissing writes the condition that says that the cluster's claim does not exist, or removes it.
func (r *Reconciler) reportMissing(ctx context.Context, s *claimplan.Snapshot, a claimplan.ReportMissing) error {
	status := hivev1ac.ClusterDeploymentStatus()
	reason, now := "", metav1.NewTime(r.Clock.Now().Truncate(time.Second))
	if !a.Found {
		message := "The ClusterClaim that has this cluster was deleted without giving it back. The cluster is deleted ten minutes later; to keep it, add the annotation " +
			hivev1.AnnotationProtectedDelete + "."
		reason = hivev1.ReasonClaimDeleted
		if a.Restored {
			reason = hivev1.ReasonClaimNotRestored
			message = "The ClusterClaim that has this cluster is not there. The cluster is kept while it has the label " + hivev1.LabelDisableCreationCheck +
				"; restore the claim, or remove the label to have the cluster deleted."
		}
		status.WithConditions(hivev1ac.Condition().WithType(hivev1.ClusterDeploymentClaimMissing).WithStatus(corev1.ConditionTrue).WithReason(reason).WithMessage(message).
			WithLastTransitionTime(now).WithLastProbeTime(now))
	}
	apply := hivev1ac.ClusterDeployment(a.Cluster, a.Cluster).WithUID(a.UID).WithResourceVersion(a.ResourceVersion).WithStatus(status)
	if err := r.Client.Status().Apply(ctx, apply, FieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("reporting on cluster %s whether its claim exists: %w", a.Cluster, err)
	}
	if apply.ResourceVersion != nil {
		s.Own.ResourceVersion = *apply.ResourceVersion
		r.memory.written.Wrote(a.UID, *apply.ResourceVersion)
	}
	s.Own.OrphanReason, s.Own.OrphanedSince = reason, now.Time
	logf.FromContext(ctx).Info("reported whether the claim of a cluster exists", "ClusterDeployment", a.Cluster, "found", a.Found, "restored", a.Restored)
	return nil
}

// claimExists asks the API server whether the claim that the cluster records exists. After a restore from a backup claims have other UIDs; a claim that names
// the restored cluster keeps it.
func (r *Reconciler) claimExists(ctx context.Context, key types.NamespacedName, cd *hivev1.ClusterDeployment) (bool, error) {
	claim := &hivev1.ClusterClaim{}
	if err := r.Live.Get(ctx, key, claim); err != nil {
		if outcome.IsGone(err) {
			return false, nil
		}
		return false, err
	}
	restored := hivev1.IsTrue(cd.Labels, hivev1.LabelDisableCreationCheck) && claim.Spec.Namespace == cd.Namespace
	return recorded(cd, claim) || restored, nil
}

// recorded says whether the claim, whose name the cluster records, is the one that it records. Where it records no UID, it is the one that names the cluster.
func recorded(cd *hivev1.ClusterDeployment, claim *hivev1.ClusterClaim) bool {
	if uid := cd.Spec.ClusterPoolRef.ClaimUID; uid != "" {
		return uid == claim.UID
	}
	return claim.Spec.Namespace == cd.Namespace
}
