// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// maxInventory is how many bytes an inventory may have in a status: an object of the API has room for 1.5 MiB.
const maxInventory = 512 << 10

// Most that is kept of lists and strings, as the schema allows.
const (
	maxList      = 1024
	maxGPUs      = 128
	maxAddresses = 64
	maxText      = 1024
	maxReason    = 4096
)

// inventory is what an agent reported, in the words of the API. Long lists are cut.
func inventory(reported []byte, at time.Time) (agentv1.HostInventory, error) {
	if len(reported) == 0 {
		return agentv1.HostInventory{}, nil
	}
	var from hardware.Inventory
	if err := json.Unmarshal(reported, &from); err != nil {
		return agentv1.HostInventory{}, fmt.Errorf("reading an inventory: %w", err)
	}
	to := translate(&from)
	if !at.IsZero() {
		to.ReportTime = new(metav1.NewTime(at).Rfc3339Copy())
	}
	for limit := maxList; limit > 0; limit /= 2 {
		to.Disks, to.Interfaces = cut(to.Disks, limit), cut(to.Interfaces, limit)
		if encoded, err := json.Marshal(to); err != nil || len(encoded) <= maxInventory {
			return to, err
		}
	}
	return to, nil
}

func translate(from *hardware.Inventory) agentv1.HostInventory {
	to := agentv1.HostInventory{
		Hostname: text(from.Hostname), BmcAddress: text(from.BMCAddress), BmcV6Address: text(from.BMCV6Address),
		Boot: agentv1.Boot{CurrentBootMode: text(from.Boot.CurrentBootMode), PXEInterface: text(from.Boot.PXEInterface)},
		CPU: agentv1.CPU{
			Count: from.CPU.Count, ClockMegahertz: int64(from.CPU.Frequency), Flags: texts(from.CPU.Flags, maxList), ModelName: text(from.CPU.ModelName),
			Architecture: text(from.CPU.Architecture),
		},
		Memory: agentv1.Memory{PhysicalBytes: from.Memory.PhysicalBytes, UsableBytes: from.Memory.UsableBytes},
		SystemVendor: agentv1.SystemVendor{
			Manufacturer: text(from.SystemVendor.Manufacturer), ProductName: text(from.SystemVendor.ProductName), SerialNumber: text(from.SystemVendor.SerialNumber),
			Virtual: from.SystemVendor.Virtual,
		},
	}
	for _, d := range cut(from.Disks, maxList) {
		to.Disks = append(to.Disks, disk(d))
	}
	for _, i := range cut(from.Interfaces, maxList) {
		to.Interfaces = append(to.Interfaces, agentv1.Interface{
			Name: text(i.Name), MacAddress: text(i.MACAddress), IPV4Addresses: list(i.IPV4Addresses), IPV6Addresses: list(i.IPV6Addresses), Flags: list(i.Flags),
			HasCarrier: i.HasCarrier, Mtu: i.MTU, SpeedMbps: i.SpeedMbps, BiosDevName: text(i.BIOSDevName), ClientID: text(i.ClientID), Product: text(i.Product),
			Vendor: text(i.Vendor),
		})
	}
	for _, g := range cut(from.GPUs, maxGPUs) {
		to.Gpus = append(to.Gpus, agentv1.GPU{
			Address: text(g.Address), DeviceID: text(g.DeviceID), Name: text(g.Name), Vendor: text(g.Vendor), VendorID: text(g.VendorID),
		})
	}
	return to
}

func disk(d hardware.Disk) agentv1.Disk {
	to := agentv1.Disk{
		ID: text(d.ID), ByID: text(d.ByID), ByPath: text(d.ByPath), DriveType: text(d.DriveType), Hctl: text(d.HCTL), Model: text(d.Model), Name: text(d.Name),
		Path: text(d.Path), Serial: text(d.Serial), Vendor: text(d.Vendor), Wwn: text(d.WWN), Bootable: d.Bootable, SizeBytes: d.SizeBytes,
		InstallationEligibility: agentv1.InstallationEligibility{Eligible: d.InstallationEligibility.Eligible, NotEligibleReasons: []string{}},
	}
	for _, reason := range cut(d.InstallationEligibility.NotEligibleReasons, maxAddresses) {
		to.InstallationEligibility.NotEligibleReasons = append(to.InstallationEligibility.NotEligibleReasons, bound(reason, maxReason))
	}
	var performance struct {
		Sync int64 `json:"sync_duration"`
	}
	if json.Unmarshal(d.IOPerf, &performance) == nil {
		to.IoPerf.SyncDurationMilliseconds = performance.Sync
	}
	return to
}

func cut[T any](all []T, n int) []T { return all[:min(len(all), n)] }

func text(s string) string { return bound(s, maxText) }

// bound cuts a text to n characters.
func bound(s string, n int) string {
	if len(s) <= n {
		return s
	}
	characters := []rune(s)
	return string(cut(characters, n))
}

func texts(all []string, n int) []string {
	var kept []string
	for _, s := range cut(all, n) {
		kept = append(kept, text(s))
	}
	return kept
}

// list is never nil: the field is required.
func list(all []string) []string {
	return append([]string{}, texts(all, maxAddresses)...)
}
