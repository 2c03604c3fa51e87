// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"errors"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// Labels of IPClaims that are named after a host.
const (
	dataNameLabel = "infrastructure.cluster.x-k8s.io/data-name"
	poolNameLabel = "infrastructure.cluster.x-k8s.io/pool-name"
)

// ipClaimKind is the kind of the claims of IPPools.
var ipClaimKind = schema.GroupKind{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPClaimKind}

// ipPoolKind is the kind of the pools of those claims.
var ipPoolKind = schema.GroupKind{Group: ipamv1.GroupVersion.Group, Kind: ipamv1.IPPoolKind}

// errAllocation is the known wording for a claim that is refused.
const errAllocation = "IP Allocation for %s failed : %s"

// addresses claims an address of every pool, all at once, and returns them when all are there.
func (r *Reconciler) addresses(ctx context.Context, data *infrav1.Metal3Data, subject *render.Subject, pools []render.Pool) (render.Addresses, error) {
	out := render.Addresses{}
	var refused error
	for _, pool := range pools {
		get := r.ipAddress
		if !pool.IsIPPool() {
			get = r.contractAddress
		}
		address, err := get(ctx, data, subject, pool)
		if why, ok := isRefusal(err); ok {
			if refused == nil || why != "" && errors.Is(refused, errWaiting) {
				refused = err
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		out[pool.Name] = address
	}
	return out, refused
}

// claimMeta is the metadata of the claim of a pool.
func (r *Reconciler) claimMeta(data *infrav1.Metal3Data, subject *render.Subject, pool render.Pool) metav1.ObjectMeta {
	m := metav1.ObjectMeta{
		Namespace: data.Namespace, Name: data.Name + "-" + pool.Name, Labels: maps.Clone(data.Labels), Finalizers: []string{infrav1.DataFinalizer},
		OwnerReferences: []metav1.OwnerReference{controllerOf(data)},
	}
	if r.NameByHost && pool.IsIPPool() {
		m.Name = subject.Host.Name + "-" + pool.Name
		if m.Labels == nil {
			m.Labels = map[string]string{}
		}
		m.Labels[dataNameLabel], m.Labels[poolNameLabel] = data.Name, pool.Name
	}
	return m
}

func controllerOf(data *infrav1.Metal3Data) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataKind, Name: data.Name, UID: data.UID, Controller: new(true),
	}
}

// ipAddress is the address of an IPPool.
func (r *Reconciler) ipAddress(ctx context.Context, data *infrav1.Metal3Data, subject *render.Subject, pool render.Pool) (render.Address, error) {
	claim, err := r.ipClaim(ctx, data, subject, pool)
	if err != nil {
		return render.Address{}, err
	}
	switch {
	case claim.Status.ErrorMessage != nil:
		return render.Address{}, refuse(errAllocation, pool.Name, *claim.Status.ErrorMessage)
	case claim.Status.Address == nil:
		if ready := meta.FindStatusCondition(claim.Status.Conditions, ipamv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse {
			return render.Address{}, refuse(errAllocation, pool.Name, ready.Message)
		}
		return render.Address{}, errWaiting
	}
	address := &ipamv1.IPAddress{}
	key := types.NamespacedName{Namespace: data.Namespace, Name: claim.Status.Address.Name}
	err = r.Client.Get(ctx, key, address)
	if apierrors.IsNotFound(err) {
		err = r.Live.Get(ctx, key, address)
	}
	if apierrors.IsNotFound(err) {
		return render.Address{}, errWaiting // the claim notices, and gets another
	}
	if err != nil {
		return render.Address{}, fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	prefix, err := r.prefix(ctx, data, address)
	if err != nil {
		return render.Address{}, err
	}
	out := render.Address{IP: string(address.Spec.Address), Prefix: prefix}
	if address.Spec.Gateway != nil {
		out.Gateway = string(*address.Spec.Gateway)
	}
	for _, server := range address.Spec.DNSServers {
		out.DNSServers = append(out.DNSServers, string(server))
	}
	return out, nil
}

// prefix is that of an address. An address that was made without one has that of its pool by now; zero means that the pool has none either.
func (r *Reconciler) prefix(ctx context.Context, data *infrav1.Metal3Data, address *ipamv1.IPAddress) (int, error) {
	if address.Spec.Prefix != 0 {
		return address.Spec.Prefix, nil
	}
	key := types.NamespacedName{Namespace: address.Namespace, Name: address.Spec.Pool.Name}
	r.waits.on(client.ObjectKeyFromObject(data), object{ipPoolKind, key})
	pool := &ipamv1.IPPool{}
	if err := r.Client.Get(ctx, key, pool); apierrors.IsNotFound(err) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading IPPool %s: %w", key, err)
	}
	ip, err := allocate.ParseAddr(string(address.Spec.Address))
	if err != nil {
		return 0, refuse("IPAddress %s: %v", address.Name, err)
	}
	network, _ := r.Layouts.Of(pool).NetworkOf(ip)
	return network.Prefix, nil
}

// ipClaim is the claim of a pool; it is made unless there is one.
func (r *Reconciler) ipClaim(ctx context.Context, data *infrav1.Metal3Data, subject *render.Subject, pool render.Pool) (*ipamv1.IPClaim, error) {
	owned, err := r.ipClaims(ctx, client.ObjectKeyFromObject(data))
	if err != nil {
		return nil, err
	}
	for i := range owned {
		if isOwnedBy(&owned[i], data.UID) && owned[i].Spec.Pool.Name == pool.Name {
			return &owned[i], nil
		}
	}
	claim := &ipamv1.IPClaim{
		ObjectMeta: r.claimMeta(data, subject, pool),
		Spec:       ipamv1.IPClaimSpec{Pool: ipamv1.ObjectReference{Name: pool.Name, Namespace: data.Namespace}},
	}
	r.waits.on(client.ObjectKeyFromObject(data), object{ipClaimKind, client.ObjectKeyFromObject(claim)})
	err = r.Client.Create(ctx, claim, client.FieldOwner(FieldOwner))
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Claimed an address", "IPClaim", claim.Name)
		return claim, nil
	case !apierrors.IsAlreadyExists(err):
		return nil, fmt.Errorf("creating IPClaim %s: %w", claim.Name, err)
	}
	found := &ipamv1.IPClaim{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(claim), found); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("creating IPClaim %s: %w", claim.Name, apierrors.NewConflict(ipamv1.Resource("ipclaims"), claim.Name, err))
	} else if err != nil {
		return nil, fmt.Errorf("reading IPClaim %s: %w", claim.Name, err)
	}
	if isOwnedBy(found, data.UID) {
		return found, nil
	}
	return nil, r.occupied(ctx, data, ipamv1.IPClaimKind, found)
}

// occupied is what there is to do about a claim that has the right name and another owner: wait for it to go, if that is a
// Metal3Data of this name that is gone.
func (r *Reconciler) occupied(ctx context.Context, data *infrav1.Metal3Data, kind string, claim client.Object) error {
	owner := metav1.GetControllerOf(claim)
	switch {
	case owner != nil && owner.Kind == infrav1.Metal3DataKind && owner.Name == data.Name:
		if !claim.GetDeletionTimestamp().IsZero() {
			if err := r.setDown(ctx, kind, claim); err != nil {
				return err
			}
		}
		return errWaiting
	case owner != nil:
		return refuse("%s %s belongs to %s %s", kind, claim.GetName(), owner.Kind, owner.Name)
	default:
		return refuse("%s %s is there already and has no owner", kind, claim.GetName())
	}
}

// ipClaims are the claims that Metal3Data of a name own, or owned.
func (r *Reconciler) ipClaims(ctx context.Context, data types.NamespacedName) ([]ipamv1.IPClaim, error) {
	list := &ipamv1.IPClaimList{}
	if err := r.Client.List(ctx, list, client.InNamespace(data.Namespace), client.MatchingFields{ClaimByData: data.Name}); err != nil {
		return nil, fmt.Errorf("listing the IPClaims of Metal3Data %s: %w", data, err)
	}
	return list.Items, nil
}

func isOwnedBy(obj client.Object, uid types.UID) bool {
	for _, owner := range obj.GetOwnerReferences() {
		if owner.UID == uid {
			return true
		}
	}
	return false
}

// claims are the claims of both kinds that Metal3Data of a name own, or owned.
func (r *Reconciler) claims(ctx context.Context, data types.NamespacedName) (map[client.Object]string, error) {
	out := map[client.Object]string{}
	ours, err := r.ipClaims(ctx, data)
	if err != nil {
		return nil, err
	}
	for i := range ours {
		out[&ours[i]] = ipamv1.IPClaimKind
	}
	theirs, err := r.contractClaims(ctx, data)
	for i := range theirs {
		out[&theirs[i]] = contractClaimKind.Kind
	}
	return out, err
}

// letGo takes the finalizer off claims that are being deleted and whose Metal3Data is gone: one of the same name with another
// UID has no part in them.
func (r *Reconciler) letGo(ctx context.Context, data types.NamespacedName, uid types.UID) error {
	claims, err := r.claims(ctx, data)
	if err != nil {
		return err
	}
	for claim, kind := range claims {
		if claim.GetDeletionTimestamp().IsZero() || isOwnedBy(claim, uid) {
			continue
		}
		if hold, err := r.Clusters.HoldFor(ctx, "", claim); err != nil {
			return err
		} else if hold == allocate.HeldPaused {
			continue
		}
		if uid == "" {
			// The cache may be behind: only the API server knows that the Metal3Data is gone.
			live := &infrav1.Metal3Data{}
			if err := r.Live.Get(ctx, data, live); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("reading Metal3Data %s: %w", data, err)
			} else if err == nil && isOwnedBy(claim, live.UID) {
				continue
			}
		}
		if err := r.setDown(ctx, kind, claim); err != nil {
			return err
		}
	}
	return nil
}

// setDown takes the finalizer off a claim.
func (r *Reconciler) setDown(ctx context.Context, kind string, claim client.Object) error {
	before := claim.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(claim, infrav1.DataFinalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Client.Patch(ctx, claim, patch, client.FieldOwner(FieldOwner))); err != nil {
		return fmt.Errorf("letting %s %s go: %w", kind, claim.GetName(), err)
	}
	return nil
}
