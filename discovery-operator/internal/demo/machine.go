// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
)

// MAC is the hardware address of interface nic of machine i.
func MAC(i, nic int) string {
	return fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", nic, i>>16&255, i>>8&255, i&255)
}

// rack is how many machines are at one switch.
const rack = 40

// Switch is the chassis and the name of the switch of machine i, and the port of its first interface.
func Switch(i int) (chassis, name, port string) {
	n := (i - 1) / rack
	return fmt.Sprintf("02:00:5e:00:%02x:%02x", n>>8&255, n&255), fmt.Sprintf("rack%04d-leaf", n+1), fmt.Sprintf("Ethernet1/%d", (i-1)%rack+1)
}

// Machine is what machine number i reports: two interfaces, of which the first has a switch, two disks, a serial number and a management controller.
func Machine(i int, change ...func(map[string]any)) []byte {
	low := fmt.Sprintf("%d.%d.%d", i>>16&255, i>>8&255, i&255)
	inv := map[string]any{
		"hostname": fmt.Sprintf("node-%05d", i),
		"system_vendor": map[string]any{
			"manufacturer": "Example Corp", "product_name": "Server 1U", "serial_number": fmt.Sprintf("SN%08d", i),
			"firmware": map[string]any{"vendor": "Example Corp", "version": "1.0.0", "build_date": "01/01/2026"},
		},
		"cpu": map[string]any{
			"model_name": "Example CPU", "frequency": "2000", "count": 16, "architecture": "x86_64", "flags": []string{"vmx", "aes"},
		},
		"memory":      map[string]any{"physical_mb": 64 << 10},
		"boot":        map[string]any{"current_boot_mode": "uefi", "pxe_interface": MAC(i, 0)},
		"bmc_address": "172." + low,
		"interfaces": []any{
			map[string]any{
				"name": "eno1", "mac_address": MAC(i, 0), "has_carrier": true, "ipv4_address": "10." + low, "vendor": "0x15b3",
				"product": "0x1017", "speed_mbps": 25000, "pci_address": "0000:3b:00.0",
			},
			map[string]any{
				"name": "eno2", "mac_address": MAC(i, 1), "has_carrier": false, "vendor": "0x15b3", "product": "0x1017",
				"speed_mbps": 25000, "pci_address": "0000:3b:00.1",
			},
		},
		"disks": []any{
			map[string]any{
				"name": "/dev/nvme0n1", "by_path": "/dev/disk/by-path/pci-0000:31:00.0-nvme-1", "model": "Example NVMe",
				"size": int64(960_000_000_000), "rotational": false, "serial": fmt.Sprintf("D%08d-0", i),
			},
			map[string]any{
				"name": "/dev/sda", "model": "Example disk", "size": int64(4_000_000_000_000), "rotational": true,
				"serial": fmt.Sprintf("D%08d-1", i), "hctl": "0:0:0:0",
			},
		},
	}
	for _, c := range change {
		c(inv)
	}
	chassis, name, port := Switch(i)
	lldp := map[string]any{"switch_chassis_id": chassis, "switch_system_name": name, "switch_port_id": port, "switch_port_untagged_vlan_id": 101}
	data, err := json.Marshal(map[string]any{
		"inventory": inv, "boot_interface": nil, "error": nil, "parsed_lldp": map[string]any{"eno1": lldp},
	})
	if err != nil {
		panic(err) // the value above is JSON
	}
	return data
}
