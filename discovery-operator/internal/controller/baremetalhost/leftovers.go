// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/apis/outcome"
)

// finalizers are those of baremetal-operator on objects that have the name of a host.
var finalizers = map[string][]string{
	"HardwareData": {metal3v1.HardwareDataFinalizer}, "DataImage": {metal3v1.DataImageFinalizer},
	"PreprovisioningImage": {metal3v1.PreprovisioningImageFinalizer, metal3v1.BuiltImageFinalizer},
}

// leaving takes off what another operator has left at a host that goes.
type leaving struct {
	*Reconciler
	host *metal3v1.BareMetalHost
}

// leftovers takes the finalizers of baremetal-operator off what belongs to a host that goes. That operator does so when it deletes a host, and does not run where
// this one manages hosts: these objects, which the host owns, would stay for ever, and so would its namespace.
func (r leaving) leftovers(ctx context.Context) error {
	host := r.host
	for kind, names := range finalizers {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(metal3v1.GroupVersion.WithKind(kind + "List"))
		err := r.Live.List(ctx, list, client.InNamespace(host.Namespace), client.MatchingFields{"metadata.name": host.Name})
		switch {
		case meta.IsNoMatchError(err): // the kind is not installed
			continue
		case apierrors.IsForbidden(err):
			kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}}
			kept.SetGroupVersionKind(metal3v1.GroupVersion.WithKind(kind))
			r.kept(kept, names...)
			continue
		case err != nil:
			return wrap(err, "looking for the %s of host %s", kind, client.ObjectKeyFromObject(host))
		}
		for i := range list.Items {
			list.Items[i].SetGroupVersionKind(metal3v1.GroupVersion.WithKind(kind))
			if err := r.leftover(ctx, &list.Items[i], names...); err != nil {
				return err
			}
		}
	}
	for _, name := range secretsOf(host) {
		secret := &metav1.PartialObjectMetadata{}
		secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: host.Namespace, Name: name}, secret)
		if apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return wrap(err, "looking for the Secret %s of host %s", name, client.ObjectKeyFromObject(host))
		}
		if err := r.leftover(ctx, secret, metal3v1.SecretFinalizer); err != nil {
			return err
		}
	}
	return nil
}

// secretsOf are the names of the Secrets of a host that baremetal-operator keeps while it needs them.
func secretsOf(host *metal3v1.BareMetalHost) []string {
	names := []string{host.Spec.PreprovisioningNetworkDataName}
	if host.Spec.BMC != nil {
		names = append(names, host.Spec.BMC.CredentialsName)
	}
	for _, ref := range []*corev1.SecretReference{host.Status.GoodCredentials.Reference, host.Status.TriedCredentials.Reference} {
		if ref != nil {
			names = append(names, ref.Name)
		}
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == "" })
}

// leftover takes finalizers off an object, where it has them.
func (r leaving) leftover(ctx context.Context, o *metav1.PartialObjectMetadata, names ...string) error {
	before, has := o.DeepCopy(), false
	for _, name := range names {
		has = controllerutil.RemoveFinalizer(o, name) || has
	}
	if !has {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	// The operator caches none of these kinds.
	err := r.Client.Patch(ctx, o, patch, client.FieldOwner(FieldOwner), client.DisableReadYourWritesConsistency)
	if apierrors.IsForbidden(err) {
		r.kept(before, names...)
		return nil
	}
	return outcome.IgnoreGone(wrap(err, "removing the finalizer of the %s of host %s", before.Kind, client.ObjectKeyFromObject(r.host)))
}

// kept tells which finalizers stay, because this operator has no right to take them off. The event names the object: it would count as one more of that of another object otherwise.
func (r leaving) kept(o *metav1.PartialObjectMetadata, names ...string) {
	r.Recorder.Eventf(r.host, o, corev1.EventTypeWarning, metal3v1.EventFinalizerKept, "Delete",
		"The operator may not change the %s %s: remove its finalizer %s, if it has it, or the object and its namespace stay", o.Kind, o.Name, strings.Join(names, " or "))
}
