// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package incluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

const (
	group = "ipam.cluster.x-k8s.io"
	// poolVersion is the version in which pools are read and written.
	poolVersion = "v1alpha2"
	// fieldOwner is the name that writes of the import carry.
	fieldOwner = "ipam-operator/import"
)

// Import imports the pools of the in-cluster provider. It can be run again: what is there already is kept, addresses that were handed out since are reserved, and
// reservations of those that were given back are removed.
type Import struct {
	// Client reads and writes.
	Client client.Client
	// Namespace is the only one whose InClusterIPPools are imported; empty for all.
	Namespace string
	// GlobalInto is the namespace of the IPPools that GlobalInClusterIPPools become; empty leaves these out.
	GlobalInto string
	// LeaveOpen lets the in-cluster provider go on handing out addresses of the pools.
	LeaveOpen bool
	// DryRun writes nothing.
	DryRun bool
	// Out receives one line for each step.
	Out io.Writer
}

// Run imports all pools. One that cannot be imported stops no other.
func (i *Import) Run(ctx context.Context) error {
	sources, leftOut, err := i.sources(ctx)
	if err != nil {
		return err
	}
	for _, source := range leftOut {
		if err := i.say("%s: is left out; name the namespace of its IPPool with --global-into", source); err != nil {
			return err
		}
	}
	if len(sources) == 0 && len(leftOut) == 0 {
		return i.say("there are no pools of the in-cluster provider to import")
	}
	var errs []error
	made := map[types.NamespacedName]Source{}
	for _, source := range sources {
		into := types.NamespacedName{Namespace: cmp.Or(source.Namespace, i.GlobalInto), Name: source.Name}
		if other, taken := made[into]; taken {
			errs = append(errs, fmt.Errorf("%s cannot be imported: IPPool %s is that of %s; name another namespace with --global-into", source, into, other))
			continue
		}
		made[into] = source
		errs = append(errs, i.pool(ctx, source, into.Namespace))
	}
	return errors.Join(errs...)
}

// sources are the pools to import, and those that are left out because no namespace is named for them, in order.
func (i *Import) sources(ctx context.Context) (sources, leftOut []Source, err error) {
	sources, err = i.sourcesOf(ctx, poolKind, client.InNamespace(i.Namespace))
	if err != nil || i.GlobalInto == "" && i.Namespace != "" {
		return sources, nil, err
	}
	global, err := i.sourcesOf(ctx, globalPoolKind)
	if i.GlobalInto == "" {
		return sources, global, err
	}
	return append(sources, global...), nil, err
}

// sourcesOf are the pools of a kind.
func (i *Import) sourcesOf(ctx context.Context, kind string, in ...client.ListOption) (out []Source, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: poolVersion, Kind: kind + "List"})
	if err := i.Client.List(ctx, list, in...); isNotServed(err) {
		return nil, i.otherVersion(kind)
	} else if err != nil {
		return nil, fmt.Errorf("listing %s: %w", kind, err)
	}
	for _, item := range list.Items {
		source := Source{Kind: kind, Namespace: item.GetNamespace(), Name: item.GetName()}
		spec, _, _ := unstructured.NestedMap(item.Object, "spec")
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &source.Spec); err != nil {
			return nil, fmt.Errorf("reading %s: %w", source, err)
		}
		out = append(out, source)
	}
	return out, nil
}

// otherVersion reports an error where a kind is served in other versions than the import reads: there may be pools.
func (i *Import) otherVersion(kind string) error {
	mapping, err := i.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: group, Kind: kind})
	switch {
	case isNotServed(err):
		return nil
	case err != nil:
		return fmt.Errorf("looking for %s: %w", kind, err)
	}
	return fmt.Errorf("%s is served in %s and not in %s: bring the in-cluster provider to a version that serves %[3]s", kind, mapping.GroupVersionKind.Version, poolVersion)
}

// pool imports one pool. The IPPool is paused until its addresses in use are reserved, so that it hands out none of them whenever this ends.
func (i *Import) pool(ctx context.Context, source Source, namespace string) error {
	pool, err := Pool(source, namespace)
	if err != nil {
		return err
	}
	if err := i.isFree(ctx, pool); err != nil {
		return err
	}
	pool.Annotations[ipamv1.PausedAnnotation] = Provider
	if err := i.create(ctx, pool.DeepCopy(), fmt.Sprintf("IPPool %s/%s: hands out what %s did", pool.Namespace, pool.Name, source)); err != nil {
		return err
	}
	used, err := i.used(ctx, source)
	if err != nil {
		return err
	}
	if !i.LeaveOpen {
		if err := i.closeSource(ctx, source, used); err != nil {
			return err
		}
		if used, err = i.used(ctx, source); err != nil { // one may have been handed out before it was closed
			return err
		}
	}
	if err := i.reserve(ctx, pool, used); err != nil {
		return err
	}
	if err := i.prune(ctx, pool, used); err != nil {
		return err
	}
	return i.open(ctx, pool)
}

// open ends the pause of an IPPool that the import began.
func (i *Import) open(ctx context.Context, pool *ipamv1.IPPool) error {
	if i.DryRun {
		return nil
	}
	known, key := &ipamv1.IPPool{}, client.ObjectKeyFromObject(pool)
	if err := i.Client.Get(ctx, key, known); err != nil {
		return fmt.Errorf("reading IPPool %s: %w", key, err)
	}
	if known.Annotations[ipamv1.PausedAnnotation] != Provider {
		return nil
	}
	before := known.DeepCopy()
	delete(known.Annotations, ipamv1.PausedAnnotation)
	if err := i.Client.Patch(ctx, known, client.MergeFrom(before), client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("ending the pause of IPPool %s: %w", key, err)
	}
	return nil
}

// isFree reports an error where an IPPool of the name is there that was not imported, or was another pool: the reservations of the one are not those of the other.
func (i *Import) isFree(ctx context.Context, pool *ipamv1.IPPool) error {
	known := &ipamv1.IPPool{}
	err := i.Client.Get(ctx, client.ObjectKeyFromObject(pool), known)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading IPPool %s: %w", client.ObjectKeyFromObject(pool), err)
	case known.Labels[ipamv1.ImportedFromLabel] != Provider:
		return fmt.Errorf("IPPool %s is there already and was not imported: rename one of the two", client.ObjectKeyFromObject(pool))
	}
	is, was := pool.Annotations[ipamv1.ImportedPoolAnnotation], known.Annotations[ipamv1.ImportedPoolAnnotation]
	if was != "" && was != is { // without the annotation it was imported by an earlier version
		return fmt.Errorf("%s cannot be imported: IPPool %s is that of %s; rename it, or name another namespace with --global-into", is, client.ObjectKeyFromObject(pool), was)
	}
	return nil
}

// used are the addresses that a pool has handed out.
func (i *Import) used(ctx context.Context, source Source) ([]Used, error) {
	for _, version := range []string{"v1beta2", "v1beta1", "v1alpha1"} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: version, Kind: "IPAddressList"})
		if err := i.Client.List(ctx, list, client.InNamespace(source.Namespace)); isNotServed(err) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("listing the addresses of %s: %w", source, err)
		}
		var out []Used
		for _, item := range list.Items {
			if text(&item, "spec", "poolRef", "apiGroup") != group || text(&item, "spec", "poolRef", "kind") != source.Kind || text(&item, "spec", "poolRef", "name") != source.Name {
				continue
			}
			ip, err := allocate.ParseAddr(text(&item, "spec", "address"))
			if err != nil {
				return nil, fmt.Errorf("IPAddress %s/%s of %s: %w", item.GetNamespace(), item.GetName(), source, err)
			}
			out = append(out, Used{IP: ip, Claim: types.NamespacedName{Namespace: item.GetNamespace(), Name: text(&item, "spec", "claimRef", "name")}})
		}
		slices.SortFunc(out, func(a, b Used) int { return a.IP.Compare(b.IP) })
		return out, nil
	}
	return nil, fmt.Errorf("listing the addresses of %s: IPAddresses of %s are not served in v1beta2, v1beta1 or v1alpha1", source, group)
}

// closeSource has the in-cluster provider hand out no more addresses of a pool. It can take back the addresses that it has handed out.
func (i *Import) closeSource(ctx context.Context, source Source, used []Used) error {
	excluded := Closed(source, used)
	if slices.Equal(excluded, source.Spec.ExcludedAddresses) {
		return nil
	}
	if err := i.say("%s: excludes every address that is not in use", source); err != nil || i.DryRun {
		return err
	}
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: poolVersion, Kind: source.Kind})
	if err := i.Client.Get(ctx, types.NamespacedName{Namespace: source.Namespace, Name: source.Name}, obj); err != nil {
		return fmt.Errorf("reading %s: %w", source, err)
	}
	before := obj.DeepCopy()
	if err := unstructured.SetNestedStringSlice(obj.Object, excluded, "spec", "excludedAddresses"); err != nil {
		return fmt.Errorf("closing %s: %w", source, err)
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := i.Client.Patch(ctx, obj, patch, client.FieldOwner(fieldOwner)); err != nil {
		return fmt.Errorf("closing %s (if its provider is switched off for good, use --leave-open): %w", source, err)
	}
	return nil
}

// reserve makes the addresses in use taken for the IPPool. It names those that a claim of the IPPool has as well.
func (i *Import) reserve(ctx context.Context, pool *ipamv1.IPPool, used []Used) error {
	var errs []error
	for _, u := range used {
		reservation := Reservation(pool, u)
		what := fmt.Sprintf("IPAddress %s/%s: reserves %s for %s %s", reservation.Namespace, reservation.Name, u.IP, claimKind, u.Claim)
		errs = append(errs, i.create(ctx, reservation, what), i.isReserved(ctx, pool, u))
	}
	return errors.Join(errs...)
}

// isReserved reports an error where an address in use is that of a claim of the IPPool: both pools have handed it out. Such an IPAddress has a finalizer, and a reservation has none.
func (i *Import) isReserved(ctx context.Context, pool *ipamv1.IPPool, used Used) error {
	address, key := &ipamv1.IPAddress{}, client.ObjectKeyFromObject(Reservation(pool, used))
	if err := i.Client.Get(ctx, key, address); apierrors.IsNotFound(err) {
		return nil // as in a dry run
	} else if err != nil {
		return fmt.Errorf("reading IPAddress %s: %w", key, err)
	}
	if len(address.Finalizers) == 0 {
		return nil
	}
	return fmt.Errorf("%s is in use twice: by %s %s, and by %s %s of IPPool %s/%s; replace one of the two machines",
		used.IP, claimKind, used.Claim, cmp.Or(address.Spec.Claim.Kind, ipamv1.IPClaimKind), address.ClaimKey(), pool.Namespace, pool.Name)
}

// prune removes the reservations of addresses that were given back. One that a claim of the IPPool has adopted has a finalizer by then and stays.
func (i *Import) prune(ctx context.Context, pool *ipamv1.IPPool, used []Used) error {
	inUse := map[netip.Addr]bool{}
	for _, u := range used {
		inUse[u.IP] = true
	}
	list := &ipamv1.IPAddressList{}
	if err := i.Client.List(ctx, list, client.InNamespace(pool.Namespace), client.MatchingLabels{ipamv1.ImportedFromLabel: Provider}); err != nil {
		return fmt.Errorf("listing the addresses of IPPool %s: %w", client.ObjectKeyFromObject(pool), err)
	}
	var errs []error
	for n := range list.Items {
		address := &list.Items[n]
		ip, err := allocate.ParseAddr(string(address.Spec.Address))
		if err != nil || address.Spec.Pool.Name != pool.Name || inUse[ip] || len(address.Finalizers) > 0 {
			continue
		}
		if err := i.say("IPAddress %s/%s: is not in use any more", address.Namespace, address.Name); err != nil || i.DryRun {
			errs = append(errs, err)
			continue
		}
		uid, version := address.UID, address.ResourceVersion
		err = i.Client.Delete(ctx, address, client.Preconditions{UID: &uid, ResourceVersion: &version})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("deleting IPAddress %s: %w", client.ObjectKeyFromObject(address), err))
		}
	}
	return errors.Join(errs...)
}

// create makes an object unless it is there.
func (i *Import) create(ctx context.Context, obj client.Object, what string) error {
	if i.DryRun {
		return i.say("%s", what)
	}
	err := i.Client.Create(ctx, obj, client.FieldOwner(fieldOwner))
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil
	case err != nil:
		return fmt.Errorf("creating %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
	}
	return i.say("%s", what)
}

func (i *Import) say(format string, args ...any) error {
	if i.DryRun {
		format = "would: " + format
	}
	_, err := fmt.Fprintf(i.Out, format+"\n", args...)
	return err
}

func isNotServed(err error) bool { return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) }

func text(obj *unstructured.Unstructured, path ...string) string {
	value, _, _ := unstructured.NestedString(obj.Object, path...)
	return value
}
