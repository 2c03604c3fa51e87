// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// releaseOrphans gives up clusters that record a claim of this name which does not exist any more, as a pass with an old view of a claim can leave behind. p is the
// claim that has the name now; nil when none has.
func (r *Reconciler) releaseOrphans(ctx context.Context, key types.NamespacedName, p *pass) error {
	var clusters hivev1.ClusterDeploymentList
	if err := r.Client.List(ctx, &clusters, client.MatchingFields{indexClusterClaim: key.String()}); err != nil {
		return fmt.Errorf("listing clusters that record claim %s: %w", key, err)
	}
	var failures []error
	for i := range clusters.Items {
		cd := &clusters.Items[i]
		uid := cd.Spec.ClusterPoolRef.ClaimUID
		if p != nil && (uid == "" || uid == p.Claim.UID) {
			continue
		}
		failures = append(failures, r.releaseOrphan(ctx, key, cd))
	}
	return errors.Join(failures...)
}

// releaseOrphan makes sure on the API server that the claim is gone and takes the next step.
func (r *Reconciler) releaseOrphan(ctx context.Context, key types.NamespacedName, cd *hivev1.ClusterDeployment) error {
	s := claimplan.Snapshot{Own: new(claimplan.ClusterOf(cd))}
	s.Own.Deleting = s.Own.Deleting || r.memory.dying(cd.UID)
	var err error
	if s.Pool, err = r.pool(ctx, s.Own.Pool); err != nil {
		return err
	}
	if err := r.observeRights(ctx, r.Client, &s, cd.Namespace); err != nil {
		return err
	}
	for action := claimplan.GiveUp(s); action != nil; action = claimplan.GiveUp(s) {
		exists, err := r.claimExists(ctx, key, cd)
		if err != nil {
			return fmt.Errorf("looking for claim %s of cluster %s: %w", key, cd.Namespace, err)
		}
		if exists {
			return errAgain
		}
		if err := r.giveUp(ctx, &s, action); err != nil {
			return err
		}
		r.Metrics.acted(action)
	}
	return nil
}

func (r *Reconciler) giveUp(ctx context.Context, s *claimplan.Snapshot, action claimplan.Action) error {
	switch a := action.(type) {
	case claimplan.RevokeRights:
		return r.revokeRights(ctx, s, a)
	case claimplan.ReleaseCluster:
		return r.releaseCluster(ctx, s, a)
	default:
		return fmt.Errorf("giving up cluster %s: %T is none of it", s.Own.Namespace, action)
	}
}

// claimExists asks the API server whether the claim that the cluster records exists. After a restore from a backup claims have other UIDs; a claim that names
// the restored cluster keeps it.
func (r *Reconciler) claimExists(ctx context.Context, key types.NamespacedName, cd *hivev1.ClusterDeployment) (bool, error) {
	claim := &hivev1.ClusterClaim{}
	if err := r.Live.Get(ctx, key, claim); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, err
	}
	restored := cd.Labels[hivev1.LabelDisableCreationCheck] == "true" && claim.Spec.Namespace == cd.Namespace
	uid := cd.Spec.ClusterPoolRef.ClaimUID
	return uid == "" || uid == claim.UID || restored, nil
}
