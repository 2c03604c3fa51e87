// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import "github.com/muster-io/muster/agent-service/internal/hardware"

// Check is the outcome of something that an agent was asked to try. Empty is unknown.
type Check string

// Outcomes of checks.
const (
	Unknown Check = ""
	Passed  Check = "passed"
	Refused Check = "refused"
)

// Checks are what an agent found out, kept with its host.
type Checks struct {
	// Registry is whether the discovery image's registry answers with the InfraEnv's pull secret.
	Registry Check `json:"registry,omitempty"`
	// RegistryDetail names the images that cannot be had.
	RegistryDetail string `json:"registryDetail,omitempty"`
	// DiskSpeed is of the installation disk.
	DiskSpeed Check `json:"diskSpeed,omitempty"`
	// Connected says that connectivity was tried; Unreachable are the hosts of the cluster that did not answer.
	Connected   bool     `json:"connected,omitempty"`
	Unreachable []string `json:"unreachable,omitempty"`
	// Slow are hosts of the cluster that answer late, with milliseconds; only those that are too late for some role.
	Slow map[string]int `json:"slow,omitempty"`
	// Lossy are hosts of the cluster on the way to which packets are lost, with percent.
	Lossy map[string]int `json:"lossy,omitempty"`
	// ShortMTU are hosts of the cluster that packets of full size do not reach.
	ShortMTU []string `json:"shortMTU,omitempty"`
	// Domains are names that were asked for, and whether they resolved.
	Domains map[string]bool `json:"domains,omitempty"`
	// API is whether the host reaches the API of the installed cluster that it joins, at the address that is known of it.
	API       Check  `json:"api,omitempty"`
	APIDetail string `json:"apiDetail,omitempty"`
}

// Subject is the host that is looked at.
type Subject struct {
	ID string
	// Key tells hosts of one id from different InfraEnvs apart.
	Key            string
	Connected      bool
	MediaConnected bool
	Hostname       string
	// Role is auto-assign, master, worker or arbiter.
	Role   string
	DiskID string
	// DiskPath overrules DiskID.
	DiskPath string
	// KeptDisks are not to be written to.
	KeptDisks []string
	// AgentVersion is what the agent says of itself. It cannot install where NoInstaller says that its kind needs what the service does not have.
	AgentVersion string
	NoInstaller  bool
	Summary      hardware.Summary
	// Twin is what tells two machines apart that report as this host, empty where one does.
	Twin string
	// NTP is what time sources the host has; asked is false before they were reported.
	NTP    []NTPSource
	Checks Checks
}

// Surroundings are the cluster that a host is in, or would be in. They are not changed once a host was looked at in them.
type Surroundings struct {
	Name            string
	BaseDomain      string
	CPUArchitecture string
	MachineNetworks []string
	ClusterNetworks []string
	ServiceNetworks []string
	// Neighbours are the cluster's hosts, the one that is looked at among them, by key.
	Neighbours map[string]Neighbour
	// Roles are of the same hosts, by id: that is what agents know of each other.
	Roles map[string]string
	// UserManagedNetworking: the addresses of the API are looked after elsewhere.
	UserManagedNetworking bool
	// APIAddress is where the API of the cluster is, empty where that is not known.
	APIAddress string
	DayTwo     bool
	Ignored    []string

	// sameName and byAddress are built from the neighbours when they are needed first.
	sameName  map[string][]string
	byAddress map[string][]string
}

// index returns the keys of neighbours by their names, and by the addresses that belong to one host.
func (c *Surroundings) index() (sameName, byAddress map[string][]string) {
	if c.sameName != nil {
		return c.sameName, c.byAddress
	}
	c.sameName, c.byAddress = make(map[string][]string, len(c.Neighbours)), make(map[string][]string, len(c.Neighbours))
	for key, n := range c.Neighbours {
		if n.Hostname != "" {
			c.sameName[n.Hostname] = append(c.sameName[n.Hostname], key)
		}
		for _, address := range usable(n.Addresses) {
			c.byAddress[address] = append(c.byAddress[address], key)
		}
	}
	return c.sameName, c.byAddress
}

// lowest is the smallest id of the neighbours with these keys that collide, empty for none.
func (c *Surroundings) lowest(keys []string, collides func(key string, n Neighbour) bool) string {
	found := ""
	for _, key := range keys {
		if n := c.Neighbours[key]; collides(key, n) && (found == "" || n.ID < found) {
			found = n.ID
		}
	}
	return found
}

// Neighbour is a host of the cluster.
type Neighbour struct {
	ID           string
	Hostname     string
	Addresses    []string
	MACAddresses []string
}

// Minimum is what a role needs.
type Minimum struct {
	CPUs      int64 `json:"cpus"`
	MemoryGiB int64 `json:"memoryGiB"`
	DiskGB    int64 `json:"diskGB"`
}

// Minimums by role. Auto-assign needs what the most modest role needs.
type Minimums map[string]Minimum

// DefaultMinimums are the documented requirements.
var DefaultMinimums = Minimums{
	"auto-assign": {2, 8, 100}, "worker": {2, 8, 100}, "master": {4, 16, 100}, "arbiter": {2, 8, 50},
}

// of is what a role needs.
func (m Minimums) of(role string) Minimum {
	if needs, known := m[role]; known {
		return needs
	}
	return m["auto-assign"]
}
