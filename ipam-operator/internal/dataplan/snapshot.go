// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dataplan decides what is done about a Metal3Data: which addresses are claimed for it, what is rendered from them, what is given back, and why
// something waits. It is pure.
//
// An observation reads in the order of Snapshot's fields. The methods of Snapshot tell which object is read next.
package dataplan

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
	"github.com/muster-io/muster/ipam-operator/internal/render"
)

// Snapshot is what one pass over a Metal3Data has seen. Nothing in it is changed by a plan.
type Snapshot struct {
	// NameByHost names IPClaims after the BareMetalHost and not after the Metal3Data.
	NameByHost bool
	// Data is nil where it is gone.
	Data *infrav1.Metal3Data
	// LiveUID is that of data of this name at the API server, where the cache has none and a claim depends on it; empty where it is gone.
	LiveUID types.UID
	// Template is nil where it is gone.
	Template *infrav1.Metal3DataTemplate
	// Hold is that of the data and its template.
	Hold allocate.Hold
	// Owned are the claims of both kinds that Metal3Data of this name own, or owned.
	Owned []Claim
	// Claim is the claim of the data, nil where it is gone.
	Claim *infrav1.Metal3DataClaim
	// Secrets by name, as far as they were looked for; nil for one that is not there.
	Secrets map[string]*metav1.PartialObjectMetadata
	// Machine is what the claim is for.
	Machine Machine
	// Claims are those of the pools that the template names, as far as they are there.
	Claims map[render.Pool]Claim
	// NoContract says that the kinds of Cluster API's contract are not installed.
	NoContract bool
}

// Object is an object of any kind.
type Object interface {
	metav1.Object
	runtime.Object
}

// Claim is a claim of an address, of either kind, and its address.
type Claim struct {
	// Object is an *IPClaim or, of Cluster API's contract, an *Unstructured.
	Object
	Kind string
	// Paused says that nothing may be done for it.
	Paused bool
	// Address is the IPAddress that its status names, of the same group; nil where there is none.
	Address Object
	// Layout is that of the IPPool of an address that states no prefix; nil where the pool is gone.
	Layout *allocate.Layout
}

// Machine is what was read of the machine that a claim is for.
type Machine struct {
	// Metal3Machine and Machine are those of Cluster API.
	Metal3Machine, Machine Found
	// Host is nil where it is not there.
	Host *metal3v1.BareMetalHost
	// Hardware is what inspection found of the host, nil before.
	Hardware *metal3v1.HardwareDetails
}

// Found is an object of another project's kind; nil where it is not there.
type Found struct {
	*metav1.PartialObjectMetadata
	// NotServed says that the kind is not installed.
	NotServed bool
}

// isDeleted reports whether the data is on its way out.
func (s *Snapshot) isDeleted() bool { return s.Data != nil && !s.Data.DeletionTimestamp.IsZero() }

func (s *Snapshot) isPaused() bool { return s.Data != nil && s.Hold == allocate.HeldPaused }

// uid is that of the data; empty where it is gone.
func (s *Snapshot) uid() types.UID {
	if s.Data == nil {
		return s.LiveUID
	}
	return s.Data.UID
}

// LooksLive reports whether a claim depends on data that the cache does not show: only the API server knows that it is gone.
func (s *Snapshot) LooksLive() bool { return s.Data == nil && len(s.stray()) > 0 }

// LooksForClaim reports whether the plan depends on the claim of the data, and on its Secrets.
func (s *Snapshot) LooksForClaim() bool { return s.Data != nil && !s.isPaused() && !s.isDeleted() }

// Renders reports whether the Secrets are still to be rendered, and nothing but the machine and its addresses may keep them from it.
func (s *Snapshot) Renders() bool {
	return s.Waits() && s.Hold != allocate.HeldClusterMissing && s.Template != nil
}

// Waits reports whether the Secrets are still to be rendered.
func (s *Snapshot) Waits() bool { return s.LooksForClaim() && s.Claim != nil && !s.isRendered() }

// Want is a claim that a template asks for, of one pool.
type Want struct {
	Pool render.Pool
	// Kind and Name of the claim.
	Kind, Name string
}

// Wants are the claims that the template asks for, in the order of their pools; none while the machine is not ready.
func (s *Snapshot) Wants() []Want {
	subject, why := s.subject()
	if why != "" {
		return nil
	}
	pools, err := render.Pools(&s.Template.Spec, subject)
	if err != nil {
		return nil
	}
	return s.wants(subject, pools)
}

// SecretsToRender are the names of the Secrets that can be rendered from what was seen.
func (s *Snapshot) SecretsToRender() []string {
	subject, why := s.subject()
	if why != "" {
		return nil
	}
	for _, want := range s.Wants() {
		if claim, ok := s.Claims[want.Pool]; !ok || !claim.isOf(s.Data.UID) || claim.Address == nil {
			return nil
		}
	}
	return SecretsOf(s.prepared(subject.Name))
}
