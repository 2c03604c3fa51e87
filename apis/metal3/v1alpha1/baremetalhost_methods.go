// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
)

// HasPowerControl reports whether the host's power can be switched: only with both an address and credentials of a
// management controller. A host without power control is never powered on, powered off or rebooted.
func (h *BareMetalHost) HasPowerControl() bool {
	return h.Spec.BMC != nil && h.Spec.BMC.Address != "" && h.Spec.BMC.CredentialsName != ""
}

// NeedsHardwareInspection reports whether the host has to be inspected before it can be used: not when the hardware is
// known already, was provisioned by something else, or inspection is disabled.
func (h *BareMetalHost) NeedsHardwareInspection() bool {
	if h.Spec.ExternallyProvisioned || h.InspectionDisabled() {
		return false
	}
	return h.Status.HardwareDetails == nil
}

// InspectionDisabled reports whether the user does not want the host inspected, in the field or in the old annotation.
func (h *BareMetalHost) InspectionDisabled() bool {
	return h.Spec.InspectionMode == InspectionDisabled || h.Annotations[InspectAnnotation] == "disabled"
}

// InspectionRequested reports whether the user asks for the host to be inspected again, although its hardware may be known.
func (h *BareMetalHost) InspectionRequested() bool {
	_, asked := h.Annotations[InspectAnnotation]
	return asked && !h.InspectionDisabled()
}

// Detached reports whether the user has taken the host out of management.
func (h *BareMetalHost) Detached() bool {
	_, detached := h.Annotations[DetachedAnnotation]
	return detached
}

// DeletionDelayed reports whether the deletion of a machine in use waits for as long as its host is detached: the value of the annotation is {"deleteAction": "delay"}.
func (h *BareMetalHost) DeletionDelayed() bool {
	var arguments struct {
		DeleteAction string `json:"deleteAction"`
	}
	return json.Unmarshal([]byte(h.Annotations[DetachedAnnotation]), &arguments) == nil && arguments.DeleteAction == "delay" &&
		h.Status.Provisioning.State == StateProvisioned
}

// HasStatus reports whether the host's status has been written.
func (h *BareMetalHost) HasStatus() bool {
	return h.Status.LastUpdated != nil
}

// InUse reports whether the host has a consumer or something to deploy, so that discovery must not change it.
func (h *BareMetalHost) InUse() bool {
	return h.Spec.ConsumerRef != nil || h.Spec.Image != nil || h.Spec.CustomDeploy != nil || h.Spec.ExternallyProvisioned
}

// WantsDeployment reports whether something is to be deployed on the machine: an image, or what a method installs.
func (h *BareMetalHost) WantsDeployment() bool {
	return h.Spec.Online && !h.Spec.ExternallyProvisioned && (h.Spec.Image != nil && h.Spec.Image.URL != "" || h.Spec.CustomDeploy != nil)
}

// DeploymentRevoked reports whether what status.provisioning says is on the machine, or on its way there, is not wanted any more.
func (h *BareMetalHost) DeploymentRevoked() bool {
	method := h.Status.Provisioning.CustomDeploy.method()
	if method != "" && method != h.Spec.CustomDeploy.method() {
		return true
	}
	if recorded := h.Status.Provisioning.Image; recorded != nil && recorded.URL != "" {
		return h.Spec.Image == nil || h.Spec.Image.URL != recorded.URL
	}
	return h.Status.Provisioning.State == StateProvisioning && h.Spec.Image == nil && h.Spec.CustomDeploy == nil
}

// method is the name of a way to install a machine, empty where there is none.
func (c *CustomDeploy) method() string {
	if c == nil {
		return ""
	}
	return c.Method
}

// MACAddresses returns every MAC that the host is known by, in lower case, without repetition, the boot MAC first.
func (h *BareMetalHost) MACAddresses() []string {
	var macs []string
	seen := map[string]bool{"": true}
	add := func(mac string) {
		if mac = strings.ToLower(mac); !seen[mac] {
			seen[mac] = true
			macs = append(macs, mac)
		}
	}
	add(h.Spec.BootMACAddress)
	if h.Status.HardwareDetails != nil {
		for i := range h.Status.HardwareDetails.NIC {
			add(h.Status.HardwareDetails.NIC[i].MAC)
		}
	}
	return macs
}
