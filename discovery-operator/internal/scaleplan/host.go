// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleplan

import metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"

// Annotations and labels of other projects.
const (
	// UnhealthyAnnotation on a host keeps Metal3Machines from choosing it.
	UnhealthyAnnotation = "capi.metal3.io/unhealthy"
	// DeleteMachineAnnotation on a machine makes Cluster API delete it first when its set shrinks.
	DeleteMachineAnnotation = "cluster.x-k8s.io/delete-machine"
	// ReuseLabel on a host keeps it for machines of the MachineDeployment or control plane that its value names: one of their machines had it, and their
	// Metal3MachineTemplate has nodeReuse.
	ReuseLabel = "infrastructure.cluster.x-k8s.io/node-reuse"
	// ReusePrefix precedes the name of a MachineDeployment in the value of ReuseLabel.
	ReusePrefix = "md-"
)

// Availability says whether a Metal3Machine can have a free host.
type Availability int

// Availabilities of hosts.
const (
	// Never: not without a change by a user.
	Never Availability = iota
	// Coming: not yet, but without a change by a user.
	Coming
	// Available: at once.
	Available
)

// AvailabilityOf judges a host as Metal3Machines do when they choose one.
func AvailabilityOf(host *metal3v1.BareMetalHost) Availability {
	_, paused := host.Annotations[metal3v1.PausedAnnotation]
	_, unhealthy := host.Annotations[UnhealthyAnnotation]
	if paused || unhealthy || !host.DeletionTimestamp.IsZero() || host.Status.ErrorMessage != "" {
		return Never
	}
	switch host.Status.Provisioning.State {
	case metal3v1.StateReady, metal3v1.StateAvailable:
		return Available
	case metal3v1.StateRegistering, metal3v1.StateImporting, metal3v1.StateInspecting, metal3v1.StateMatchProfile, metal3v1.StatePreparing,
		metal3v1.StateDeprovisioning:
		return Coming
	default:
		return Never
	}
}
