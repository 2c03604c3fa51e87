// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

func good() validate.Subject {
	return validate.Subject{
		ID: "1", Connected: true, MediaConnected: true, Hostname: "n1", Role: "worker",
		Summary: hardware.Summary{
			Hash: "x", Hostname: "n1", CPUArchitecture: "x86_64", CPUCount: 8, MemoryBytes: 32 << 30, Addresses: []string{"192.0.2.7/24"}, DefaultRoute: true,
			Targets: []hardware.Target{{ID: "a", Path: "/dev/sda", SizeBytes: 200e9}},
		},
	}
}

func around() *validate.Surroundings {
	return &validate.Surroundings{
		Name: "c", BaseDomain: "example.com", CPUArchitecture: "x86_64", MachineNetworks: []string{"192.0.2.0/24"},
		Hostnames: map[string]string{"1": "n1", "2": "n2", "3": "n3", "4": "n4"},
	}
}

func TestValidations(t *testing.T) {
	for _, c := range []struct {
		name string
		// id is of the only validation that is not a success; empty for none.
		id     string
		status validate.Status
		change func(*validate.Subject, *validate.Surroundings)
		// blocksFree says that such a host is not ready to be bound.
		blocksFree bool
	}{
		{"a good host", "", "", func(*validate.Subject, *validate.Surroundings) {}, false},
		{"silent", "connected", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Connected = false }, true},
		{"medium lost", "media-connected", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.MediaConnected = false }, true},
		{"one CPU too few for the role", "has-cpu-cores-for-role", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Role, s.Summary.CPUCount = "master", 3 }, false},
		{"too little memory for the role", "has-memory-for-role", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Role, s.Summary.MemoryBytes = "master", 12<<30 }, false},
		{"no disk", "has-min-valid-disks", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.Targets = nil }, true},
		{"a disk that is gone", "no-skip-missing-disk", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.DiskID = "b" }, false},
		{"localhost", "hostname-valid", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Hostname = "localhost" }, true},
		{"a name with capitals", "hostname-valid", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Hostname = "Node" }, true},
		{"no time", "ntp-synced", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.NTP = []validate.NTPSource{{Name: "a", State: "unreachable"}}
		}, false},
		{"a wrong clock", "time-synced-between-host-and-service", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.ClockSkewSeconds = 3600 }, false},
		{"no gateway", "has-default-route", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.DefaultRoute = false }, false},
		{"a registry that refuses", "container-images-available", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Registry = validate.Refused }, false},
		{"a cut inventory", "inventory-not-partially-truncated", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.Truncation = "partial" }, false},
		{"a name that is taken", "hostname-unique", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.Hostnames["2"] = "n1" }, false},
		{"another network", "belongs-to-machine-cidr", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.MachineNetworks = []string{"198.51.100.0/24"} }, false},
		{"no network", "machine-cidr-defined", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.MachineNetworks = nil }, false},
		{"another architecture", "compatible-with-cluster-platform", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.CPUArchitecture = "aarch64" }, false},
		{"a lonely host", "belongs-to-majority-group", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Unreachable = []string{"2", "3"} }, false},
		{"one neighbour away", "", "", func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Unreachable = []string{"2", "gone"} }, false},
		{"a wildcard", "dns-wildcard-not-configured", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Checks.Domains = map[string]bool{"wildcard": true}
		}, false},
		{"an unknown API", "api-domain-name-resolved-correctly", validate.Failure, func(s *validate.Subject, c *validate.Surroundings) {
			c.UserManagedNetworking, s.Checks.Domains = true, map[string]bool{"api": false}
		}, false},
		{"an ignored failure", "has-default-route", validate.Disabled, func(s *validate.Subject, c *validate.Surroundings) {
			s.Summary.DefaultRoute, c.Ignored = false, []string{"has-default-route"}
		}, false},
		{"a failure that cannot be ignored", "connected", validate.Failure, func(s *validate.Subject, c *validate.Surroundings) {
			s.Connected, c.Ignored = false, []string{"connected"}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			subject, cluster := good(), around()
			c.change(&subject, cluster)
			results := validate.Host(subject, cluster, validate.DefaultMinimums)
			for _, r := range results {
				assert.NotEmpty(t, r.Message, r.ID)
				want := validate.Success
				if r.ID == c.id {
					want = c.status
				}
				assert.Equal(t, want, r.Status, "%s: %s", r.ID, r.Message)
			}
			assert.Equal(t, c.id == "" || c.status == validate.Disabled || c.id == "inventory-not-partially-truncated", validate.Sufficient(results, true))
			free := validate.Host(subject, nil, validate.DefaultMinimums)
			assert.Equal(t, !c.blocksFree, validate.Sufficient(free, false))
			assert.Less(t, len(free), len(results), "a free host is not asked about clusters")
		})
	}
}

func TestAnUnknownMachineIsPending(t *testing.T) {
	results := validate.Host(validate.Subject{ID: "1", Connected: true, MediaConnected: true}, around(), validate.DefaultMinimums)
	assert.False(t, validate.Sufficient(results, true))
	assert.True(t, slices.ContainsFunc(results, func(r validate.Result) bool { return r.ID == "has-inventory" && r.Status == validate.Pending }))
	assert.False(t, slices.ContainsFunc(results, func(r validate.Result) bool { return r.Status == validate.Failure }))
}

func TestTheDisk(t *testing.T) {
	s := good()
	s.Summary.Targets = append(s.Summary.Targets, hardware.Target{ID: "b", Path: "/dev/sdb"})
	disk, ok := validate.Disk(s)
	assert.True(t, ok)
	assert.Equal(t, "/dev/sda", disk.Path)
	s.DiskPath = "/dev/sdb"
	disk, ok = validate.Disk(s)
	assert.True(t, ok)
	assert.Equal(t, "b", disk.ID)
	s.DiskPath = "/dev/sdz"
	_, ok = validate.Disk(s)
	assert.False(t, ok)
}
