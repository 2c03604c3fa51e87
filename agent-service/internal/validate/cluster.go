// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// inCluster are the validations of a host in its cluster.
var inCluster = []Validation{
	{
		ID: "compatible-with-cluster-platform", Category: Hardware, Needs: Inventory | Cluster, Func: architectureFits,
		About: "The host has the architecture of the cluster.",
	},
	{ID: "hostname-unique", Category: Hardware, Needs: Inventory | Cluster, Func: hostnameUnique, About: "No other host of the cluster has the name."},
	{
		ID: "machine-cidr-defined", Category: Network, Needs: Cluster, Func: machineNetworkDefined,
		About: "The cluster states its machine network, or needs none.",
	},
	{ID: "belongs-to-machine-cidr", Category: Network, Needs: Inventory | Cluster, Func: inMachineNetwork, About: "The host has an address in the machine network."},
	{
		ID: "belongs-to-majority-group", Category: Network, Needs: Inventory | Cluster, Func: reachesMajority,
		About: "The host reaches at least half of the other hosts of the cluster.",
	},
	{
		ID: "sufficient-network-latency-requirement-for-role", Category: Network, Needs: Inventory | Cluster, Func: latencyFits,
		About: "Hosts of the same role answer in time: masters within 100 ms, workers within 1000 ms.",
	},
	{
		ID: "sufficient-packet-loss-requirement-for-role", Category: Network, Needs: Inventory | Cluster, Func: packetLossFits,
		About: "Packets arrive at hosts of the same role: between masters all, between workers 90 %.",
	},
	{ID: "mtu-valid", Category: Network, Needs: Inventory | Cluster, Func: mtuValid, About: "Packets of full size reach the other hosts."},
	{ID: "non-overlapping-subnets", Category: Network, Needs: Cluster, Func: subnetsDiffer, About: "The networks of the cluster do not overlap."},
	{
		ID: "no-ip-collisions-in-network", Category: Network, Needs: Inventory | Cluster, Func: addressesUnique,
		About: "No other host of the cluster has an address of this one.",
	},
	{
		ID: "valid-platform-network-settings", Category: Network, Needs: Inventory | Cluster, Func: platformFits,
		About: "On OpenStack the cluster has user managed networking.",
	},
	{
		ID: "no-iscsi-nic-belongs-to-machine-cidr", Category: Network, Needs: Inventory | Cluster, Func: diskOutsideMachineNetwork,
		About: "An iSCSI disk is not reached through the machine network.",
	},
	{
		ID: "release-domain-name-resolved-correctly", Category: Network, Needs: Cluster, Func: func(*Input) Outcome { return disabled("No release is fetched by name") },
		About: "Always disabled: no release is fetched by name.",
	},
	{
		ID: "disk-encryption-requirements-satisfied", Category: Hardware, Needs: Cluster, Func: func(*Input) Outcome { return disabled("Disks are not encrypted") },
		About: "Always disabled: disks are not encrypted.",
	},
	{
		ID: "vsphere-disk-uuid-enabled", Category: Hardware, Needs: Cluster, Func: func(*Input) Outcome { return disabled("Machines are not treated as those of a platform") },
		About: "Always disabled: machines are not treated as those of a platform.",
	},
	{
		ID: "api-domain-name-resolved-correctly", Category: Network, Needs: Cluster, Func: resolves("api"),
		About: "The host resolves api, where it has to find the cluster by name.",
	},
	{
		ID: "api-int-domain-name-resolved-correctly", Category: Network, Needs: Cluster, Func: resolves("api-int"),
		About: "The host resolves api-int, where it has to find the cluster by name.",
	},
	{
		ID: "apps-domain-name-resolved-correctly", Category: Network, Needs: Cluster, Func: resolves("apps"),
		About: "The host resolves a name of *.apps, where it has to find the cluster by name.",
	},
	{
		ID: "ignition-downloadable", Category: Network, Needs: Cluster, Func: reachesAPI,
		About: "A host that joins an installed cluster reaches its API. Disabled for other hosts.",
	},
	{
		ID: "dns-wildcard-not-configured", Category: Network, Needs: Cluster, Func: noWildcard,
		About: "No DNS wildcard answers for the domain of the cluster.",
	},
}

func architectureFits(in *Input) Outcome {
	return passes(hardware.Fits(in.Summary.CPUArchitecture, in.Cluster.CPUArchitecture), "Host is compatible with the cluster",
		fmt.Sprintf("Host has architecture %s, the cluster %s", in.Summary.CPUArchitecture, in.Cluster.CPUArchitecture))
}

func hostnameUnique(in *Input) Outcome {
	sameName, _ := in.Cluster.index()
	other := in.Cluster.lowest(sameName[in.Hostname], func(key string, _ Neighbour) bool { return key != in.Key })
	return passes(other == "", "Hostname "+in.Hostname+" is unique in cluster", fmt.Sprintf("Hostname %s is not unique in cluster: host %s has it too", in.Hostname, other))
}

func machineNetworkDefined(in *Input) Outcome {
	c := in.Cluster
	alone := len(c.Neighbours) <= 1
	return passes(len(c.MachineNetworks) > 0 || c.UserManagedNetworking || c.DayTwo || alone, "Machine network is defined, or not needed",
		"Machine network of the cluster is not defined: set machineNetwork")
}

func inMachineNetwork(in *Input) Outcome {
	networks := in.Cluster.MachineNetworks
	return passes(len(networks) == 0 || inAny(in.Summary.Addresses, networks), "Host belongs to all machine network CIDRs",
		"Host has no address in the machine network "+strings.Join(networks, ", "))
}

func reachesMajority(in *Input) Outcome {
	unreachable := slices.DeleteFunc(slices.Clone(in.Checks.Unreachable), func(id string) bool { _, there := in.Cluster.Roles[id]; return !there || id == in.ID })
	return passes(len(unreachable)*2 <= max(len(in.Cluster.Neighbours)-1, 0) || len(unreachable) == 0, "Host has connectivity to the majority of hosts in the cluster",
		"Host cannot reach the majority of the cluster's hosts: "+strings.Join(first(unreachable, 5), ", "))
}

// Limits of the network between hosts of one role. Others are not compared.
var (
	slowest  = map[string]int{"master": 100, "worker": 1000}
	lossiest = map[string]int{"master": 0, "worker": 10}
)

// TooSlow is true for an answer, in milliseconds, that is too late for some role.
func TooSlow(milliseconds float64) bool { return milliseconds > float64(slowest["master"]) }

func latencyFits(in *Input) Outcome {
	slow, role := in.beyond(in.Checks.Slow, slowest, "ms"), in.Role
	return passes(len(slow) == 0, "Network latency is sufficient for role "+role+", or has not been measured",
		fmt.Sprintf("Hosts of role %s answer later than after %d ms: %s", role, slowest[role], strings.Join(slow, ", ")))
}

func packetLossFits(in *Input) Outcome {
	lossy, role := in.beyond(in.Checks.Lossy, lossiest, "%"), in.Role
	return passes(len(lossy) == 0, "Packet loss is small enough for role "+role+", or has not been measured",
		fmt.Sprintf("More than %d %% of packets are lost on the way to hosts of role %s: %s", lossiest[role], role, strings.Join(lossy, ", ")))
}

// beyond are the hosts of the same role for which more was measured than the limit of the role.
func (in *Input) beyond(measured, limits map[string]int, unit string) (found []string) {
	limit, limited := limits[in.Role]
	for id, value := range measured {
		if role, there := in.Cluster.Roles[id]; there && limited && role == in.Role && value > limit {
			found = append(found, fmt.Sprintf("%s (%d %s)", id, value, unit))
		}
	}
	slices.Sort(found)
	return first(found, 5)
}

func mtuValid(in *Input) Outcome {
	short := slices.DeleteFunc(slices.Clone(in.Checks.ShortMTU), func(id string) bool { _, there := in.Cluster.Roles[id]; return !there })
	return passes(len(short) == 0, "Packets of full size pass, or have not been tried",
		"Packets of full size do not reach "+strings.Join(first(short, 5), ", ")+": make the MTU of all interfaces the same")
}

func subnetsDiffer(in *Input) Outcome {
	overlap := overlapping(slices.Concat(in.Cluster.MachineNetworks, in.Cluster.ClusterNetworks, in.Cluster.ServiceNetworks))
	return passes(overlap == "", "Networks of the cluster do not overlap", "Networks of the cluster overlap: "+overlap)
}

func addressesUnique(in *Input) Outcome {
	_, byAddress := in.Cluster.index()
	var near []string
	for _, address := range usable(in.Summary.Addresses) {
		near = append(near, byAddress[address]...)
	}
	other := in.Cluster.lowest(near, func(key string, n Neighbour) bool {
		return key != in.Key && !share(n.MACAddresses, in.Summary.MACAddresses)
	})
	return passes(other == "", "No other host of the cluster has an address of this one", "Host "+other+" has an address that this host has, too: give each its own")
}

func platformFits(in *Input) Outcome {
	return passes(in.Summary.ProductName != "OpenStack Compute" || in.Cluster.UserManagedNetworking, "Platform "+in.Summary.ProductName+" is allowed",
		"On platform OpenStack Compute the cluster cannot manage its own addresses: set user managed networking")
}

func diskOutsideMachineNetwork(in *Input) Outcome {
	address := in.Target.ISCSIAddress
	inside := address != "" && inAny([]string{address + "/128", address + "/32"}, in.Cluster.MachineNetworks)
	return passes(!inside, "The installation disk is not reached through the machine network",
		"The installation disk is reached through the machine network ("+address+"): the network must not depend on it")
}

// resolves looks at a name that a host has to find where the address of the API is not known. It is pending before the agent tried.
func resolves(name string) func(*Input) Outcome {
	return func(in *Input) Outcome {
		c := in.Cluster
		needed := c.BaseDomain != "" && (c.UserManagedNetworking || c.DayTwo && c.APIAddress == "")
		resolved, asked := in.Checks.Domains[name]
		full := name + "." + c.Name + "." + c.BaseDomain
		if needed && !asked {
			return pending("It is not known yet whether the host resolves " + full + ": its agent is asked")
		}
		return passes(!needed || resolved, "Domain name resolution for "+name+" was successful, or is not needed", "Host cannot resolve "+full)
	}
}

// reachesAPI is pending before the agent tried.
func reachesAPI(in *Input) Outcome {
	c := in.Cluster
	switch {
	case !c.DayTwo || c.APIAddress == "":
		return disabled("First-boot data comes from this service, and from nowhere else")
	case in.Checks.API == Unknown:
		return pending("It is not known yet whether the host reaches the cluster's API at " + c.APIAddress + ": its agent is asked")
	}
	bad := "Host cannot reach the cluster's API at " + c.APIAddress
	if in.Checks.APIDetail != "" {
		bad += ": " + in.Checks.APIDetail
	}
	return passes(in.Checks.API == Passed, "Host reaches the cluster's API, or its agent cannot try", bad)
}

func noWildcard(in *Input) Outcome {
	resolved, asked := in.Checks.Domains["wildcard"]
	return passes(!asked || !resolved, "No DNS wildcard answers for the cluster's domain, or it has not been tried",
		fmt.Sprintf("A DNS wildcard answers for *.%s.%s, which would hide the cluster's names", in.Cluster.Name, in.Cluster.BaseDomain))
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
