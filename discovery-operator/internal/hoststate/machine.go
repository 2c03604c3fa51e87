// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hoststate

import (
	"errors"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// ErrNetwork says that the network data of a host's ramdisk cannot be used.
var ErrNetwork = errors.New("the network data of the ramdisk cannot be used")

// Machine is what a node says of its machine, for whatever Ironic does with it: an inspection, a cleaning, a deployment. An empty field is left as the node has it.
type Machine struct {
	// BootMode is that of the host, Architecture is the one of its CPU.
	BootMode, Architecture string
	// Network is the network data of ramdisks that are booted as virtual media, in the form of OpenStack.
	Network map[string]any
}

// MachineOf reads what a host says of its machine. The network data is in a Secret.
func MachineOf(h *metal3v1.BareMetalHost) Machine {
	return Machine{BootMode: h.Spec.BootMode, Architecture: h.Spec.Architecture}
}

const (
	keyBootMode   = "boot_mode"
	keySecureBoot = "secure_boot"
	keyCPU        = "cpu_arch"
)

// bootCapabilities are the capabilities of a node by the boot mode of its host.
var bootCapabilities = map[string]string{
	"UEFI": keyBootMode + ":uefi", "UEFISecureBoot": keyBootMode + ":uefi," + keySecureBoot + ":true", "legacy": keyBootMode + ":bios",
}

// Properties are the properties that a node lacks. Capabilities that an inspection or an administrator has set are kept.
func (m Machine) Properties(n Node) map[string]string {
	out := map[string]string{}
	set := func(key, value string) {
		if have, _ := n.Properties[key].(string); value != "" && value != have {
			out[key] = value
		}
	}
	set(keyCPU, m.Architecture)
	if boot := bootCapabilities[m.BootMode]; boot != "" {
		var kept []string
		have, _ := n.Properties[keyCapability].(string)
		for part := range strings.SplitSeq(have, ",") {
			if key, _, _ := strings.Cut(part, ":"); key != "" && key != keyBootMode && key != keySecureBoot {
				kept = append(kept, part)
			}
		}
		set(keyCapability, strings.Join(append(kept, boot), ","))
	}
	return out
}
