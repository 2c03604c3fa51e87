// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// execute carries out one action and puts what it changed into the snapshot.
func (r *Reconciler) execute(ctx context.Context, p *pass, action claimplan.Action) error {
	log := logf.FromContext(ctx).WithValues("why", action.Reason())
	var err error
	switch a := action.(type) {
	case claimplan.AssignCluster:
		err = r.assignCluster(logf.IntoContext(ctx, log), p, a)
	case claimplan.ReturnCluster:
		err = r.returnCluster(ctx, p, a)
	case claimplan.RecordClaim:
		err = r.recordClaim(ctx, p, a)
	case claimplan.VerifyCluster:
		err = r.verifyCluster(ctx, p, a)
	case claimplan.GrantRights:
		err = r.rights.grant(ctx, p, a, r.Clock.Now())
	case claimplan.RevokeRights:
		err = r.rights.revoke(ctx, &p.Snapshot, a)
	case claimplan.ReleaseCluster:
		err = r.releaseCluster(ctx, &p.Snapshot, a)
	case claimplan.ReportMissing:
		err = r.reportMissing(ctx, &p.Snapshot, a)
	case claimplan.ExpireClaim:
		err = r.expireClaim(ctx, p)
	case claimplan.DropFinalizer:
		err = r.dropFinalizer(ctx, p)
	}
	if err == nil {
		r.Metrics.acted(action)
		log.V(1).Info("acted", "action", fmt.Sprintf("%T", action))
	}
	return err
}

// assignCluster makes the claim name its cluster. When a neighbour is about to take that, the next plan starts from what is left.
func (r *Reconciler) assignCluster(ctx context.Context, p *pass, a claimplan.AssignCluster) error {
	if a.Why != claimplan.WhyRecorded && !r.reservations.take(p.Claim.UID, a.Cluster) {
		return r.observeQueue(ctx, &p.Snapshot, p.PoolKey())
	}
	finalizers := slices.Clone(p.Claim.Finalizers)
	if !slices.Contains(finalizers, hivev1.FinalizerClusterClaim) {
		finalizers = append(finalizers, hivev1.FinalizerClusterClaim)
	}
	if err := r.patchClaim(ctx, p, finalizers, a.Cluster); err != nil {
		r.reservations.release(p.Claim.UID)
		return fmt.Errorf("assigning cluster %s: %w", a.Cluster, err)
	}
	r.reservations.written(p.Claim.UID, p.Claim.ResourceVersion)
	logf.FromContext(ctx).Info("assigned a cluster", "ClusterDeployment", a.Cluster)
	p.Own, p.Verified = nil, false
	for i := range p.Clusters {
		if p.Clusters[i].Namespace == a.Cluster {
			p.Own = new(p.Clusters[i])
		}
	}
	return r.observeRights(ctx, r.Client, &p.Snapshot, a.Cluster)
}

// returnCluster makes the claim name no cluster.
func (r *Reconciler) returnCluster(ctx context.Context, p *pass, a claimplan.ReturnCluster) error {
	named := p.Claim.Spec.Namespace
	if err := r.patchClaim(ctx, p, withoutFinalizer(p.Claim), nil); err != nil {
		return fmt.Errorf("taking cluster %s back: %w", named, err)
	}
	r.reservations.release(p.Claim.UID)
	r.event(p.Claim, named, warning, string(a.Why), "Assign", "Cluster %s cannot be the claim's; it waits for another", named)
	p.Own, p.Role, p.Binding, p.Verified = nil, nil, nil, false
	p.Lost = p.Lost || a.Why == claimplan.WhyLost
	return nil
}

// patchClaim writes the claim's finalizers and spec.namespace; nil removes it.
func (r *Reconciler) patchClaim(ctx context.Context, p *pass, finalizers []string, namespace any) error {
	patch := map[string]any{
		"metadata": map[string]any{"resourceVersion": p.Claim.ResourceVersion, "finalizers": finalizers},
		"spec":     map[string]any{"namespace": namespace},
	}
	claim := p.Claim.DeepCopy()
	if err := r.mergePatch(ctx, claim, patch); err != nil {
		return err
	}
	p.Claim = claim
	r.memory.written.Wrote(claim.UID, claim.ResourceVersion)
	return nil
}

// recordClaim records the claim in the cluster. After a conflict it reads the current cluster, and the next plan starts from that.
func (r *Reconciler) recordClaim(ctx context.Context, p *pass, a claimplan.RecordClaim) error {
	reference := map[string]any{"claimUID": p.Claim.UID}
	spec := map[string]any{"clusterPoolRef": reference}
	if p.Own == nil || p.Own.ClaimedAt.IsZero() {
		reference["claimedTimestamp"] = metav1.NewTime(a.At).UTC().Format(time.RFC3339)
	}
	if a.Why != claimplan.WhyUnidentified {
		reference["claimName"] = p.Claim.Name
		spec["powerState"] = hivev1.PowerStateRunning
	}
	cd := &hivev1.ClusterDeployment{}
	cd.Namespace, cd.Name = a.Cluster, a.Cluster
	err := r.mergePatch(ctx, cd, map[string]any{"metadata": map[string]any{"resourceVersion": a.ResourceVersion, "uid": a.UID}, "spec": spec})
	switch {
	case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
		r.Metrics.conflicts.Inc()
		return r.verifyCluster(ctx, p, claimplan.VerifyCluster{Cluster: a.Cluster, Why: claimplan.WhyDoubt})
	case err != nil:
		return fmt.Errorf("recording the claim in cluster %s: %w", a.Cluster, err)
	}
	p.adopt(cd)
	p.recorded, p.UIDDropped = cd.UID, p.Own.ClaimUID == ""
	r.memory.written.Wrote(cd.UID, cd.ResourceVersion)
	logf.FromContext(ctx).Info("claimed a cluster", "ClusterDeployment", a.Cluster, "why", a.Why)
	return nil
}

// verifyCluster reads the cluster and the rights there from the API server.
func (r *Reconciler) verifyCluster(ctx context.Context, p *pass, a claimplan.VerifyCluster) error {
	if err := r.observeOwn(ctx, r.Live, p, a.Cluster); err != nil {
		return err
	}
	p.Verified = true
	p.Clusters = slices.DeleteFunc(p.Clusters, func(c claimplan.Cluster) bool { return c.Namespace == a.Cluster })
	if p.Own != nil && p.Own.Pool == p.PoolKey() {
		p.Clusters = append(p.Clusters, *p.Own)
	}
	return nil
}

// adopt takes a cluster that was just written as the claim's.
func (p *pass) adopt(cd *hivev1.ClusterDeployment) {
	own := claimplan.ClusterOf(cd)
	p.Own = &own
	for i := range p.Clusters {
		if p.Clusters[i].Namespace == own.Namespace {
			p.Clusters[i] = own
		}
	}
}

// releaseCluster deletes the cluster, or marks it for the pool to delete.
func (r *Reconciler) releaseCluster(ctx context.Context, s *claimplan.Snapshot, a claimplan.ReleaseCluster) error {
	cd := &hivev1.ClusterDeployment{}
	cd.Namespace, cd.Name = a.Cluster, a.Cluster
	log := logf.FromContext(ctx).WithValues("ClusterDeployment", a.Cluster, "why", a.Why)
	if a.Mark {
		err := r.mergePatch(ctx, cd, map[string]any{"metadata": map[string]any{
			"uid": a.UID, "resourceVersion": a.ResourceVersion, "annotations": map[string]any{hivev1.AnnotationRemoveFromPool: "true"},
		}})
		if outcome.IgnoreGone(err) != nil {
			return fmt.Errorf("marking cluster %s for removal: %w", a.Cluster, err)
		}
		s.Own.Marked = true
		log.Info("marked a cluster for removal from its pool")
		return nil
	}
	r.memory.deletes(a.UID) // before its end can be seen
	err := r.Client.Delete(ctx, cd, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion})
	if err != nil {
		r.memory.keeps(a.UID)
	}
	if outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("deleting cluster %s: %w", a.Cluster, err)
	}
	s.Own.Deleting = true
	log.Info("deleted a cluster")
	return nil
}

// expireClaim deletes the claim as its user would.
func (r *Reconciler) expireClaim(ctx context.Context, p *pass) error {
	err := r.Client.Delete(ctx, p.Claim.DeepCopy(), client.Preconditions{UID: &p.Claim.UID, ResourceVersion: &p.Claim.ResourceVersion})
	if outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("deleting the claim at the end of its lifetime: %w", err)
	}
	r.event(p.Claim, p.Claim.Spec.Namespace, normal, string(claimplan.WhyExpired), "Expire", "The claim's lifetime is over; it was deleted")
	p.ended = true
	return nil
}

// dropFinalizer removes the finalizer of the claim.
func (r *Reconciler) dropFinalizer(ctx context.Context, p *pass) error {
	patch := map[string]any{"metadata": map[string]any{"resourceVersion": p.Claim.ResourceVersion, "finalizers": withoutFinalizer(p.Claim)}}
	r.memory.deletes(p.Claim.UID) // before its end can be seen
	err := r.mergePatch(ctx, p.Claim.DeepCopy(), patch)
	if err != nil {
		r.memory.keeps(p.Claim.UID)
	}
	if outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("removing the finalizer of the claim: %w", err)
	}
	r.reservations.release(p.Claim.UID)
	p.ended = true
	return nil
}

// mergePatch changes the given fields and no others, also when the object has fields that are not modelled here.
func (r *Reconciler) mergePatch(ctx context.Context, obj client.Object, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	return r.Client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data), FieldOwner)
}

func withoutFinalizer(claim *hivev1.ClusterClaim) []string {
	return slices.DeleteFunc(slices.Clone(claim.Finalizers), func(f string) bool { return f == hivev1.FinalizerClusterClaim })
}
