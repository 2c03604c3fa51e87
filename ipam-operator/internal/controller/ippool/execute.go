// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// metadata writes finalizer, labels and owner reference, all in one, unless they are right. It does so also while the
// Cluster is paused: the owner is what makes the pool move with it.
func (r *Reconciler) metadata(ctx context.Context, pool *ipamv1.IPPool, o observation) error {
	before := pool.DeepCopy()
	if pool.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(pool, ipamv1.IPPoolFinalizer)
		belongTo(pool, o)
	} else if !o.addresses {
		controllerutil.RemoveFinalizer(pool, ipamv1.IPPoolFinalizer)
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, pool.ObjectMeta) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, pool, patch, client.FieldOwner(FieldOwner)); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Wrote the metadata of a pool", "finalizers", pool.Finalizers)
	return nil
}

// belongTo makes the pool one of its Cluster, if it names one and the Cluster is there.
func belongTo(pool *ipamv1.IPPool, o observation) {
	if pool.Spec.ClusterName == nil || *pool.Spec.ClusterName == "" {
		return
	}
	if pool.Labels == nil {
		pool.Labels = map[string]string{}
	}
	pool.Labels[ipamv1.ClusterNameLabel] = *pool.Spec.ClusterName
	pool.Labels[ipamv1.ProviderLabel] = ipamv1.ProviderName
	if o.cluster == nil {
		return
	}
	owner := metav1.OwnerReference{
		APIVersion: o.cluster.GetAPIVersion(), Kind: o.cluster.GetKind(), Name: o.cluster.GetName(), UID: o.cluster.GetUID(),
	}
	if !slices.ContainsFunc(pool.OwnerReferences, func(known metav1.OwnerReference) bool { return known.UID == owner.UID }) {
		// One of an earlier life of the Cluster would stop the garbage collector from ever being done with it.
		pool.OwnerReferences = slices.DeleteFunc(slices.Clone(pool.OwnerReferences), func(known metav1.OwnerReference) bool {
			return known.Kind == owner.Kind && known.Name == owner.Name
		})
		pool.OwnerReferences = append(pool.OwnerReferences, owner)
	}
}

// report writes the status, unless it is right.
func (r *Reconciler) report(ctx context.Context, pool *ipamv1.IPPool, o observation) error {
	if !pool.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(pool, ipamv1.IPPoolFinalizer) {
		return nil
	}
	before := pool.DeepCopy()
	now := metav1.NewTime(r.Clock.Now())
	wanted := status(pool, o, now.Rfc3339Copy()) // as it will be stored
	if equality.Semantic.DeepEqual(before.Status, wanted) || r.told.same(pool, wanted) {
		return nil
	}
	pool.Status = *wanted.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Status().Patch(ctx, pool, patch, client.FieldOwner(FieldOwner)); err != nil {
		return err
	}
	r.told.note(pool, wanted)
	ctrl.LoggerFrom(ctx).V(1).Info("Wrote the status of a pool", "used", *wanted.Used, "free", *wanted.Free)
	r.announce(before, pool, wanted)
	return nil
}

// announce makes events of conditions that changed.
func (r *Reconciler) announce(before, pool *ipamv1.IPPool, wanted ipamv1.IPPoolStatus) {
	for _, condition := range wanted.Conditions {
		was := slices.IndexFunc(before.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition.Type })
		if was >= 0 && before.Status.Conditions[was].Status == condition.Status || was < 0 && !isBad(condition) {
			continue
		}
		kind := eventNormal
		if isBad(condition) {
			kind = eventWarning
		}
		r.Recorder.Eventf(pool, nil, kind, condition.Reason, "Observe", "%s", condition.Message)
	}
}

func isBad(condition metav1.Condition) bool {
	if condition.Type == ipamv1.ExhaustedCondition || condition.Type == ipamv1.OverlappingCondition {
		return condition.Status == metav1.ConditionTrue
	}
	return condition.Status == metav1.ConditionFalse && condition.Reason != ipamv1.ReasonPoolDeleting
}

// sortedFirst are the first n keys in order.
func sortedFirst[V any](m map[string]V, n int) []string {
	keys := slices.Sorted(maps.Keys(m))
	return keys[:min(n, len(keys))]
}
