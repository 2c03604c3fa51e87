// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Wipe is what is erased of a machine before it is free again.
type Wipe string

// Policies of an InfraEnv, and of the MachinePool that bound a host. The empty one is WipeNone.
const (
	WipeNone Wipe = "None"
	// WipeInstalledDisk erases the disks that this service had written, and no other.
	WipeInstalledDisk Wipe = "InstalledDisk"
	// WipeAllDisks erases every other disk that is part of the machine, too, whether it can be installed to or not.
	WipeAllDisks Wipe = "AllDisks"
)

// Wipes are all policies; each erases more than the one before.
var Wipes = []Wipe{WipeNone, WipeInstalledDisk, WipeAllDisks}

// Strictest is the policy of these that erases most, WipeNone where none erases anything.
func Strictest(policies ...Wipe) Wipe {
	strictest := 0
	for _, policy := range policies {
		strictest = max(strictest, slices.Index(Wipes, policy))
	}
	return Wipes[strictest]
}

// WipeOf is the policy for a host whose InfraEnv and whose MachinePool say this, whichever erases more. A MachinePool that says something, where its InfraEnv does not, leaves
// no disk as it is: nothing is erased only where both say so. A host without a MachinePool has the policy of its InfraEnv.
func WipeOf(infraEnv, pool Wipe) Wipe {
	if infraEnv == "" && pool != "" {
		infraEnv = WipeInstalledDisk
	}
	return Strictest(infraEnv, pool)
}

// Release is the way of a host from a cluster back to the free hosts. It is kept when it has ended, until the host is bound again.
type Release struct {
	// ClusterID and Cluster are the cluster that the host left; Cluster is empty where that is no custom resource.
	ClusterID string
	Cluster   KubeRef `json:",omitzero"`
	// NodeName is the host's Node in it, empty for a host that was not given what it joins with. Binding is the stamp that its bootstrap token was made with.
	// Rejoin is the stamp of its Rejoin. Unjoined is true for a host that was not known to have joined: the Node may be another machine's.
	NodeName  string    `json:",omitempty"`
	Unjoined  bool      `json:",omitempty"`
	Binding   string    `json:",omitempty"`
	Rejoin    string    `json:",omitempty"`
	StartedAt time.Time `json:",omitzero"`
	// LeftAt is when the cluster was rid of the Node, zero before; Note says what of that could not be done.
	LeftAt time.Time `json:",omitzero"`
	Note   string    `json:",omitempty"`
	// Wipe is the policy that the host was released with, and WipedAt when it was carried out. WipeFailure names the disk that could not be erased, and why.
	Wipe        Wipe      `json:",omitempty"`
	WipedAt     time.Time `json:",omitzero"`
	WipeFailure string    `json:",omitempty"`
	// Stopping is true for an installation that was cancelled until the machine registers again: its agent may be away, and still write.
	Stopping bool `json:",omitempty"`
	// EndedAt is when the host was free.
	EndedAt time.Time `json:",omitzero"`
}

// Underway is true from the end of a binding until the host may be bound again.
func (r Release) Underway() bool { return !r.StartedAt.IsZero() && r.EndedAt.IsZero() }

// returnTimeout is how long a machine that owes something after its release keeps its InfraEnv. One that is dead keeps it no longer.
const returnTimeout = time.Hour

// Returns is true for a host that comes back from its cluster and owes something: its machine may run as a node, its cluster has its Node, its disks are not wiped, or it has addresses of
// pools. It is forgotten no sooner: its machine would go on as a node of nothing, with addresses that others get, and what is on its disks would be there for its next user.
func (h *Host) Returns(now time.Time) bool {
	r := h.Release
	owes := !r.Left() || !r.Wiped() || len(h.Addressing.Given) > 0
	switch {
	case h.ReleaseMoved():
		return len(h.Addressing.Given) > 0 && now.Sub(h.ReleaseMovedAt) < returnTimeout
	case !r.Underway():
		return false
	case h.State == lifecycle.Reclaiming || h.State == lifecycle.ReclaimingRebooting: // these end by time
		return owes || r.NodeName != ""
	}
	return owes && now.Sub(r.StartedAt) < returnTimeout
}

// Left is true where the cluster knows no Node of the host any more, or is not asked any more.
func (r Release) Left() bool { return r.NodeName == "" || !r.LeftAt.IsZero() }

// Wiped is true where there is nothing left to erase.
func (r Release) Wiped() bool { return r.Wipe == "" || r.Wipe == WipeNone || !r.WipedAt.IsZero() }

// Why says what a host that has booted the discovery image again waits for.
func (r Release) Why() string {
	switch {
	case !r.Left():
		return "node " + r.NodeName + " is being removed from its cluster"
	case r.Stopping:
		return "its agent stops the installation"
	case r.WipeFailure != "":
		return "it could not be wiped: " + r.WipeFailure
	default:
		return "its disks are being wiped"
	}
}

// WipePolicy is what is erased of a host when its binding ends: what its InfraEnv or its MachinePool asks for, whichever is more. It is WipeNone where nothing was written.
func (h *Host) WipePolicy(infraEnv *InfraEnv) Wipe {
	if !h.WasWritten() {
		return WipeNone
	}
	asked := h.Wipe
	if h.ClusterID == "" { // it has just left its cluster
		asked = h.Release.Wipe
	}
	if infraEnv == nil {
		return WipeOf("", asked)
	}
	return WipeOf(infraEnv.Wipe, asked)
}

// WasWritten is true for a host that has a disk which was written, be it recorded or not, and which was not wiped since.
func (h *Host) WasWritten() bool {
	return len(h.Written) > 0 || slices.Contains([]lifecycle.State{lifecycle.Installed, lifecycle.AddedToExistingCluster, lifecycle.InstallingPendingUserAction}, h.State)
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

// fixed are the disks of the machine; of an inventory that an earlier version read, those that can be installed to.
func (h *Host) fixed() []hardware.DiskIdentity {
	if h.Summary.FixedDisks != nil {
		return h.Summary.Fixed
	}
	var disks []hardware.DiskIdentity
	for _, target := range h.Summary.Targets {
		if target.ISCSIAddress == "" {
			disks = append(disks, target.Identity)
		}
	}
	return disks
}

// ToWipe are the disks that a release erases; refusal says why it cannot.
func (h *Host) ToWipe() (disks []hardware.DiskIdentity, refusal string) {
	disks = slices.Clone(h.Written)
	if h.Release.Wipe == WipeAllDisks { // the one that was not recorded among them
		disks = slices.DeleteFunc(disks, func(d hardware.DiskIdentity) bool { return d == hardware.DiskIdentity{} })
		for _, disk := range h.fixed() {
			if !slices.ContainsFunc(disks, disk.Is) {
				disks = append(disks, disk)
			}
		}
		if all := h.Summary.FixedDisks; all != nil && *all > len(h.Summary.Fixed) {
			return disks, fmt.Sprintf("the machine has %d fixed disks, and %d can be wiped at a time, so no disk is wiped; wipe it by hand and delete the host", *all, len(h.Summary.Fixed))
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
