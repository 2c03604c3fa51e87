// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package dataplan

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

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
	// NoOwner says that a claim has no machine.
	NoOwner   = "Metal3Machine not found in owner references"
	noMachine = "Waiting for Machine Controller to set OwnerRef on Metal3Machine"
	noHost    = "Waiting for BareMetalHost to become available"
)

// MachineOf is the owner of a claim that the data is for: a Metal3Machine, or a BareMetalHost that no machine of Cluster API
// runs on.
func MachineOf(claim metav1.Object) (metav1.OwnerReference, bool) {
	for _, kind := range []schema.GroupKind{Metal3MachineKind, HostKind} {
		if owner, ok := OwnerOf(claim, kind); ok {
			return owner, true
		}
	}
	return metav1.OwnerReference{}, false
}

// OwnerOf is the owner of a kind that an object has.
func OwnerOf(obj metav1.Object, kind schema.GroupKind) (metav1.OwnerReference, bool) {
	for _, owner := range obj.GetOwnerReferences() {
		if gv, err := schema.ParseGroupVersion(owner.APIVersion); err == nil && gv.Group == kind.Group && owner.Kind == kind.Kind {
			return owner, true
		}
	}
	return metav1.OwnerReference{}, false
}

// HostOf is the name of the BareMetalHost that a Metal3Machine runs on. It is one of the namespace of the machine, as its provider chooses it: an annotation that names another
// namespace would have labels, annotations and MAC addresses of that one's hosts rendered into a Secret of this one.
func HostOf(machine metav1.Object) (types.NamespacedName, bool) {
	namespace, name, ok := strings.Cut(machine.GetAnnotations()[infrav1.HostAnnotation], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}, ok && namespace == machine.GetNamespace()
}

// subject is the machine that is rendered for, or what is waited for.
func (s *Snapshot) subject() (subject *render.Subject, why string) {
	owner, ok := MachineOf(s.Claim)
	if !ok {
		return nil, NoOwner
	}
	subject = &render.Subject{Namespace: s.Data.Namespace, Name: owner.Name, Index: s.Data.Spec.Index}
	if owner.Kind == infrav1.Metal3MachineKind {
		if why := addMachines(subject, s.Machine, owner.Name); why != "" {
			return nil, why
		}
	}
	host := s.Machine.Host
	if host == nil {
		return nil, noHost
	}
	subject.Host, subject.BootMAC = *about(host), host.Spec.BootMACAddress
	if s.Machine.Hardware != nil {
		for _, nic := range s.Machine.Hardware.NIC {
			subject.NICs = append(subject.NICs, render.NIC{Name: nic.Name, MAC: nic.MAC})
		}
	}
	return subject, ""
}

// addMachines adds the machines of Cluster API to a subject, or says which one is waited for.
func addMachines(subject *render.Subject, m Machine, name string) (why string) {
	if why := m.Metal3Machine.missing(Metal3MachineKind, name); why != "" {
		return why
	}
	subject.Metal3Machine = about(m.Metal3Machine)
	owner, ok := OwnerOf(m.Metal3Machine, MachineKind)
	if !ok {
		return noMachine
	}
	if why := m.Machine.missing(MachineKind, owner.Name); why != "" {
		return why
	}
	subject.Machine = about(m.Machine)
	if _, ok := HostOf(m.Metal3Machine); !ok {
		return noHost
	}
	return ""
}

// missing says that an object was not found; empty where it was.
func (f Found) missing(kind schema.GroupKind, name string) string {
	switch {
	case f.NotServed:
		return fmt.Sprintf("%s %s not found: the kind is not installed", kind.Kind, name)
	case f.PartialObjectMetadata == nil:
		return fmt.Sprintf("%s %s not found", kind.Kind, name)
	default:
		return ""
	}
}

func about(obj metav1.Object) *render.Object {
	return &render.Object{Name: obj.GetName(), Labels: obj.GetLabels(), Annotations: obj.GetAnnotations()}
}
