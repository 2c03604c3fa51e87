// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironic

import (
	"context"
	"net/netip"
	"net/url"
	"strings"

	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
)

// Ramdisk says where Ironic finds what machines boot to be inspected, cleaned and deployed. Empty fields are left to Ironic's own settings.
type Ramdisk struct {
	// Kernel and Initramfs are URLs, and of use together only. ISO is the URL of an image for machines that boot virtual media.
	Kernel, Initramfs, ISO string
	// ExternalV6 is the URL at which machines find Ironic whose management controller has an IPv6 address.
	ExternalV6 string
}

// info is what a node's driver_info has to say of it.
func (r Ramdisk) info(n hoststate.Node) map[string]string {
	info := map[string]string{}
	switch medium := strings.Contains(n.Boot, "virtual-media") || n.Boot == "redfish-https"; {
	case medium && r.ISO != "":
		info["deploy_iso"] = r.ISO
	case r.Kernel != "" && r.Initramfs != "":
		info["deploy_kernel"], info["deploy_ramdisk"] = r.Kernel, r.Initramfs
	}
	if r.ExternalV6 != "" && isV6(n) {
		info["external_http_url"] = r.ExternalV6
	}
	return info
}

// placeRamdisk writes to a node where its ramdisk is, unless the node says so. It fails with ErrBusy while Ironic works on the node.
func (c *Client) placeRamdisk(ctx context.Context, uuid string) error {
	if c.config.Ramdisk == (Ramdisk{}) {
		return nil
	}
	n, err := c.Managed(ctx, uuid)
	if err != nil {
		return err
	}
	patch := infos(n, c.config.Ramdisk.info(n))
	if len(patch) == 0 {
		return nil
	}
	return c.patch(ctx, updateNode, uuid, "", patch)
}

// isV6 reports whether the management controller of a node has an IPv6 address.
func isV6(n hoststate.Node) bool {
	host := n.Info["ipmi_address"]
	if u, err := url.Parse(n.Info["redfish_address"]); err == nil && u.Host != "" {
		host = u.Hostname()
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Is6() && !address.Is4In6()
}
