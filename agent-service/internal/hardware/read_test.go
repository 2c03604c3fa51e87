// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hardware_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// now is when inventories are read.
var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func machine(change func(*hardware.Inventory)) string {
	inventory := hardware.Inventory{
		Hostname: "n1", CPU: hardware.CPU{Architecture: "x86_64", Count: 8}, Memory: hardware.Memory{PhysicalBytes: 32 << 30},
		Disks:      []hardware.Disk{{Name: "sda", ID: "/dev/disk/by-id/1", Path: "/dev/sda", SizeBytes: 200e9, InstallationEligibility: hardware.Eligibility{Eligible: true}}},
		Interfaces: []hardware.Interface{{Name: "eth0", MACAddress: "52:54:00:00:00:01", IPV4Addresses: []string{"192.0.2.7/24"}}},
	}
	change(&inventory)
	output, err := json.Marshal(inventory)
	if err != nil {
		panic(err)
	}
	return string(output)
}

func TestNoPartOfAnInventoryIsKeptBeyondTheBound(t *testing.T) {
	for _, size := range []int{400 << 10, 6 << 20} {
		large := strings.Repeat("a", size)
		for what, change := range map[string]func(*hardware.Inventory){
			"a command line":        func(i *hardware.Inventory) { i.Boot.CommandLine = large },
			"a boot mode":           func(i *hardware.Inventory) { i.Boot.CurrentBootMode = large },
			"a hostname":            func(i *hardware.Inventory) { i.Hostname = large },
			"a model":               func(i *hardware.Inventory) { i.CPU.ModelName = large },
			"an architecture":       func(i *hardware.Inventory) { i.CPU.Architecture = large },
			"a method":              func(i *hardware.Inventory) { i.Memory.PhysicalBytesMethod = large },
			"a product":             func(i *hardware.Inventory) { i.SystemVendor.ProductName = large },
			"an address":            func(i *hardware.Inventory) { i.Interfaces[0].MACAddress = large },
			"a network":             func(i *hardware.Inventory) { i.Interfaces[0].IPV4Addresses = []string{large} },
			"a disk":                func(i *hardware.Inventory) { i.Disks[0].ID = large },
			"a path":                func(i *hardware.Inventory) { i.Disks[0].Path = large },
			"a management address":  func(i *hardware.Inventory) { i.BMCAddress = large },
			"a module":              func(i *hardware.Inventory) { i.TPMVersion = large },
			"a reason":              func(i *hardware.Inventory) { i.Truncation = &hardware.Truncation{Reasons: []string{large}} },
			"a kind of truncation":  func(i *hardware.Inventory) { i.Truncation = &hardware.Truncation{Type: large} },
			"a route":               func(i *hardware.Inventory) { i.Routes = []hardware.Route{{Destination: large}} },
			"a flag of a processor": func(i *hardware.Inventory) { i.CPU.Flags = []string{large} },
		} {
			kept, summary, err := hardware.Read(machine(change), now)
			require.NoError(t, err, what)
			assert.LessOrEqual(t, len(kept), hardware.MaxBytes, what)
			short, err := json.Marshal(summary)
			require.NoError(t, err)
			assert.Less(t, len(short), 4<<10, what)
			assert.Equal(t, int64(8), summary.CPUCount, what)
			assert.Equal(t, 1, summary.DiskCount, what)
			if len(kept) < size {
				assert.NotEmpty(t, summary.Truncation, what)
			}
		}
	}
	_, summary, err := hardware.Read(machine(func(i *hardware.Inventory) { i.Boot.CommandLine = strings.Repeat("a", 6<<20) }), now)
	require.NoError(t, err)
	assert.Len(t, summary.Targets, 1, "a long command line costs no disks")
}

func TestReportsOfAMachineThatStaysAsItIsHaveOneHash(t *testing.T) {
	// smart is what smartctl prints of a disk with --json=c.
	smart := func(asctime string, temperature, hours int, passed bool) string {
		return fmt.Sprintf(`{"json_format_version":[1,0],"local_time":{"asctime":%q},"smart_status":{"passed":%t},"temperature":{"current":%d},"power_on_time":{"hours":%d}}`,
			asctime, passed, temperature, hours)
	}
	hash := func(change func(*hardware.Inventory)) string {
		_, summary, err := hardware.Read(machine(change), now)
		require.NoError(t, err)
		return summary.Hash
	}
	first := hash(func(i *hardware.Inventory) {
		i.Timestamp, i.CPU.Frequency, i.Disks[0].Smart = 1_800_000_000, 2394.4, smart("Fri Jan 15 08:00:00 2027 UTC", 31, 900, true)
	})
	assert.Equal(t, first, hash(func(i *hardware.Inventory) {
		i.Timestamp, i.CPU.Frequency, i.Disks[0].Smart = 1_800_000_060, 1200.1, smart("Fri Jan 15 08:01:00 2027 UTC", 32, 901, true)
	}), "clock, frequency, counters and temperature")
	assert.Equal(t, first, hash(func(*hardware.Inventory) {}), "nothing of it")
	assert.NotEqual(t, first, hash(func(i *hardware.Inventory) { i.Disks[0].Smart = smart("Fri Jan 15 08:02:00 2027 UTC", 32, 901, false) }), "a disk that fails")
	assert.NotEqual(t, first, hash(func(i *hardware.Inventory) { i.Disks[0].SizeBytes++ }), "another disk")
}

func TestDisksOfTheMachineAreCountedBeforeListsAreCut(t *testing.T) {
	disk := func(name string, change ...func(*hardware.Disk)) hardware.Disk {
		d := hardware.Disk{Name: name, Serial: "S-" + name, SizeBytes: 1e9}
		for _, one := range change {
			one(&d)
		}
		return d
	}
	_, summary, err := hardware.Read(machine(func(i *hardware.Inventory) {
		i.Disks = []hardware.Disk{
			disk("sda"), disk("sdb", func(d *hardware.Disk) { d.Holders = "md0" }), disk("sdc", func(d *hardware.Disk) { d.Removable = true }),
			disk("sdd", func(d *hardware.Disk) { d.IsInstallationMedia = true }), disk("sde", func(d *hardware.Disk) { d.ISCSI = json.RawMessage(`{"host_ip_address":"192.0.2.1"}`) }),
			disk("sdf", func(d *hardware.Disk) { d.Remote = true }), disk("sdg", func(d *hardware.Disk) { d.DriveType = "ODD" }), disk("sdh", func(d *hardware.Disk) { d.ISCSI = json.RawMessage(`null`) }),
			disk("md0"), disk("nbd0"), disk("sr0"), disk("mmcblk0"),
		}
	}), now)
	require.NoError(t, err)
	var serials []string
	for _, one := range summary.Fixed {
		serials = append(serials, one.Serial)
	}
	assert.Equal(t, []string{"S-sda", "S-sdb", "S-sdh", "S-mmcblk0"}, serials)
	assert.Equal(t, 4, *summary.FixedDisks)
	assert.Empty(t, summary.Targets, "none can be installed to")
	for what, change := range map[string]func(*hardware.Inventory){
		"many": func(i *hardware.Inventory) { i.Disks = slices.Repeat([]hardware.Disk{disk("sda")}, 600) },
		"large": func(i *hardware.Inventory) {
			i.Disks = slices.Repeat([]hardware.Disk{disk("sda", func(d *hardware.Disk) { d.Model = strings.Repeat("m", 2000) })}, 600)
		},
	} {
		_, summary, err = hardware.Read(machine(change), now)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(summary.Fixed), 64, what)
		assert.Equal(t, 600, *summary.FixedDisks, what)
	}
}
