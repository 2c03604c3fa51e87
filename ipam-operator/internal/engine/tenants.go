// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// NewNamespace is an empty Namespace: its metadata is all that is read.
func NewNamespace() *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return obj
}

// isAllowed reports whether a pool serves claims of the namespace of a claim.
func (o *observer) isAllowed(ctx context.Context, pool *ipamv1.IPPool, subject *Subject) (bool, error) {
	tenant := subject.Claim.Tenant
	if tenant == "" {
		return true, nil
	}
	layout := o.Layouts.Of(pool)
	if !layout.SelectsNamespaces() {
		return layout.Allows(nil), nil
	}
	obj := NewNamespace()
	if err := o.Client.Get(ctx, types.NamespacedName{Name: tenant}, obj); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading Namespace %s: %w", tenant, err)
	}
	return layout.Allows(obj.Labels), nil
}

// namespaceHandler wakes the claims of a namespace whose pool is in another one, when the labels of the namespace change.
func (r *Reconciler) namespaceHandler() handler.EventHandler {
	wake := func(ctx context.Context, name string, q Queue) {
		claims := r.pending(ctx, name, client.MatchingFields{claimPendingCrossNamespace: crossNamespace})
		for i := range claims {
			q.Add(requestFor(claims[i].Namespace, claims[i].Name))
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q Queue) {
			if !e.IsInInitialList {
				wake(ctx, e.Object.GetName(), q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q Queue) {
			if !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				wake(ctx, e.ObjectNew.GetName(), q)
			}
		},
	}
}

// labelsFor are the labels of the address of a claim: those of the claim. A claim of another namespace gives it those that say whom it belongs to and no others.
func labelsFor(subject *Subject) map[string]string {
	labels := subject.Object.GetLabels()
	if subject.Claim.Tenant == "" {
		return maps.Clone(labels)
	}
	out := map[string]string{ipamv1.ClaimNamespaceLabel: subject.Claim.Tenant}
	for _, name := range []string{ipamv1.ClusterNameLabel, ipamv1.WatchFilterLabel} {
		if value, ok := labels[name]; ok {
			out[name] = value
		}
	}
	return out
}

// markAbsentCluster marks the new address of a claim of another namespace that names a Cluster which is not there: no mover can have taken such a claim away.
func (e *executor) markAbsentCluster(ctx context.Context, subject *Subject, address *ipamv1.IPAddress) error {
	name := address.Labels[ipamv1.ClusterNameLabel]
	if subject.Claim.Tenant == "" || name == "" {
		return nil
	}
	cluster, err := e.Clusters.Get(ctx, types.NamespacedName{Namespace: subject.Claim.Tenant, Name: name})
	if err == nil && cluster == nil {
		metav1.SetMetaDataAnnotation(&address.ObjectMeta, ipamv1.ClusterAbsentAnnotation, "")
	}
	return err
}

// setClaimOwner makes a claim the owner of an address. A claim of another namespace cannot be one for the API server: the reference to it has its UID.
func setClaimOwner(address *ipamv1.IPAddress, subject *Subject) {
	if subject.Claim.Tenant == "" {
		address.OwnerReferences = append(address.OwnerReferences, subject.owner())
		return
	}
	address.Spec.Claim.UID = string(subject.UID())
	if address.Labels == nil {
		address.Labels = map[string]string{}
	}
	address.Labels[ipamv1.ClaimNamespaceLabel] = subject.Claim.Tenant
}

// errUndecided says that another replica is about to write a claim's address to its status, or to give that back. Its pass ends within reconcileTimeout.
var errUndecided = outcome.Pace(outcome.Again(errors.New("another replica decides about the address")), time.Second)

// mayBeReturned reports whether another replica has just made an address of a claim and may give it back yet: the status must not name it then.
func (e *executor) mayBeReturned(subject *Subject, address *ipamv1.IPAddress) bool {
	if e.records.of(subject.Key()).made == address.UID {
		return false
	}
	return e.Clock.Since(address.CreationTimestamp.Time) < reconcileTimeout
}

// returnOverQuota gives an address back that the status does not name yet, where the claim's namespace has more than its quota, and writes that to the claim: another replica may have
// taken one for the namespace at the same time. It asks the API server after the address was taken: whichever replica asks last sees all. The claim is looked at again
// when the namespace has an address less.
func (e *executor) returnOverQuota(ctx context.Context, subject *Subject, address *ipamv1.IPAddress) (returned bool, err error) {
	pool := &ipamv1.IPPool{}
	if subject.Claim.Tenant == "" {
		return false, nil
	}
	if err := e.Client.Get(ctx, subject.Pool, pool); err != nil {
		return false, fmt.Errorf("reading IPPool %s: %w", subject.Pool, err)
	}
	limit := pool.Spec.MaxAddressesPerNamespace
	if limit == 0 {
		return false, nil
	}
	if e.mayBeReturned(subject, address) {
		return false, errUndecided
	}
	if has, err := e.addressesOf(ctx, subject.Claim.Tenant, pool); err != nil || has <= limit {
		return false, err
	}
	ctrl.LoggerFrom(ctx).Info("Gave an address back: the namespace of the claim has as many as it may have", "IPAddress", address.Name)
	if err := e.Release(ctx, address.Namespace, addressOf(address), true, string(allocate.WhyQuota)); err != nil {
		return false, err
	}
	e.records.edit(subject.Key(), func(known *record) { known.made = "" }) // the cache may show it for a moment longer
	decision := allocate.QuotaExceeded(subject.Pool.String(), subject.Claim.Tenant, limit)
	return true, e.refuse(ctx, subject, decision.Action.(allocate.Refuse), decision.Why)
}

// addressesOf counts the addresses of a pool that the claims of another namespace have by the API server, and takes them over.
func (e *executor) addressesOf(ctx context.Context, tenant string, pool *ipamv1.IPPool) (int64, error) {
	list := &ipamv1.IPAddressList{}
	err := e.Live.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{ipamv1.ClaimNamespaceLabel: tenant})
	if err != nil {
		return 0, fmt.Errorf("listing the addresses of namespace %s: %w", tenant, err)
	}
	has := int64(0)
	for i := range list.Items {
		if list.Items[i].Spec.Pool.Name == pool.Name && list.Items[i].Tenant() == tenant {
			e.Index.Learn(recordOf(&list.Items[i]), e.Clock.Now())
			has++
		}
	}
	return has, nil
}
