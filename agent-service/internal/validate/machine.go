// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// DiskSpeed is the id of the validation that the installation disk is fast enough.
const DiskSpeed = "sufficient-installation-disk-speed"

// ofMachine are the validations that look at the machine alone.
var ofMachine = []Validation{
	{ID: "connected", Category: Network, Blocks: true, Mandatory: true, Func: connected, About: "The agent polled within the time-out."},
	{ID: "media-connected", Category: Network, Blocks: true, Mandatory: true, Func: mediaConnected, About: "The agent can read the medium that it was booted from."},
	{ID: "has-inventory", Category: Hardware, Blocks: true, Mandatory: true, Func: hasInventory, About: "The agent reported the hardware, and one machine reports as this host."},
	{
		ID: "inventory-not-partially-truncated", Category: Hardware, Warns: true, Needs: Inventory, Func: inventoryWhole,
		About: "No part of the inventory was left out because it is too large.",
	},
	{
		ID: "inventory-not-fully-truncated", Category: Hardware, Blocks: true, Needs: Inventory, Func: inventoryFits,
		About: "Disks and networks were not left out of the inventory because it is too large.",
	},
	{ID: "has-min-cpu-cores", Category: Hardware, Blocks: true, Needs: Inventory, Func: enoughCPUs, About: "The host has the CPU cores that every host needs."},
	{ID: "has-min-memory", Category: Hardware, Blocks: true, Needs: Inventory, Func: enoughMemory, About: "The host has the memory that every host needs."},
	{ID: "has-min-valid-disks", Category: Hardware, Blocks: true, Needs: Inventory, Func: diskLargeEnough, About: "A disk can be installed to that is large enough for the role."},
	{ID: "has-cpu-cores-for-role", Category: Hardware, Needs: Inventory, Func: enoughCPUsForRole, About: "The host has the CPU cores that its role needs."},
	{ID: "has-memory-for-role", Category: Hardware, Needs: Inventory, Func: enoughMemoryForRole, About: "The host has the memory that its role needs."},
	{
		ID: "hostname-valid", Category: Hardware, Blocks: true, Needs: Inventory, Func: hostnameValid,
		About: "The host name is a DNS name in lower case and not localhost. In a cluster it has at most 63 characters.",
	},
	{ID: "no-skip-missing-disk", Category: Hardware, Needs: Inventory, Func: diskExists, About: "The disk that a user chose exists and can be installed to."},
	{
		ID: "no-skip-installation-disk", Category: Hardware, Needs: Inventory, Func: diskMayBeWritten,
		About: "The installation disk is not one that must not be formatted.",
	},
	{ID: "compatible-agent", Category: Hardware, Func: agentInstalls, About: "The agent can install, or the service has the installer image that it needs."},
	{ID: DiskSpeed, Category: Hardware, Func: diskFast, About: "The agent measured the installation disk and found it fast enough."},
}

func connected(in *Input) Outcome {
	return passes(in.Connected, "Host is connected", "Host is disconnected")
}

func mediaConnected(in *Input) Outcome {
	return passes(in.MediaConnected, "Media device is connected", "Media device is disconnected")
}

func hasInventory(in *Input) Outcome {
	bad := "Inventory has not been received for the host"
	if in.Twin != "" {
		bad = "Two machines report as this host: " + in.Twin + "; give one of them a serial number or a host id of its own, or switch it off"
	}
	if in.Summary.Hash == "" {
		return pending(bad)
	}
	return passes(in.Twin == "", "Valid inventory exists for the host", bad)
}

func inventoryWhole(in *Input) Outcome {
	return passes(in.Summary.Truncation != "partial", "The inventory is whole", "The inventory is too large: parts of it are left out")
}

func inventoryFits(in *Input) Outcome {
	return passes(in.Summary.Truncation != "full", "The inventory fits", "The inventory is too large: disks and networks are unknown")
}

func enoughCPUs(in *Input) Outcome {
	return passes(in.Summary.CPUCount >= in.Least.CPUs, "Sufficient CPU cores", fmt.Sprintf("The host has %d CPU cores, but at least %d are needed", in.Summary.CPUCount, in.Least.CPUs))
}

func enoughMemory(in *Input) Outcome {
	return passes(enough(in.Summary.MemoryBytes, in.Least.MemoryGiB), "Sufficient minimum RAM",
		fmt.Sprintf("The host has %d MiB of memory, but at least %d GiB are needed", in.Summary.MemoryBytes>>20, in.Least.MemoryGiB))
}

// enough tolerates what firmware keeps for itself.
func enough(bytes, gib int64) bool { return bytes+(bytes>>5)+(64<<20) >= gib<<30 }

func enoughCPUsForRole(in *Input) Outcome {
	return passes(in.Summary.CPUCount >= in.ForRole.CPUs, "Sufficient CPU cores for role "+in.Role,
		fmt.Sprintf("The host has %d CPU cores, but role %s needs at least %d", in.Summary.CPUCount, in.Role, in.ForRole.CPUs))
}

func enoughMemoryForRole(in *Input) Outcome {
	return passes(enough(in.Summary.MemoryBytes, in.ForRole.MemoryGiB), "Sufficient RAM for role "+in.Role,
		fmt.Sprintf("The host has %d MiB of memory, but role %s needs at least %d GiB", in.Summary.MemoryBytes>>20, in.Role, in.ForRole.MemoryGiB))
}

func diskLargeEnough(in *Input) Outcome {
	bad := fmt.Sprintf("No disk can be installed to: one of at least %d GB is needed", in.ForRole.DiskGB)
	if in.chose() {
		bad = fmt.Sprintf("The disk that was chosen for the installation has %d GB, but at least %d GB are needed: choose another", in.Target.SizeBytes/1e9, in.ForRole.DiskGB)
	}
	missing := !in.Found && in.chose() // another validation says so
	return passes(missing || in.Target.SizeBytes >= in.ForRole.DiskGB*1e9, "Sufficient disk capacity", bad)
}

var hostnamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

// mostInCluster is how long a host name may be in a cluster: it is a label of its Node, and the kernel has no room for more. A free host may get a shorter one when it is bound.
const mostInCluster = 63

func hostnameValid(in *Input) Outcome {
	name := in.Hostname
	if in.Cluster != nil && len(name) > mostInCluster {
		return passes(false, "", fmt.Sprintf("Hostname %q is not allowed: it has %d characters, and a node has at most %d; set a shorter one", name, len(name), mostInCluster))
	}
	ok := len(name) <= 253 && hostnamePattern.MatchString(name) && name != "localhost" && !strings.HasPrefix(name, "localhost.")
	return passes(ok, "Hostname "+name+" is allowed",
		fmt.Sprintf("Hostname %q is not allowed: set a name of lower-case letters, digits, hyphens and dots that is not localhost", name))
}

func diskExists(in *Input) Outcome {
	return passes(in.Found || !in.chose(), "The installation disk exists", "The disk that was chosen for the installation does not exist on the host, or cannot be installed to")
}

func diskMayBeWritten(in *Input) Outcome {
	return passes(!in.Found || !in.keeps(in.Target), "The installation disk may be written to",
		"The disk that the host would be installed to is one that must not be formatted: choose another, or let it be formatted")
}

func agentInstalls(in *Input) Outcome {
	return passes(!in.NoInstaller, "The agent can install the host",
		"Agent "+in.AgentVersion+" installs with a container image, and this service has none: configure one, or boot a discovery image of this service")
}

func diskFast(in *Input) Outcome {
	return passes(in.Checks.DiskSpeed != Refused, "Speed of installation disk is sufficient, or has not been measured", "The installation disk is too slow")
}

// chose is true where the user chose a disk.
func (s *Subject) chose() bool { return s.DiskID != "" || s.DiskPath != "" }

// keeps is true for a disk that is not to be written to.
func (s *Subject) keeps(t hardware.Target) bool {
	return slices.Contains(s.KeptDisks, t.ID) || slices.Contains(s.KeptDisks, t.Path)
}

// Disk is the disk that would be installed to: the chosen one, else the best of those that are large enough and may be written to. ok is false where there is none. Clients choose a
// disk by its id or by its path in either field.
func Disk(s Subject, minimums Minimums) (target hardware.Target, ok bool) {
	for _, t := range s.Summary.Targets {
		if chosen := cmp.Or(s.DiskPath, s.DiskID); chosen != "" {
			ok = chosen == t.ID || chosen == t.Path
		} else {
			ok = t.SizeBytes >= minimums.of(s.Role).DiskGB*1e9 && !s.keeps(t)
		}
		if ok {
			return t, true
		}
	}
	return hardware.Target{}, false
}
