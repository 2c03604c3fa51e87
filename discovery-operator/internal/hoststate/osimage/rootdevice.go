// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package osimage

import (
	"fmt"
	"strings"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// RootDevice writes hints as Ironic reads them.
func RootDevice(h *metal3v1.RootDeviceHints) map[string]any {
	out := map[string]any{}
	if h == nil {
		return out
	}
	set := func(key, operator, value string) {
		if value != "" {
			out[key] = operator + " " + value
		}
	}
	name := "name"
	if strings.HasPrefix(h.DeviceName, "/dev/disk/by-path/") {
		name = "by_path"
	}
	set(name, "s==", h.DeviceName)
	set("hctl", "s==", h.HCTL)
	set("model", "<in>", h.Model)
	set("vendor", "<in>", h.Vendor)
	set("serial", "s==", h.SerialNumber)
	set("wwn", "s==", h.WWN)
	set("wwn_with_extension", "s==", h.WWNWithExtension)
	set("wwn_vendor_extension", "s==", h.WWNVendorExtension)
	if h.MinSizeGigabytes > 0 {
		out["size"] = fmt.Sprintf(">= %d", h.MinSizeGigabytes)
	}
	if h.Rotational != nil {
		out["rotational"] = fmt.Sprint(*h.Rotational)
	}
	return out
}
