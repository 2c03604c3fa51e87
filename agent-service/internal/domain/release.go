// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// Wipe is what is erased of a machine before it is free again.
type Wipe string

// Policies of an InfraEnv. The empty one is WipeNone.
const (
	WipeNone Wipe = "None"
	// WipeInstalledDisk erases the disks that this service had written, and no other.
	WipeInstalledDisk Wipe = "InstalledDisk"
	// WipeAllDisks erases every disk that can be installed to, too.
	WipeAllDisks Wipe = "AllDisks"
)

// Wipes are all policies.
var Wipes = []Wipe{WipeNone, WipeInstalledDisk, WipeAllDisks}

// Release is the way of a host from a cluster back to the free hosts. It is kept when it has ended, until the host is bound again.
type Release struct {
	// ClusterID and Cluster are the cluster that the host left; Cluster is empty where that is no custom resource.
	ClusterID string
	Cluster   KubeRef `json:",omitzero"`
	// NodeName is the host's Node in it, empty for a host that never joined. Binding is the stamp that its bootstrap token was made with.
	NodeName  string    `json:",omitempty"`
	Binding   string    `json:",omitempty"`
	StartedAt time.Time `json:",omitzero"`
	// LeftAt is when the cluster was rid of the Node, zero before; Note says what of that could not be done.
	LeftAt time.Time `json:",omitzero"`
	Note   string    `json:",omitempty"`
	// Wipe is the policy that the host was released with, and WipedAt when it was carried out. WipeFailure names the disk that could not be erased, and why.
	Wipe        Wipe      `json:",omitempty"`
	WipedAt     time.Time `json:",omitzero"`
	WipeFailure string    `json:",omitempty"`
	// EndedAt is when the host was free.
	EndedAt time.Time `json:",omitzero"`
}

// Underway is true from the end of a binding until the host may be bound again.
func (r Release) Underway() bool { return !r.StartedAt.IsZero() && r.EndedAt.IsZero() }

// Left is true where the cluster knows no Node of the host any more, or is not asked any more.
func (r Release) Left() bool { return r.NodeName == "" || !r.LeftAt.IsZero() }

// Wiped is true where there is nothing left to erase.
func (r Release) Wiped() bool { return r.Wipe == "" || r.Wipe == WipeNone || !r.WipedAt.IsZero() }

// Why says what a host that has booted the discovery image again waits for.
func (r Release) Why() string {
	switch {
	case !r.Left():
		return "node " + r.NodeName + " is being removed from its cluster"
	case r.WipeFailure != "":
		return "it could not be wiped: " + r.WipeFailure
	default:
		return "its disks are being wiped"
	}
}

// WroteUnrecorded keeps that a disk of the host was written and that it is not known which: by an earlier version of this service, or before it lost its data.
func (h *Host) WroteUnrecorded() { h.Written = []hardware.DiskIdentity{{}} }

// maxWritten bounds how many disks are recorded: an installation that is repeated may choose another one.
const maxWritten = 16

// Write records a disk before it is written to.
func (h *Host) Write(disk hardware.Target) {
	identity := disk.Identity
	if identity.SizeBytes == 0 {
		identity.SizeBytes = disk.SizeBytes // of an inventory that was read before identities were
	}
	h.InstallationDisk = disk.Path
	if !slices.Contains(h.Written, identity) && len(h.Written) < maxWritten {
		h.Written = append(slices.Clone(h.Written), identity)
	}
}

// ToWipe are the disks that a release erases; refusal says why it cannot.
func (h *Host) ToWipe() (disks []hardware.DiskIdentity, refusal string) {
	disks = slices.Clone(h.Written)
	if h.Release.Wipe == WipeAllDisks { // the one that was not recorded among them
		disks = slices.DeleteFunc(disks, func(d hardware.DiskIdentity) bool { return d == hardware.DiskIdentity{} })
		for _, target := range h.Summary.Targets {
			if !slices.ContainsFunc(disks, target.Identity.Is) {
				disks = append(disks, target.Identity)
			}
		}
	}
	var nameless []string
	for _, disk := range disks {
		switch {
		case disk == hardware.DiskIdentity{}:
			nameless = append(nameless, "the disk that was written is not recorded")
		case !disk.Complete():
			nameless = append(nameless, disk.String())
		}
	}
	if len(nameless) > 0 {
		refusal = strings.Join(nameless, ", ") + ": it cannot be distinguished from others, so no disk is wiped; wipe it by hand and delete the host"
	}
	return disks, refusal
}
