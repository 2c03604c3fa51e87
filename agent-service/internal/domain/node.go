// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

// Node is what a host is in a cluster that takes nodes.
type Node struct {
	// Name is empty for a host that was not given what it joins with.
	Name string `json:",omitempty"`
	// Seen is true where the cluster has a Node of that name that is the host's, and Ready where that is Ready.
	Seen  bool `json:",omitempty"`
	Ready bool `json:",omitempty"`
	// WasReady is true where it has been Ready since the host was installed.
	WasReady bool `json:",omitempty"`
	// Own is true where it has been Seen since then. Without that, the others say nothing of whose Node it is: former versions took any Node of the name for the host's.
	Own bool `json:",omitempty"`
	// Certificates are those that were approved for it, the newest last.
	Certificates []Certificate `json:",omitempty"`
	// Addresses are those that the installed system reported last; none before its first report.
	Addresses []HeldAddress `json:",omitempty"`
	// Rejoin is how the node gets another certificate that lost its own.
	Rejoin Rejoin `json:",omitzero"`
}

// Rejoin is of a node whose kubelet lost its client certificate: it expired while the machine was off, or its file is gone.
type Rejoin struct {
	// Stamp is what the bootstrap token is made with after a loss, another one each time, so that no former token is good again. It is empty for a node that lost nothing
	// since it was installed.
	Stamp string `json:",omitempty"`
	// LostAt is when the loss was noted.
	LostAt time.Time `json:",omitzero"`
	// AskedAt is when the installed system last said that it has no certificate; zero where it has one.
	AskedAt time.Time `json:",omitzero"`
}

// Lost is true from the loss of a certificate until there is another one.
func (r Rejoin) Lost() bool { return !r.AskedAt.IsZero() }

// Joined is true for a host of which it is known that the Node of its name is its own: it got a certificate for it, its cluster had the Node, or the installed system was up. Before, a Node of
// that name is another machine's.
func (h *Host) Joined() bool {
	return len(h.Node.Certificates) > 0 || h.Node.Own || lifecycle.WasInstalled(h.State) || h.Progress.Stage == lifecycle.StageDone
}

// Rejoins is true for a host whose kubelet gets a bootstrap token again: its cluster still has its Node, which is not Ready.
func (h *Host) Rejoins() bool {
	return h.ClusterID != "" && lifecycle.WasInstalled(h.State) && h.Node.Rejoin.Lost() && h.Node.Seen && !h.Node.Ready
}

// HeldAddress is an address of a host, and since when the host has reported it. The time is zero for an address of a pool.
type HeldAddress struct {
	Address netip.Addr
	Since   time.Time
}

// Certificate is a request that was approved.
type Certificate struct {
	// Name is that of the CertificateSigningRequest, Type is client or serving.
	Name       string
	Type       string
	ApprovedAt time.Time
}

// maxCertificates bounds how many are kept: nodes renew theirs.
const maxCertificates = 16

// Approve keeps a certificate that was approved; it is false for one that is known.
func (n *Node) Approve(c Certificate) bool {
	if slices.ContainsFunc(n.Certificates, func(known Certificate) bool { return known.Name == c.Name }) {
		return false
	}
	n.Certificates = append(slices.Clone(n.Certificates), c)
	n.Certificates = n.Certificates[max(0, len(n.Certificates)-maxCertificates):]
	return true
}

// HeldAddresses are the addresses of the system of the host: those that pools give, else those that the installed system reported, else those that the discovery image
// reported.
func (h *Host) HeldAddresses() []HeldAddress {
	var held []HeldAddress
	switch {
	case len(h.Addressing.Given) > 0: // the host may have left others, and another machine may have them
		for _, address := range h.Addressing.IPs() {
			held = append(held, HeldAddress{Address: address})
		}
	case len(h.Node.Addresses) > 0:
		return h.Node.Addresses
	default:
		for _, address := range parseAddresses(h.Summary.Addresses) {
			held = append(held, HeldAddress{Address: address, Since: h.InventoryAt})
		}
	}
	return held
}

// Discovered says whether the discovery image reported the address.
func (h *Host) Discovered(address netip.Addr) bool {
	return slices.Contains(parseAddresses(h.Summary.Addresses), address)
}

// RunsFromDisk is true where the system of the last installation reports, not the discovery image: what it says of the machine is not what the host is installed and wiped by.
func (h *Host) RunsFromDisk() bool {
	return h.Resident || lifecycle.WasInstalled(h.State)
}

// ReportAddresses keeps the addresses, with prefix length, that the installed system has at a time. An address that the host had before keeps its time. A report without addresses
// changes nothing. It is false where nothing changed.
func (h *Host) ReportAddresses(now time.Time, reported []string) bool {
	before := h.HeldAddresses()
	var held []HeldAddress
	for _, address := range parseAddresses(reported) {
		since := now
		if i := slices.IndexFunc(before, func(a HeldAddress) bool { return a.Address == address }); i >= 0 {
			since = before[i].Since
		}
		held = append(held, HeldAddress{Address: address, Since: since})
	}
	if len(held) == 0 || slices.Equal(held, h.Node.Addresses) {
		return false
	}
	h.Node.Addresses = held
	return true
}

// CheckHostname refuses another name for a host while its installed system is a node: the system keeps the name that it was installed with, and its Node is found by that.
func (h *Host) CheckHostname(requested string) error {
	installed := slices.Contains([]lifecycle.State{lifecycle.Installed, lifecycle.AddedToExistingCluster, lifecycle.InstallingPendingUserAction}, h.State)
	name := strings.ToLower(cmp.Or(requested, h.Summary.Hostname))
	if h.Node.Name == "" || !installed || name == h.Node.Name || name == strings.ToLower(h.Hostname()) {
		return nil
	}
	return Refuse(Conflict, "HostnameInUse", "host %s is installed as the node %s of its cluster: it can have another name when it is installed again", h.HostID, h.Node.Name)
}

// parseAddresses reads addresses with a prefix length, each once and in order.
func parseAddresses(reported []string) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range reported {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			addresses = append(addresses, prefix.Addr().Unmap())
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return slices.Compact(addresses)
}
