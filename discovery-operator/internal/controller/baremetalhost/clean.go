// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"errors"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/discovery-operator/internal/handover"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/reservation"
)

// clean removes what belongs to a deleted host, in an order in which each step can be repeated: the node, the reservation, and
// last the finalizer. A user who sets the annotation discovery.metal3.io/keep-node to "true" ends a deletion that waits for Ironic.
func (r *Reconciler) clean(ctx context.Context, host *metal3v1.BareMetalHost, c handover.Clean) (ctrl.Result, error) {
	ignore := c.Keep
	node, err := r.recorded(ctx, host, c.Node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !c.Keep && node != "" {
		kept, err := r.deleteNode(ctx, host, node)
		if errors.Is(err, inventory.ErrBusy) || errors.Is(err, inventory.ErrFull) {
			return ctrl.Result{RequeueAfter: hoststate.BusyRetry}, nil
		}
		if err != nil {
			return r.ironicAway(ctx, host, err)
		}
		ignore = kept
	}
	return r.finish(ctx, host, ignore)
}

// recorded is the node that goes with a host: the one that its reservation names, and what the host says only where that names none.
func (r *Reconciler) recorded(ctx context.Context, host *metal3v1.BareMetalHost, said string) (string, error) {
	c := reservation.ClaimOf(host)
	lease, err := r.lease(ctx, r.Live, c.BootMAC)
	if err != nil || lease == nil {
		return said, err
	}
	if own := reservation.Of(lease); own.Host == c.Host && own.Node != "" {
		return own.Node, nil
	}
	return said, nil
}

// finish gives the reservations of a deleted host back, or keeps its machine away, and removes the finalizer of the host.
func (r *Reconciler) finish(ctx context.Context, host *metal3v1.BareMetalHost, ignore bool) (ctrl.Result, error) {
	reservations, err := reservationsOf(ctx, r.Client, r.Namespace, inventory.Ref{Namespace: host.Namespace, Name: host.Name})
	if err != nil {
		return ctrl.Result{}, err
	}
	for i := range reservations {
		if err := r.giveBack(ctx, &reservations[i], ignore); err != nil {
			return ctrl.Result{}, err
		}
	}
	if r.ManageHosts {
		if err := (leaving{r, host}).leftovers(ctx); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := host.DeepCopy()
	controllerutil.RemoveFinalizer(host, metal3v1.DiscoveryFinalizer)
	if r.ManageHosts {
		controllerutil.RemoveFinalizer(host, metal3v1.BareMetalHostFinalizer)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	// The write ends the host, so the cache will never show it: no later read may wait for that.
	err = r.Client.Patch(ctx, host, patch, client.FieldOwner(FieldOwner), client.DisableReadYourWritesConsistency)
	err = wrap(err, "removing the finalizer of host %s", client.ObjectKeyFromObject(host))
	return ctrl.Result{}, outcome.IgnoreGone(outcome.Pace(err, hoststate.BusyRetry))
}

// deleteNode removes the node of a deleted host. It returns true when the node has to stay.
func (r *Reconciler) deleteNode(ctx context.Context, host *metal3v1.BareMetalHost, uuid string) (kept bool, err error) {
	p, err := r.visit(ctx, host)
	if err != nil {
		return false, err
	}
	defer func() { p.leave(err) }()
	node, err := p.Node(ctx, uuid)
	if errors.Is(err, inventory.ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, wrap(err, "reading node %s", uuid)
	}
	why, ok := handover.Deletable(node, host)
	if ok {
		if why, err = r.claim(ctx, p, host, node); err != nil {
			return false, err
		}
	}
	if why != "" {
		r.Recorder.Eventf(host, nil, corev1.EventTypeWarning, metal3v1.EventNodeKept, "Delete", "Node %s stays in Ironic: %s", uuid, why)
		return true, nil
	}
	if err := p.DeleteNode(ctx, uuid); err != nil && !errors.Is(err, inventory.ErrNotFound) {
		return false, wrap(err, "deleting node %s", uuid)
	}
	r.Counter.NodeDeleted()
	r.Recorder.Eventf(host, nil, corev1.EventTypeNormal, metal3v1.EventNodeDeleted, "Delete", "Deleted node %s in Ironic", uuid)
	ctrl.LoggerFrom(ctx).Info("node deleted", "BareMetalHost", client.ObjectKeyFromObject(host).String(), "node", uuid)
	return false, nil
}

// giveBack ends a reservation, or makes it keep the machine away for good.
func (r *Reconciler) giveBack(ctx context.Context, lease *coordinationv1.Lease, ignore bool) error {
	if lease.Labels[metal3v1.IgnoredLabel] == "true" {
		return nil
	}
	keeps := reservation.Of(lease).BMC == "" // a machine is kept away by its MAC
	if keeps && (ignore || lease.Annotations[metal3v1.OnDeletionAnnotation] == reservation.Ignore) {
		lease = lease.DeepCopy()
		lease.Labels[metal3v1.IgnoredLabel] = "true"
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = nil, nil
		return wrap(r.Client.Update(ctx, lease, client.FieldOwner(FieldOwner)), "keeping %s away", lease.Name)
	}
	err := r.Client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID, ResourceVersion: &lease.ResourceVersion})
	return outcome.IgnoreGone(wrap(err, "giving back %s", lease.Name))
}

// afterHost gives back the reservations of a host that is gone. A young one is respected: its host may be on its way.
func (r *Reconciler) afterHost(ctx context.Context, host inventory.Ref) (ctrl.Result, error) {
	reservations, err := reservationsOf(ctx, r.Client, r.Namespace, host)
	if err != nil || len(reservations) == 0 {
		return ctrl.Result{}, err
	}
	var result ctrl.Result
	for i := range reservations {
		lease := &reservations[i]
		if lease.Spec.RenewTime != nil {
			if left := r.Grace - r.Now().Sub(lease.Spec.RenewTime.Time); left > 0 {
				result.RequeueAfter = max(result.RequeueAfter, left)
				continue
			}
		}
		var present metal3v1.BareMetalHost
		if err := r.Live.Get(ctx, client.ObjectKey(host), &present); !outcome.IsGone(err) {
			return result, wrap(err, "reading host %s", host)
		}
		if err := r.giveBack(ctx, lease, false); err != nil {
			return result, fmt.Errorf("after host %s: %w", host, err)
		}
	}
	return result, nil
}
