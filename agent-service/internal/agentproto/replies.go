// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentproto

// NTPReply is the output of an ntp-synchronizer step.
type NTPReply struct {
	Sources []NTPSource `json:"ntp_sources"`
}

// NTPSource is a time server as a host sees it.
type NTPSource struct {
	Name string `json:"source_name"`
	// State is synced, combined, not_combined, error, variable or unreachable.
	State string `json:"source_state"`
}

// ConnectivityReply is the output of a connectivity-check step.
type ConnectivityReply struct {
	Hosts []RemoteHost `json:"remote_hosts"`
}

// RemoteHost is how a peer was reached.
type RemoteHost struct {
	HostID string     `json:"host_id"`
	L3     []Reached  `json:"l3_connectivity"`
	L2     []Reached  `json:"l2_connectivity,omitempty"`
	MTU    []FullSize `json:"mtu_report,omitempty"`
}

// Reached is one address of a peer.
type Reached struct {
	OutgoingNIC string  `json:"outgoing_nic,omitempty"`
	RemoteIP    string  `json:"remote_ip_address"`
	Successful  bool    `json:"successful"`
	RTT         float64 `json:"average_rtt_ms"`
	Loss        float64 `json:"packet_loss_percentage"`
}

// FullSize is whether packets of full size passed.
type FullSize struct {
	Successful bool `json:"mtu_successful"`
}

// DomainsReply is the output of a domain-resolution step.
type DomainsReply struct {
	Resolutions []Resolution `json:"resolutions"`
}

// Resolution is what a name was resolved to.
type Resolution struct {
	Name string   `json:"domain_name"`
	IPv4 []string `json:"ipv4_addresses"`
	IPv6 []string `json:"ipv6_addresses"`
}

// APIReply is the output of an api-vip-connectivity-check step.
type APIReply struct {
	Success bool   `json:"is_success"`
	URL     string `json:"url,omitempty"`
	Error   string `json:"download_error,omitempty"`
}

// DiskReply is the output of an installation-disk-speed-check step.
type DiskReply struct {
	Path string `json:"path"`
	// Sync is how long a write through takes, in milliseconds.
	Sync int64 `json:"io_sync_duration"`
}

// WipeReply is the output of a wipe-disk step: the disks that were wiped and hold no signature any more.
type WipeReply struct {
	Disks []DiskIdentity `json:"disks"`
}

// ImagesReply is the output of a container-image-availability step.
type ImagesReply struct {
	Images []Availability `json:"images"`
}

// Availability is whether an image can be had.
type Availability struct {
	Name string `json:"name"`
	// Result is Available or Unavailable.
	Result string `json:"result"`
}

// Results of a container-image-availability step.
const (
	Available   = "success"
	Unavailable = "failure"
)
