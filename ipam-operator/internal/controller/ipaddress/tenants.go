// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ipaddress

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/capi"
	"github.com/muster-io/muster/ipam-operator/internal/engine"
)

// clusterOf is the Cluster of the claim of an address, where the claim is of another namespace than the pool.
func clusterOf(address *ipamv1.IPAddress) string {
	if address.Tenant() == "" {
		return ""
	}
	return address.Labels[ipamv1.ClusterNameLabel]
}

// stays reports whether nothing may be done for an address. A mover that takes a claim of another namespace away leaves its address behind, which something uses
// elsewhere: while its Cluster is not there, it stays taken, unless a user deletes it. There was nothing to move where the Cluster never existed, and nothing is
// left of a namespace that is gone.
func (r *Reconciler) stays(ctx context.Context, address *ipamv1.IPAddress, hold allocate.Hold) (bool, error) {
	switch {
	case hold == allocate.HeldPaused:
		return true, nil
	case hold != allocate.HeldClusterMissing || address.Tenant() == "":
		return false, nil
	case !address.DeletionTimestamp.IsZero() && !capi.IsLeftBehind(address): // a user deletes it
		return false, nil
	case isClusterAbsent(address):
		return false, nil
	}
	return r.isNamespace(ctx, address.Tenant())
}

// isNamespace reports whether a namespace exists. One that this operator does not watch is taken to exist.
func (r *Reconciler) isNamespace(ctx context.Context, name string) (bool, error) {
	if r.Namespace != "" {
		return true, nil
	}
	if err := r.Client.Get(ctx, types.NamespacedName{Name: name}, engine.NewNamespace()); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading Namespace %s: %w", name, err)
	}
	return true, nil
}

func isClusterAbsent(address *ipamv1.IPAddress) bool {
	_, absent := address.Annotations[ipamv1.ClusterAbsentAnnotation]
	return absent
}

// noteCluster removes the mark of an address whose Cluster did not exist when it was allocated, once the Cluster is there: a mover can take the claim away from then on.
func (r *Reconciler) noteCluster(ctx context.Context, address *ipamv1.IPAddress) error {
	if !isClusterAbsent(address) || !address.DeletionTimestamp.IsZero() {
		return nil
	}
	name := client.ObjectKeyFromObject(address)
	r.held.Expect(name, address.ClaimKey().Namespace)
	cluster, err := r.Clusters.Get(ctx, types.NamespacedName{Namespace: address.ClaimKey().Namespace, Name: clusterOf(address)})
	if err != nil || cluster == nil {
		return err // it is woken when the Cluster appears
	}
	after := address.DeepCopy()
	delete(after.Annotations, ipamv1.ClusterAbsentAnnotation)
	patch := client.MergeFromWithOptions(address, client.MergeFromWithOptimisticLock{})
	if err := r.Client.Patch(ctx, after, patch, client.FieldOwner(engine.FieldOwner)); outcome.IgnoreGone(err) != nil {
		return fmt.Errorf("marking IPAddress %s: %w", name, err)
	}
	*address = *after
	r.held.Note(name, false)
	return nil
}

// namespaceHandler looks again at the addresses of claims of a namespace that is gone.
func (r *Reconciler) namespaceHandler() handler.EventHandler {
	return handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q engine.Queue) {
		for _, address := range r.held.Wake(e.Object.GetName()) {
			q.Add(reconcile.Request{NamespacedName: address})
		}
	}}
}
