// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// Categories of validations.
const (
	categoryHardware = "hardware"
	categoryNetwork  = "network"
)

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

	// twins and takers are built from the neighbours when they are needed first.
	twins  map[string][]string
	takers map[string][]string
}

// index returns the keys of neighbours by their names, and by the addresses that belong to one host.
func (c *Surroundings) index() (twins, takers map[string][]string) {
	if c.twins != nil {
		return c.twins, c.takers
	}
	c.twins, c.takers = make(map[string][]string, len(c.Neighbours)), make(map[string][]string, len(c.Neighbours))
	for key, n := range c.Neighbours {
		if n.Hostname != "" {
			c.twins[n.Hostname] = append(c.twins[n.Hostname], key)
		}
		for _, address := range usable(n.Addresses) {
			c.takers[address] = append(c.takers[address], key)
		}
	}
	return c.twins, c.takers
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

// blocking are the ids that keep a free host from being ready to be bound. Everything that fails keeps a bound host from
// being installed, but for the warnings.
var (
	blocking    = []string{"connected", "media-connected", "has-inventory", "inventory-not-fully-truncated", "has-min-cpu-cores", "has-min-memory", "has-min-valid-disks", "hostname-valid"}
	warnings    = []string{"inventory-not-partially-truncated"}
	unignorable = []string{"connected", "media-connected", "has-inventory"}
)

// DiskSpeed is the id of the validation that the installation disk is fast enough.
const DiskSpeed = "sufficient-installation-disk-speed"

// Ignorable are the ids of validations that a cluster may ignore.
func Ignorable() []string {
	var ids []string
	for _, r := range Host(Subject{}, &Surroundings{}, DefaultMinimums) {
		if !slices.Contains(unignorable, r.ID) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Sufficient is true where nothing that blocks fails: with a cluster, and for being free.
func Sufficient(results []Result, bound bool) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return r.blocks(bound) })
}

func (r Result) blocks(bound bool) bool {
	if r.Status != Failure && r.Status != Pending || slices.Contains(warnings, r.ID) {
		return false
	}
	return bound || slices.Contains(blocking, r.ID)
}

// Failing are the sentences of what blocks.
func Failing(results []Result, bound bool) []string {
	var sentences []string
	for _, r := range results {
		if r.blocks(bound) {
			sentences = append(sentences, r.Message)
		}
	}
	return sentences
}

// Host looks at a host, and at its place in a cluster where cluster is not nil. The results are in a fixed order.
func Host(s Subject, cluster *Surroundings, minimums Minimums) []Result {
	r := &report{}
	r.machine(s, minimums)
	r.network(s)
	if cluster != nil {
		r.inCluster(s, cluster, minimums)
		for i := range r.results {
			id := r.results[i].ID
			if slices.Contains(cluster.Ignored, id) && !slices.Contains(unignorable, id) {
				r.results[i].Status = Disabled
			}
		}
	}
	return r.results
}

type report struct {
	results []Result
}

// say adds a result: pending while it cannot be known, else by ok.
func (r *report) say(id, category string, known, ok bool, good, bad string) {
	result := Result{ID: id, Category: category, Status: Success, Message: good}
	switch {
	case !known:
		result.Status, result.Message = Pending, "Missing inventory"
		if id == "has-inventory" {
			result.Message = bad
		}
	case !ok:
		result.Status, result.Message = Failure, bad
	}
	r.results = append(r.results, result)
}

var hostnamePattern = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*$`)

func hostnameValid(name string) bool {
	return len(name) <= 253 && hostnamePattern.MatchString(name) && name != "localhost" && !strings.HasPrefix(name, "localhost.")
}

func (r *report) machine(s Subject, minimums Minimums) {
	h, known := s.Summary, s.Summary.Hash != ""
	any, role := minimums["auto-assign"], minimums.of(s.Role)
	target, chosen := Disk(s, minimums)
	r.say("connected", categoryNetwork, true, s.Connected, "Host is connected", "Host is disconnected")
	r.say("media-connected", categoryNetwork, true, s.MediaConnected, "Media device is connected", "Media device is disconnected")
	r.say("has-inventory", categoryHardware, known, s.Twin == "", "Valid inventory exists for the host", s.noInventory())
	r.say("inventory-not-partially-truncated", categoryHardware, known, h.Truncation != "partial", "The inventory is whole", "The inventory is too large: parts of it are left out")
	r.say("inventory-not-fully-truncated", categoryHardware, known, h.Truncation != "full", "The inventory fits", "The inventory is too large: nothing is known about disks and networks")
	r.say("has-min-cpu-cores", categoryHardware, known, h.CPUCount >= any.CPUs, "Sufficient CPU cores",
		fmt.Sprintf("The host has %d CPU cores, but at least %d are needed", h.CPUCount, any.CPUs))
	r.say("has-min-memory", categoryHardware, known, enough(h.MemoryBytes, any.MemoryGiB), "Sufficient minimum RAM",
		fmt.Sprintf("The host has %d MiB of memory, but at least %d GiB are needed", h.MemoryBytes>>20, any.MemoryGiB))
	r.say("has-min-valid-disks", categoryHardware, known, !chosen && s.picked() || target.SizeBytes >= role.DiskGB*1e9,
		"Sufficient disk capacity", s.tooSmall(target, role))
	r.say("has-cpu-cores-for-role", categoryHardware, known, h.CPUCount >= role.CPUs, "Sufficient CPU cores for role "+s.Role,
		fmt.Sprintf("The host has %d CPU cores, but role %s needs at least %d", h.CPUCount, s.Role, role.CPUs))
	r.say("has-memory-for-role", categoryHardware, known, enough(h.MemoryBytes, role.MemoryGiB), "Sufficient RAM for role "+s.Role,
		fmt.Sprintf("The host has %d MiB of memory, but role %s needs at least %d GiB", h.MemoryBytes>>20, s.Role, role.MemoryGiB))
	r.say("hostname-valid", categoryHardware, known, hostnameValid(s.Hostname), "Hostname "+s.Hostname+" is allowed",
		fmt.Sprintf("Hostname %q is not allowed: set a name of lower-case letters, digits, hyphens and dots that is not localhost", s.Hostname))
	r.say("no-skip-missing-disk", categoryHardware, known, chosen || !s.picked(), "The installation disk exists",
		"The disk that was chosen for the installation does not exist on the host, or cannot be installed to")
	r.say("no-skip-installation-disk", categoryHardware, known, !chosen || !s.keeps(target),
		"The installation disk may be written to", "The disk that the host would be installed to is one that must not be formatted: choose another, or let it be formatted")
	r.say("compatible-agent", categoryHardware, true, !s.NoInstaller, "The agent can install the host",
		"Agent "+s.AgentVersion+" installs with a container image, and this service has none: configure one, or boot a discovery image of this service")
	r.say(DiskSpeed, categoryHardware, true, s.Checks.DiskSpeed != Refused, "Speed of installation disk is sufficient, or has not been measured",
		"The installation disk is too slow")
}

func (s Subject) noInventory() string {
	if s.Twin != "" {
		return "Two machines report as this host: " + s.Twin + "; give one of them a serial number or a host id of its own, or switch it off"
	}
	return "Inventory has not been received for the host"
}

// enough forgives what firmware keeps for itself.
func enough(bytes, gib int64) bool { return bytes+(bytes>>5)+(64<<20) >= gib<<30 }

// of is what a role needs.
func (m Minimums) of(role string) Minimum {
	if needs, known := m[role]; known {
		return needs
	}
	return m["auto-assign"]
}

// picked is true where the user chose a disk.
func (s Subject) picked() bool { return s.DiskID != "" || s.DiskPath != "" }

// keeps is true for a disk that is not to be written to.
func (s Subject) keeps(t hardware.Target) bool {
	return slices.Contains(s.KeptDisks, t.ID) || slices.Contains(s.KeptDisks, t.Path)
}

func (s Subject) tooSmall(target hardware.Target, needs Minimum) string {
	if s.picked() {
		return fmt.Sprintf("The disk that was chosen for the installation has %d GB, but at least %d GB are needed: choose another", target.SizeBytes/1e9, needs.DiskGB)
	}
	return fmt.Sprintf("No disk can be installed to: one of at least %d GB is needed", needs.DiskGB)
}

// Disk is the disk that would be installed to: the chosen one, else the best of those that are large enough and may be written to. ok is false where there is none.
func Disk(s Subject, minimums Minimums) (target hardware.Target, ok bool) {
	for _, t := range s.Summary.Targets {
		switch {
		case s.DiskPath != "":
			ok = t.Path == s.DiskPath
		case s.DiskID != "":
			ok = t.ID == s.DiskID
		default:
			ok = t.SizeBytes >= minimums.of(s.Role).DiskGB*1e9 && !s.keeps(t)
		}
		if ok {
			return t, true
		}
	}
	return hardware.Target{}, false
}

func (r *report) network(s Subject) {
	known := s.Summary.Hash != ""
	synced := slices.ContainsFunc(s.NTP, func(n NTPSource) bool { return n.State == "synced" || n.State == "combined" })
	r.say("ntp-synced", categoryNetwork, known, synced || len(s.NTP) == 0, "Host NTP is synced, or its time sources are not known yet", "Host could not synchronize with any NTP server")
	r.say("time-synced-between-host-and-service", categoryNetwork, known, s.Summary.ClockSkewSeconds >= -240 && s.Summary.ClockSkewSeconds <= 240, "Host clock is synchronized with service",
		fmt.Sprintf("Host clock differs from the service's by about %d minutes", s.Summary.ClockSkewSeconds/60))
	r.say("has-default-route", categoryNetwork, known, s.Summary.DefaultRoute, "Host has a default route", "Host has no default route: add a gateway to its network")
	bad := "The registry cannot be reached with the InfraEnv's pull secret"
	if s.Checks.RegistryDetail != "" {
		bad += ": " + s.Checks.RegistryDetail
	}
	r.say("container-images-available", categoryNetwork, true, s.Checks.Registry != Refused, "All required container images can be pulled, or have not been tried", bad)
}

func (r *report) inCluster(s Subject, c *Surroundings, minimums Minimums) {
	known := s.Summary.Hash != ""
	r.say("compatible-with-cluster-platform", categoryHardware, known, hardware.Fits(s.Summary.CPUArchitecture, c.CPUArchitecture),
		"Host is compatible with the cluster", fmt.Sprintf("Host has architecture %s, the cluster %s", s.Summary.CPUArchitecture, c.CPUArchitecture))
	twins, _ := c.index()
	twin := c.lowest(twins[s.Hostname], func(key string, _ Neighbour) bool { return key != s.Key })
	r.say("hostname-unique", categoryHardware, known, twin == "", "Hostname "+s.Hostname+" is unique in cluster",
		fmt.Sprintf("Hostname %s is not unique in cluster: host %s has it too", s.Hostname, twin))
	r.say("machine-cidr-defined", categoryNetwork, true, len(c.MachineNetworks) > 0 || c.UserManagedNetworking || c.DayTwo || c.oneHost(), "Machine network is defined, or not needed",
		"Machine network of the cluster is not defined: set machineNetwork")
	r.say("belongs-to-machine-cidr", categoryNetwork, known, len(c.MachineNetworks) == 0 || inAny(s.Summary.Addresses, c.MachineNetworks), "Host belongs to all machine network CIDRs",
		"Host has no address in the machine network "+strings.Join(c.MachineNetworks, ", "))
	unreachable := slices.DeleteFunc(slices.Clone(s.Checks.Unreachable), func(id string) bool { _, there := c.Roles[id]; return !there || id == s.ID })
	r.say("belongs-to-majority-group", categoryNetwork, known, len(unreachable)*2 <= max(len(c.Neighbours)-1, 0) || len(unreachable) == 0,
		"Host has connectivity to the majority of hosts in the cluster", fmt.Sprintf("Host cannot reach the majority of the cluster's hosts: %s", strings.Join(first(unreachable, 5), ", ")))
	r.paths(s, c, known)
	r.networks(s, c, known, minimums)
	r.names(s, c)
	resolved, asked := s.Checks.Domains["wildcard"]
	r.say("dns-wildcard-not-configured", categoryNetwork, true, !asked || !resolved, "No DNS wildcard answers for the cluster's domain, or it has not been tried",
		fmt.Sprintf("A DNS wildcard answers for *.%s.%s, which would hide the cluster's names", c.Name, c.BaseDomain))
}

// names looks at what the host has to find of the cluster: its names, or its API where the address of that is known.
func (r *report) names(s Subject, c *Surroundings) {
	needed := c.BaseDomain != "" && (c.UserManagedNetworking || c.DayTwo && c.APIAddress == "")
	for _, name := range []string{"api", "api-int", "apps"} {
		resolved, asked := s.Checks.Domains[name]
		full := name + "." + c.Name + "." + c.BaseDomain
		r.ask(name+"-domain-name-resolved-correctly", needed, asked, resolved, "Domain name resolution for "+name+" was successful, or is not needed",
			"Host cannot resolve "+full, "It is not known yet whether the host resolves "+full+": its agent is asked")
	}
	if !c.DayTwo || c.APIAddress == "" {
		r.off("ignition-downloadable", categoryNetwork, "First-boot data comes from this service, and from nowhere else")
		return
	}
	bad := "Host cannot reach the cluster's API at " + c.APIAddress
	if s.Checks.APIDetail != "" {
		bad += ": " + s.Checks.APIDetail
	}
	r.ask("ignition-downloadable", true, s.Checks.API != Unknown, s.Checks.API == Passed, "Host reaches the cluster's API, or its agent cannot try",
		bad, "It is not known yet whether the host reaches the cluster's API at "+c.APIAddress+": its agent is asked")
}

// ask adds a result about something that an agent has to try: pending before its answer.
func (r *report) ask(id string, needed, asked, ok bool, good, bad, unknown string) {
	result := Result{ID: id, Category: categoryNetwork, Status: Success, Message: good}
	switch {
	case !needed || asked && ok:
	case !asked:
		result.Status, result.Message = Pending, unknown
	default:
		result.Status, result.Message = Failure, bad
	}
	r.results = append(r.results, result)
}

// Limits of the network between hosts of one role. Others are not compared.
var (
	slowest  = map[string]int{"master": 100, "worker": 1000}
	lossiest = map[string]int{"master": 0, "worker": 10}
)

// TooSlow is true for an answer, in milliseconds, that is too late for some role.
func TooSlow(milliseconds float64) bool { return milliseconds > float64(slowest["master"]) }

// paths looks at the ways to other hosts.
func (r *report) paths(s Subject, c *Surroundings, known bool) {
	beyond := func(measured map[string]int, limits map[string]int, unit string) (found []string) {
		limit, limited := limits[s.Role]
		for id, value := range measured {
			if role, there := c.Roles[id]; there && limited && role == s.Role && value > limit {
				found = append(found, fmt.Sprintf("%s (%d %s)", id, value, unit))
			}
		}
		slices.Sort(found)
		return first(found, 5)
	}
	slow, lossy := beyond(s.Checks.Slow, slowest, "ms"), beyond(s.Checks.Lossy, lossiest, "%")
	r.say("sufficient-network-latency-requirement-for-role", categoryNetwork, known, len(slow) == 0, "Network latency is sufficient for role "+s.Role+", or has not been measured",
		fmt.Sprintf("Hosts of role %s answer later than after %d ms: %s", s.Role, slowest[s.Role], strings.Join(slow, ", ")))
	r.say("sufficient-packet-loss-requirement-for-role", categoryNetwork, known, len(lossy) == 0, "Packet loss is small enough for role "+s.Role+", or has not been measured",
		fmt.Sprintf("More than %d %% of packets are lost on the way to hosts of role %s: %s", lossiest[s.Role], s.Role, strings.Join(lossy, ", ")))
	short := slices.DeleteFunc(slices.Clone(s.Checks.ShortMTU), func(id string) bool { _, there := c.Roles[id]; return !there })
	r.say("mtu-valid", categoryNetwork, known, len(short) == 0, "Packets of full size pass, or have not been tried",
		"Packets of full size do not reach "+strings.Join(first(short, 5), ", ")+": make the MTU of all interfaces the same")
}

// networks looks at addresses and networks beside each other.
func (r *report) networks(s Subject, c *Surroundings, known bool, minimums Minimums) {
	overlap := overlapping(slices.Concat(c.MachineNetworks, c.ClusterNetworks, c.ServiceNetworks))
	r.say("non-overlapping-subnets", categoryNetwork, true, overlap == "", "Networks of the cluster do not overlap", "Networks of the cluster overlap: "+overlap)
	_, takers := c.index()
	var near []string
	for _, address := range usable(s.Summary.Addresses) {
		near = append(near, takers[address]...)
	}
	collision := c.lowest(near, func(key string, n Neighbour) bool {
		return key != s.Key && !share(n.MACAddresses, s.Summary.MACAddresses)
	})
	r.say("no-ip-collisions-in-network", categoryNetwork, known, collision == "", "No other host of the cluster has an address of this one",
		"Host "+collision+" has an address that this host has, too: give each its own")
	r.say("valid-platform-network-settings", categoryNetwork, known, s.Summary.ProductName != "OpenStack Compute" || c.UserManagedNetworking, "Platform "+s.Summary.ProductName+" is allowed",
		"On platform OpenStack Compute the cluster cannot look after its own addresses: set user managed networking")
	target, _ := Disk(s, minimums)
	iscsi := target.ISCSIAddress != "" && inAny([]string{target.ISCSIAddress + "/128", target.ISCSIAddress + "/32"}, c.MachineNetworks)
	r.say("no-iscsi-nic-belongs-to-machine-cidr", categoryNetwork, known, !iscsi, "The installation disk is not reached through the machine network",
		"The installation disk is reached through the machine network ("+target.ISCSIAddress+"): the network must not depend on it")
	r.off("release-domain-name-resolved-correctly", categoryNetwork, "No release is fetched by name")
	r.off("disk-encryption-requirements-satisfied", categoryHardware, "Disks are not encrypted")
	r.off("vsphere-disk-uuid-enabled", categoryHardware, "Machines are not treated as those of a platform")
}

// off adds a result that says why there is nothing to look at.
func (r *report) off(id, category, why string) {
	r.results = append(r.results, Result{ID: id, Category: category, Status: Disabled, Message: why})
}

func overlapping(networks []string) string {
	for i, one := range networks {
		for _, other := range networks[i+1:] {
			a, err := netip.ParsePrefix(one)
			b, other2 := netip.ParsePrefix(other)
			if err == nil && other2 == nil && a.Overlaps(b) {
				return one + " and " + other
			}
		}
	}
	return ""
}

// usable are addresses that belong to one host.
func usable(addresses []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(a string) bool {
		prefix, err := netip.ParsePrefix(a)
		return err != nil || prefix.Addr().IsLinkLocalUnicast() || prefix.Addr().IsLoopback()
	})
}

func share(a, b []string) bool {
	return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
}

// oneHost is true where there is nobody to be connected to.
func (c *Surroundings) oneHost() bool { return len(c.Neighbours) <= 1 }

func first(list []string, n int) []string {
	if len(list) > n {
		return append(slices.Clone(list[:n]), "…")
	}
	return list
}

func inAny(addresses, networks []string) bool {
	for _, n := range networks {
		network, err := netip.ParsePrefix(n)
		if err != nil {
			continue
		}
		for _, a := range addresses {
			if address, err := netip.ParsePrefix(a); err == nil && network.Contains(address.Addr()) {
				return true
			}
		}
	}
	return false
}
