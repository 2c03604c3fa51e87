// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package dataplan

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/ipam-operator/internal/allocate"
)

// Why nothing is rendered: the reason in logs, events and metrics.
const (
	WhyTemplateNotFound allocate.Why = "TemplateNotFound"
	WhyClaimNotFound    allocate.Why = "ClaimNotFound"
	WhyMachineNotReady  allocate.Why = "MachineNotReady"
	WhyNoAddress        allocate.Why = "NoAddress"
	WhyNotRenderable    allocate.Why = "NotRenderable"
	WhySecretInTheWay   allocate.Why = "SecretInTheWay"
)

// Decision is what is done about a Metal3Data.
type Decision struct {
	// Actions in the order in which they are executed.
	Actions []Action
	// Why is the reason of what is reported; empty where nothing is.
	Why allocate.Why
	// Report is what the status says afterwards; nil leaves it.
	Report *Report
}

// Report is the status of data.
type Report struct {
	// Ready says that everything is rendered.
	Ready bool
	// Message says why not; empty for a wait that a claim reports itself.
	Message string
}

// Action is one write.
//
//sumtype:decl
type Action interface{ action() }

// ReleaseClaim takes the finalizer off a claim.
type ReleaseClaim struct{ Claim Claim }

// DeleteClaim deletes a claim, under its UID.
type DeleteClaim struct{ Claim Claim }

// AdoptClaim gives a claim that was restored its owner and its finalizer.
type AdoptClaim struct {
	Claim Claim
	Owner metav1.OwnerReference
}

// DeleteData deletes the data, under its UID.
type DeleteData struct{}

// ReleaseData takes the finalizers of this operator off the data.
type ReleaseData struct{}

// UpdateData writes metadata and spec of the data.
type UpdateData struct{ Data *infrav1.Metal3Data }

// CreateClaim claims an address.
type CreateClaim struct {
	Kind  string
	Claim Object
}

// CreateSecret writes what was rendered.
type CreateSecret struct{ Secret *corev1.Secret }

func (ReleaseClaim) action() {}
func (DeleteClaim) action()  {}
func (AdoptClaim) action()   {}
func (DeleteData) action()   {}
func (ReleaseData) action()  {}
func (UpdateData) action()   {}
func (CreateClaim) action()  {}
func (CreateSecret) action() {}
