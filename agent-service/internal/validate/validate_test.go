// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate_test

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

var update = flag.Bool("update", false, "write the page of all validations again")

func TestThePageShowsTheList(t *testing.T) {
	path := filepath.Join("..", "..", "..", "docs", "validations.md")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(validate.Page()), 0o600))
	}
	page, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(page), validate.Page(), "run make generate, or go test ./internal/validate -update")
}

func TestEachValidationIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range validate.All() {
		assert.False(t, seen[v.ID], "%s is there twice", v.ID)
		seen[v.ID] = true
		assert.Contains(t, []string{validate.Hardware, validate.Network}, v.Category, v.ID)
		assert.True(t, strings.HasSuffix(v.About, "."), "%s is described in a sentence", v.ID)
		assert.NotNil(t, v.Func, v.ID)
		assert.False(t, v.Warns && (v.Blocks || v.Mandatory), "%s only warns", v.ID)
	}
	results := validate.Host(good(), around(), validate.DefaultMinimums)
	for i, v := range validate.All() {
		assert.Equal(t, v.ID, results[i].ID)
		assert.Equal(t, v.Category, results[i].Category)
	}
}

func good() validate.Subject {
	return validate.Subject{
		ID: "1", Key: "e/1", Connected: true, MediaConnected: true, Hostname: "n1", Role: "worker",
		Summary: hardware.Summary{
			Hash: "x", Hostname: "n1", CPUArchitecture: "x86_64", CPUCount: 8, MemoryBytes: 32 << 30, Addresses: []string{"192.0.2.7/24"}, DefaultRoute: true,
			Targets: []hardware.Target{{ID: "a", Path: "/dev/sda", SizeBytes: 200e9}},
		},
	}
}

func around() *validate.Surroundings {
	return &validate.Surroundings{
		Name: "c", BaseDomain: "example.com", CPUArchitecture: "x86_64", MachineNetworks: []string{"192.0.2.0/24"},
		Roles: map[string]string{"1": "worker", "2": "worker", "3": "master", "4": "worker"},
		Neighbours: map[string]validate.Neighbour{
			"e/1": {ID: "1", Hostname: "n1", Addresses: []string{"192.0.2.7/24"}, MACAddresses: []string{"a"}},
			"e/2": {ID: "2", Hostname: "n2", Addresses: []string{"192.0.2.8/24"}, MACAddresses: []string{"b"}},
			"e/3": {ID: "3", Hostname: "n3"}, "e/4": {ID: "4", Hostname: "n4"},
		},
	}
}

// off are validations of assisted-service that have nothing to look at here.
var off = []string{"ignition-downloadable", "release-domain-name-resolved-correctly", "disk-encryption-requirements-satisfied", "vsphere-disk-uuid-enabled"}

// ours are validations that assisted-service does not have.
var ours []string

// TestValidationsOfAssistedServiceAreThere, but for those of operators, which are not installed.
func TestValidationsOfAssistedServiceAreThere(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "api", "testdata", "assisted.yaml"))
	require.NoError(t, err)
	var published struct {
		Definitions map[string]struct {
			Enum []string `json:"enum"`
		} `json:"definitions"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &published))
	ids := published.Definitions["host-validation-id"].Enum
	require.NotEmpty(t, ids)
	var here []string
	for _, r := range validate.Host(good(), around(), validate.DefaultMinimums) {
		here = append(here, r.ID)
	}
	for _, id := range ids {
		if !strings.HasSuffix(id, "-requirements-satisfied") || id == "disk-encryption-requirements-satisfied" {
			assert.Contains(t, here, id)
		}
	}
	assert.Subset(t, append(ids, ours...), here, "name a validation that assisted-service does not have in ours")
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
		{"disks that are too small", "has-min-valid-disks", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.Targets[0].SizeBytes = 99e9 }, true},
		{"a chosen disk that is too small", "has-min-valid-disks", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Summary.Targets, s.DiskID = append(s.Summary.Targets, hardware.Target{ID: "b", Path: "/dev/sdb", SizeBytes: 4e9}), "b"
		}, true},
		{"a small disk beside a large one", "", "", func(s *validate.Subject, _ *validate.Surroundings) {
			s.Summary.Targets = []hardware.Target{{ID: "b", Path: "/dev/sdb", SizeBytes: 4e9}, s.Summary.Targets[0]}
		}, false},
		{"a disk that is gone", "no-skip-missing-disk", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.DiskID = "b" }, false},
		{"localhost", "hostname-valid", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Hostname = "localhost" }, true},
		{"a name that no Node can have", "hostname-valid", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Hostname = strings.Repeat("a", 31) + "." + strings.Repeat("b", 32)
		}, false},
		{"the longest name that a Node can have", "", "", func(s *validate.Subject, _ *validate.Surroundings) {
			s.Hostname = strings.Repeat("a", 31) + "." + strings.Repeat("b", 31)
		}, false},
		{"a name with capitals", "hostname-valid", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Hostname = "Node" }, true},
		{"no time", "ntp-synced", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.NTP = []validate.NTPSource{{Name: "a", State: "unreachable"}}
		}, false},
		{"a wrong clock", "time-synced-between-host-and-service", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.ClockSkewSeconds = 3600 }, false},
		{"no gateway", "has-default-route", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.DefaultRoute = false }, false},
		{"a registry that refuses", "container-images-available", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Registry = validate.Refused }, false},
		{"a cut inventory", "inventory-not-partially-truncated", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.Truncation = "partial" }, false},
		{"a name that is taken", "hostname-unique", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) {
			c.Neighbours["e/2"] = validate.Neighbour{ID: "2", Hostname: "n1"}
		}, false},
		{"another network", "belongs-to-machine-cidr", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.MachineNetworks = []string{"198.51.100.0/24"} }, false},
		{"no network", "machine-cidr-defined", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.MachineNetworks = nil }, false},
		{"another architecture", "compatible-with-cluster-platform", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.CPUArchitecture = "aarch64" }, false},
		{"a lonely host", "belongs-to-majority-group", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Unreachable = []string{"2", "3"} }, false},
		{"one neighbour away", "", "", func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Unreachable = []string{"2", "gone"} }, false},
		{"a disk that must not be formatted", "no-skip-installation-disk", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.DiskID, s.KeptDisks = "a", []string{"a"} }, false},
		{"no other disk than one that must not be formatted", "has-min-valid-disks", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.KeptDisks = []string{"a"} }, true},
		{"an agent that cannot install", "compatible-agent", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.AgentVersion, s.NoInstaller = "agent:1", true }, false},
		{"a neighbour of its role that answers late", "sufficient-network-latency-requirement-for-role", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Checks.Slow = map[string]int{"2": 1010}
		}, false},
		{"a neighbour that answers in time for its role", "", "", func(s *validate.Subject, _ *validate.Surroundings) {
			s.Checks.Slow = map[string]int{"2": 990, "3": 5000}
		}, false},
		{"lost packets", "sufficient-packet-loss-requirement-for-role", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.Lossy = map[string]int{"2": 11} }, false},
		{"lost packets of a master", "sufficient-packet-loss-requirement-for-role", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Role, s.Checks.Lossy = "master", map[string]int{"3": 1}
		}, false},
		{"another MTU", "mtu-valid", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Checks.ShortMTU = []string{"2", "gone"} }, false},
		{"networks that overlap", "non-overlapping-subnets", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) { c.ClusterNetworks = []string{"192.0.0.0/16"} }, false},
		{"an address that is taken", "no-ip-collisions-in-network", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) {
			c.Neighbours["e/2"] = validate.Neighbour{ID: "2", Addresses: []string{"192.0.2.7/24"}, MACAddresses: []string{"b"}}
		}, false},
		{"an address that a host of the same id has, from another InfraEnv", "no-ip-collisions-in-network", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) {
			c.Neighbours["f/1"] = validate.Neighbour{ID: "1", Addresses: []string{"192.0.2.7/24"}, MACAddresses: []string{"b"}}
		}, false},
		{"the name of a host of the same id, from another InfraEnv", "hostname-unique", validate.Failure, func(_ *validate.Subject, c *validate.Surroundings) {
			c.Neighbours["f/1"] = validate.Neighbour{ID: "1", Hostname: "n1"}
		}, false},
		{"link-local addresses may repeat", "", "", func(s *validate.Subject, c *validate.Surroundings) {
			s.Summary.Addresses = append(s.Summary.Addresses, "fe80::1/64")
			c.Neighbours["e/2"] = validate.Neighbour{ID: "2", Addresses: []string{"fe80::1/64"}, MACAddresses: []string{"b"}}
		}, false},
		{"a cloud that guards addresses", "valid-platform-network-settings", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) { s.Summary.ProductName = "OpenStack Compute" }, false},
		{"a disk behind the machine network", "no-iscsi-nic-belongs-to-machine-cidr", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Summary.Targets[0].ISCSIAddress = "192.0.2.7"
		}, false},
		{"a wildcard", "dns-wildcard-not-configured", validate.Failure, func(s *validate.Subject, _ *validate.Surroundings) {
			s.Checks.Domains = map[string]bool{"wildcard": true}
		}, false},
		{"an API that was not asked about", "api-domain-name-resolved-correctly", validate.Pending, func(s *validate.Subject, c *validate.Surroundings) {
			c.UserManagedNetworking, s.Checks.Domains = true, map[string]bool{"api-int": true, "apps": true}
		}, false},
		{"names that a cluster without a domain does not have", "", "", func(_ *validate.Subject, c *validate.Surroundings) {
			c.BaseDomain, c.DayTwo, c.UserManagedNetworking = "", true, true
		}, false},
		{"an API without a probe", "ignition-downloadable", validate.Pending, func(_ *validate.Subject, c *validate.Surroundings) {
			c.DayTwo, c.APIAddress = true, "192.0.2.100"
		}, false},
		{"an API that is not reached", "ignition-downloadable", validate.Failure, func(s *validate.Subject, c *validate.Surroundings) {
			c.DayTwo, c.APIAddress, s.Checks.API = true, "192.0.2.100", validate.Refused
		}, false},
		{"an API that is reached, without names", "ignition-downloadable", validate.Success, func(s *validate.Subject, c *validate.Surroundings) {
			c.DayTwo, c.APIAddress, s.Checks.API, s.Checks.Domains = true, "192.0.2.100", validate.Passed, map[string]bool{"api": false, "api-int": false, "apps": false}
		}, false},
		{"an unknown API", "api-domain-name-resolved-correctly", validate.Failure, func(s *validate.Subject, c *validate.Surroundings) {
			c.UserManagedNetworking, s.Checks.Domains = true, map[string]bool{"api": false, "api-int": true, "apps": true}
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
				if slices.Contains(off, r.ID) {
					want = validate.Disabled
				}
				if r.ID == c.id {
					want = c.status
				}
				assert.Equal(t, want, r.Status, "%s: %s", r.ID, r.Message)
			}
			assert.Equal(t, c.id == "" || c.status == validate.Disabled || c.status == validate.Success || c.id == "inventory-not-partially-truncated", validate.Sufficient(results, true))
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
	s.Summary.Targets = append([]hardware.Target{{ID: "b", Path: "/dev/sdb", SizeBytes: 4e9}}, s.Summary.Targets...)
	disk := func() string {
		target, _ := validate.Disk(s, validate.DefaultMinimums)
		return target.Path
	}
	assert.Equal(t, "/dev/sda", disk(), "a disk that is too small is not installed to")
	s.DiskPath = "/dev/sdb"
	assert.Equal(t, "/dev/sdb", disk(), "the user chose it, and a validation fails")
	s.DiskPath = "b"
	assert.Equal(t, "/dev/sdb", disk(), "a path may be an id")
	s.DiskPath, s.DiskID = "", "/dev/sdb"
	assert.Equal(t, "/dev/sdb", disk(), "an id may be a path")
	s.DiskPath, s.DiskID = "/dev/sdz", ""
	assert.Empty(t, disk())
	s.DiskPath, s.Summary.Targets[1].SizeBytes = "", 60e9
	assert.Empty(t, disk())
	s.Role = "arbiter"
	assert.Equal(t, "/dev/sda", disk(), "an arbiter needs less")
}
