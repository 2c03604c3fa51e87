// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package metal3data

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// Kinds that data is rendered from and that other projects define.
var (
	// MachineKind is the Machine of Cluster API.
	MachineKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}
	// Metal3MachineKind is the machine that a claim is usually for.
	Metal3MachineKind = schema.GroupKind{Group: infrav1.GroupVersion.Group, Kind: infrav1.Metal3MachineKind}
	// HostKind is the BareMetalHost that a machine runs on.
	HostKind = schema.GroupKind{Group: metal3v1.GroupVersion.Group, Kind: "BareMetalHost"}
)

// Known wordings of what is missing.
const (
	// ErrNoOwner says that a claim has no machine.
	ErrNoOwner   = "Metal3Machine not found in owner references"
	errNoMachine = "Waiting for Machine Controller to set OwnerRef on Metal3Machine"
	errNoHost    = "Waiting for BareMetalHost to become available"
)

// Machine is the owner of a claim that the data is for: a Metal3Machine, or a BareMetalHost that no machine of Cluster API
// runs on.
func Machine(claim client.Object) (metav1.OwnerReference, bool) {
	for _, kind := range []schema.GroupKind{Metal3MachineKind, HostKind} {
		if owner, ok := ownerOf(claim, kind); ok {
			return owner, true
		}
	}
	return metav1.OwnerReference{}, false
}

func ownerOf(obj client.Object, kind schema.GroupKind) (metav1.OwnerReference, bool) {
	for _, owner := range obj.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group == kind.Group && owner.Kind == kind.Kind {
			return owner, true
		}
	}
	return metav1.OwnerReference{}, false
}

// subject reads the machine that a claim is for, from the API server: once per rendering. Whatever it lacks is waited for.
func (r *Reconciler) subject(ctx context.Context, data *infrav1.Metal3Data, claim *infrav1.Metal3DataClaim) (*render.Subject, error) {
	key := client.ObjectKeyFromObject(data)
	r.waits.drop(key)
	owner, ok := Machine(claim)
	if !ok {
		return nil, refuse(ErrNoOwner)
	}
	s := &render.Subject{Namespace: data.Namespace, Name: owner.Name, Index: data.Spec.Index}
	host := types.NamespacedName{Namespace: data.Namespace, Name: owner.Name}
	if owner.Kind == infrav1.Metal3MachineKind {
		machine, err := r.foreign(ctx, key, Metal3MachineKind, host)
		if err != nil {
			return nil, err
		}
		s.Metal3Machine = about(machine)
		if s.Machine, err = r.machineOf(ctx, key, machine); err != nil {
			return nil, err
		}
		namespace, name, ok := strings.Cut(machine.GetAnnotations()[infrav1.HostAnnotation], "/")
		if !ok {
			return nil, refuse(errNoHost)
		}
		host = types.NamespacedName{Namespace: namespace, Name: name}
	}
	return s, r.addHost(ctx, key, host, s)
}

func (r *Reconciler) machineOf(ctx context.Context, data types.NamespacedName, machine *metav1.PartialObjectMetadata) (*render.Object, error) {
	owner, ok := ownerOf(machine, MachineKind)
	if !ok {
		return nil, refuse(errNoMachine)
	}
	found, err := r.foreign(ctx, data, MachineKind, types.NamespacedName{Namespace: machine.Namespace, Name: owner.Name})
	if err != nil {
		return nil, err
	}
	return about(found), nil
}

// foreign reads the metadata of an object of another project's kind. Data is served again when that object changes.
func (r *Reconciler) foreign(ctx context.Context, data types.NamespacedName, kind schema.GroupKind, name types.NamespacedName) (*metav1.PartialObjectMetadata, error) {
	r.waits.on(data, object{kind, name})
	served, ok := r.kinds.get(kind)
	if !ok {
		return nil, refuse("%s %s not found: the kind is not installed", kind.Kind, name.Name)
	}
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(served)
	if err := r.Live.Get(ctx, name, found); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil, refuse("%s %s not found", kind.Kind, name.Name)
	} else if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", kind.Kind, name, err)
	}
	return found, nil
}

// addHost reads the BareMetalHost and what inspection found of it.
func (r *Reconciler) addHost(ctx context.Context, data types.NamespacedName, name types.NamespacedName, s *render.Subject) error {
	r.waits.on(data, object{HostKind, name})
	host := &metal3v1.BareMetalHost{}
	if err := r.Live.Get(ctx, name, host); apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return refuse(errNoHost)
	} else if err != nil {
		return fmt.Errorf("reading BareMetalHost %s: %w", name, err)
	}
	s.Host, s.BootMAC = *about(host), host.Spec.BootMACAddress
	hardware := host.Status.HardwareDetails
	if hardware == nil {
		kept := &metal3v1.HardwareData{}
		if err := r.Live.Get(ctx, name, kept); err != nil && !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
			return fmt.Errorf("reading HardwareData %s: %w", name, err)
		}
		hardware = kept.Spec.HardwareDetails
	}
	if hardware != nil {
		for _, nic := range hardware.NIC {
			s.NICs = append(s.NICs, render.NIC{Name: nic.Name, MAC: nic.MAC})
		}
	}
	return nil
}

func about(obj client.Object) *render.Object {
	return &render.Object{Name: obj.GetName(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations()}
}
