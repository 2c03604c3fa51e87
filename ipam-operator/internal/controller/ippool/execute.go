// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ippool

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
)

// metadata writes finalizer, labels and owner reference, all in one, unless they are right. It does so also while the
// Cluster is paused: the owner is what makes the pool move with it.
func (r *Reconciler) metadata(ctx context.Context, pool *ipamv1.IPPool, o observation) error {
	before := pool.ObjectMeta.DeepCopy()
	if pool.DeletionTimestamp.IsZero() {
		controllerutil.AddFinalizer(pool, ipamv1.IPPoolFinalizer)
		leave(pool)
		belongTo(pool, o)
	} else if !o.addresses {
		controllerutil.RemoveFinalizer(pool, ipamv1.IPPoolFinalizer)
	}
	if equality.Semantic.DeepEqual(*before, pool.ObjectMeta) {
		return nil
	}
	from := client.MergeFromWithOptions(&ipamv1.IPPool{ObjectMeta: *before}, client.MergeFromWithOptimisticLock{})
	patch, err := from.Data(&ipamv1.IPPool{ObjectMeta: pool.ObjectMeta})
	if err != nil {
		return fmt.Errorf("writing the patch of IPPool %s: %w", client.ObjectKeyFromObject(pool), err)
	}
	stored := named(pool)
	if err := r.Client.Patch(ctx, stored, client.RawPatch(from.Type(), patch), client.FieldOwner(FieldOwner)); err != nil {
		return err
	}
	pool.ObjectMeta = stored.ObjectMeta
	ctrl.LoggerFrom(ctx).Info("Wrote the metadata of a pool", "finalizers", pool.Finalizers)
	return nil
}

// named is an empty object of the name of a pool: what the API server answers is not decoded into maps that the cache shares.
func named(pool *ipamv1.IPPool) *ipamv1.IPPool {
	return &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: pool.Namespace, Name: pool.Name}}
}

// leave takes the pool from the Cluster that its spec named before, as the labels that belongTo wrote say: it would be deleted and moved with that one.
func leave(pool *ipamv1.IPPool) {
	former := pool.Labels[ipamv1.ClusterNameLabel]
	if former == "" || pool.Labels[ipamv1.ProviderLabel] == "" || pool.Spec.ClusterName != nil && *pool.Spec.ClusterName == former {
		return
	}
	delete(pool.Labels, ipamv1.ClusterNameLabel)
	delete(pool.Labels, ipamv1.ProviderLabel)
	pool.OwnerReferences = slices.DeleteFunc(slices.Clone(pool.OwnerReferences), func(owner metav1.OwnerReference) bool {
		group, err := schema.ParseGroupVersion(owner.APIVersion)
		return err == nil && group.Group == capi.ClusterKind.Group && owner.Kind == capi.ClusterKind.Kind && owner.Name == former
	})
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
	if at := slices.IndexFunc(pool.OwnerReferences, func(known metav1.OwnerReference) bool { return known.UID == owner.UID }); at >= 0 {
		// The garbage collector cannot find an owner in a version that the API server does not serve any more.
		pool.OwnerReferences[at].APIVersion = owner.APIVersion
		return
	}
	// One of an earlier life of the Cluster would stop the garbage collector from ever being done with it.
	pool.OwnerReferences = slices.DeleteFunc(slices.Clone(pool.OwnerReferences), func(known metav1.OwnerReference) bool {
		return known.Kind == owner.Kind && known.Name == owner.Name
	})
	pool.OwnerReferences = append(pool.OwnerReferences, owner)
}

// report writes the status, unless it is right.
func (r *Reconciler) report(ctx context.Context, pool *ipamv1.IPPool, o observation) error {
	if !pool.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(pool, ipamv1.IPPoolFinalizer) {
		return nil
	}
	now := metav1.NewTime(r.Clock.Now())
	wanted, changed := status(pool, o, now.Rfc3339Copy()) // as it will be stored
	if len(changed) == 0 && (equality.Semantic.DeepEqual(withoutIndexes(pool.Status), withoutIndexes(wanted)) || r.lastWritten.same(pool, wanted)) {
		return nil
	}
	patch, err := statusPatch(pool, wanted, changed)
	if err != nil {
		return err
	}
	stored := named(pool)
	if err := r.Client.Status().Patch(ctx, stored, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(FieldOwner)); err != nil {
		return err
	}
	r.lastWritten.note(stored, wanted)
	r.pace.note(client.ObjectKeyFromObject(pool), r.Clock.Since(o.began))
	ctrl.LoggerFrom(ctx).V(1).Info("Wrote the status of a pool", "used", *wanted.Used, "free", *wanted.Free)
	r.announce(pool, wanted)
	return nil
}

// statusPatch is the difference between the status of a pool and the wanted one, under the resourceVersion of the pool. The indexes are compared already.
func statusPatch(pool *ipamv1.IPPool, wanted ipamv1.IPPoolStatus, changed indexChanges) ([]byte, error) {
	before := named(pool)
	before.ResourceVersion = pool.ResourceVersion
	after := before.DeepCopy()
	before.Status, after.Status = withoutIndexes(pool.Status), withoutIndexes(wanted)
	patch, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
	if err != nil || len(changed) == 0 {
		return patch, err
	}
	// Numbers stay as they are written: a count of IPv6 addresses would lose digits, and then be refused, as a float64.
	var content struct {
		Metadata json.RawMessage            `json:"metadata"`
		Status   map[string]json.RawMessage `json:"status"`
	}
	if err := json.Unmarshal(patch, &content); err != nil {
		return nil, fmt.Errorf("reading a patch: %w", err)
	}
	if len(wanted.Allocations) == 0 {
		changed = nil // All of the map goes.
	}
	indexes, err := json.Marshal(changed)
	if err != nil {
		return nil, fmt.Errorf("writing the indexes of a pool: %w", err)
	}
	if content.Status == nil {
		content.Status = map[string]json.RawMessage{}
	}
	content.Status["indexes"] = indexes
	return json.Marshal(content)
}

// withoutIndexes is a status without its map, which may be large and is compared by itself.
func withoutIndexes(status ipamv1.IPPoolStatus) ipamv1.IPPoolStatus {
	status.Allocations = nil
	return status
}

// announce makes events of conditions that changed.
func (r *Reconciler) announce(pool *ipamv1.IPPool, wanted ipamv1.IPPoolStatus) {
	for _, condition := range wanted.Conditions {
		was := slices.IndexFunc(pool.Status.Conditions, func(c metav1.Condition) bool { return c.Type == condition.Type })
		if was >= 0 && pool.Status.Conditions[was].Status == condition.Status || was < 0 && !isBad(condition) {
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
