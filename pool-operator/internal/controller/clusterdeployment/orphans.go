// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

// orphans removes, once at start-up, what is left of clusters whose ClusterDeployment went away while no operator ran.
type orphans struct{ Deps }

// NeedLeaderElection implements manager.LeaderElectionRunnable: only the leader removes anything.
func (o *orphans) NeedLeaderElection() bool { return true }

// retryOrphans is how long what cannot be checked or removed waits for the next try.
const retryOrphans = 10 * time.Second

// Start implements manager.Runnable. It ends when nothing is left over.
func (o *orphans) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, retryOrphans, true, func(ctx context.Context) (bool, error) {
		if err := removeOrphans(ctx, o.Deps, func(provision.ClusterRef) bool { return true }); err != nil {
			logf.FromContext(ctx).Error(err, "orphaned hosted clusters could not be removed")
			return false, nil
		}
		return true, nil
	})
	if errors.Is(err, context.Canceled) {
		return nil // the operator ends
	}
	return err
}

// removeLeftovers removes what is left of a cluster whose ClusterDeployment is gone although something of it was there, as when a user removed the finalizer.
func (r *Reconciler) removeLeftovers(ctx context.Context, key types.NamespacedName) error {
	return removeOrphans(ctx, r.Deps, func(ref provision.ClusterRef) bool { return ref.NamespacedName() == key })
}

// removeOrphans deletes the chosen clusters that have no ClusterDeployment, going by the API server itself and not by a cache.
func removeOrphans(ctx context.Context, d Deps, chosen func(provision.ClusterRef) bool) error {
	refs, err := d.Runtime.List(ctx)
	if err != nil {
		return fmt.Errorf("listing hosted clusters: %w", err)
	}
	var failed []error
	for _, ref := range refs {
		if !chosen(ref) {
			continue
		}
		orphaned, err := isOrphan(ctx, d, ref)
		if err == nil && orphaned {
			logf.FromContext(ctx).Info("hosted cluster without ClusterDeployment is being removed", "cluster", ref.String(), "uid", ref.UID)
			err = d.Runtime.Delete(ctx, ref)
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("removing hosted cluster %s, which has no ClusterDeployment: %w", ref, err))
		}
	}
	return errors.Join(failed...)
}

// isOrphan reports whether what is left of a cluster belongs to no ClusterDeployment. Data of one that was restored, and has another UID now, stays until that is
// deleted: it may be all that there is of the cluster.
func isOrphan(ctx context.Context, d Deps, ref provision.ClusterRef) (bool, error) {
	cluster := &hivev1.ClusterDeployment{}
	err := d.Live.Get(ctx, ref.NamespacedName(), cluster)
	if outcome.IsGone(err) {
		return true, nil
	}
	if err != nil || cluster.UID == ref.UID {
		return false, err
	}
	restored, err := d.isDataOf(ctx, ref, cluster)
	return err == nil && !restored, err
}
