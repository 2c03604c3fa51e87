// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentproto

import "encoding/json"

// Argument is the JSON of the only argument of a step.
func Argument(v any) string {
	encoded, _ := json.Marshal(v) //nolint:errchkjson // the types of this file have strings, numbers, lists and maps of them
	return string(encoded)
}

// NTPArgs is the argument of an ntp-synchronizer step.
type NTPArgs struct {
	// Sources are names and addresses of time servers, separated by commas.
	Sources string `json:"ntp_source"`
}

// Peer is a host to be reached. A list of them is the argument of a connectivity-check step.
type Peer struct {
	HostID string    `json:"host_id"`
	NICs   []PeerNIC `json:"nics"`
}

// PeerNIC is one interface of a Peer.
type PeerNIC struct {
	Name        string   `json:"name"`
	MAC         string   `json:"mac,omitempty"`
	IPAddresses []string `json:"ip_addresses"`
}

// DomainsArgs is the argument of a domain-resolution step.
type DomainsArgs struct {
	Domains []Domain `json:"domains"`
}

// Domain is a name to be resolved.
type Domain struct {
	Name string `json:"domain_name"`
}

// APIArgs is the argument of an api-vip-connectivity-check step.
type APIArgs struct {
	URL string `json:"url"`
}

// DiskArgs is the argument of an installation-disk-speed-check step.
type DiskArgs struct {
	Path string `json:"path"`
}

// ImagesArgs is the argument of a container-image-availability step.
type ImagesArgs struct {
	// Images are addresses of disk images, and names of container images.
	Images []string `json:"images"`
	// Timeout is in seconds.
	Timeout int `json:"timeout"`
}

// DiskIdentity tells a disk from all others. Names that may be of another disk after a boot are not part of it.
type DiskIdentity struct {
	Serial string `json:"serial"`
	WWN    string `json:"wwn,omitempty"`
	// ID is the name below /dev/disk/by-id, empty where the system makes none.
	ID        string `json:"id,omitempty"`
	SizeBytes int64  `json:"size_bytes"`
}

// WipeArgs is the argument of a wipe-disk step. The agent finds the disks by itself, and touches none unless each of them is there once.
type WipeArgs struct {
	Disks []DiskIdentity `json:"disks"`
}

// BootArtifactsArgs is the argument of download-boot-artifacts and reboot-for-reclaim steps: what the installed system restarts into.
type BootArtifactsArgs struct {
	KernelURL string `json:"kernel_url"`
	InitrdURL string `json:"initrd_url"`
	// RootFSURL is empty where the initial RAM disk is the whole system.
	RootFSURL string `json:"rootfs_url,omitempty"`
	// KernelSHA256 and InitrdSHA256 are checksums in hexadecimal digits. Agents of this service start nothing that has others.
	KernelSHA256 string `json:"kernel_sha256"`
	InitrdSHA256 string `json:"initrd_sha256"`
	// CommandLine is the kernel's.
	CommandLine string `json:"command_line"`
}

// JoinArgs is the argument of a join-cluster step, which only an installed system gets, for its own poll.
type JoinArgs struct {
	// Kubeconfig is what the kubelet asks for a certificate with: a secret.
	Kubeconfig string `json:"kubeconfig"`
}

// String hides the secret.
func (JoinArgs) String() string { return "[bootstrap kubeconfig]" }

// GoString hides the secret.
func (a JoinArgs) GoString() string { return a.String() }

// UpgradeArgs is the argument of an upgrade-agent step.
type UpgradeArgs struct {
	// Version is that of the service's agent.
	Version string `json:"version"`
	// Architecture names the program, and SHA256 is its checksum in hexadecimal digits.
	Architecture string `json:"architecture"`
	SHA256       string `json:"sha256"`
}

// OSImage is a disk image that agents write.
type OSImage struct {
	Version         string `json:"version,omitempty"`
	CPUArchitecture string `json:"cpuArchitecture,omitempty"`
	URL             string `json:"url,omitempty"`
	// SHA256 is of the file at URL as it is served, in hex.
	SHA256 string `json:"sha256,omitempty"`
	// Compression is empty, gz, zst or xz; empty is decided by the ending of URL.
	Compression string `json:"compression,omitempty"`
	// FirstBoot is ignition (default) or cloud-init.
	FirstBoot string `json:"firstBoot,omitempty"`
	// ControlPlane is true for an image whose system runs the control plane of its cluster, by join.ControlPlane of its first-boot data.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Template is the text of the template that makes the first-boot data, empty for the service's own. Agents do not get it.
	Template string `json:"-"`
}

// InstallArgs is the argument of an install step.
type InstallArgs struct {
	InfraEnvID string  `json:"infra_env_id"`
	HostID     string  `json:"host_id"`
	ClusterID  string  `json:"cluster_id"`
	Role       string  `json:"role"`
	Hostname   string  `json:"hostname"`
	Device     string  `json:"device"`
	Image      OSImage `json:"image"`
	// FirstBootURL is a path of this service where the agent gets its first-boot data with its own token.
	FirstBootURL  string   `json:"first_boot_url"`
	InstallerArgs []string `json:"installer_args,omitempty"`
	SkipDisks     []string `json:"skip_disks,omitempty"`
	// NetworkConfig is that of cloud-init, for systems that read it; empty where no network is stated for the host.
	NetworkConfig string `json:"network_config,omitempty"`
}

// AssistedInstallArgs is the argument of an install step as agents of assisted-service read it: they run the installer's image with it.
type AssistedInstallArgs struct {
	InfraEnvID        string         `json:"infra_env_id"`
	HostID            string         `json:"host_id"`
	ClusterID         string         `json:"cluster_id"`
	Role              string         `json:"role"`
	BootDevice        string         `json:"boot_device"`
	InstallerImage    string         `json:"installer_image"`
	ControllerImage   string         `json:"controller_image"`
	CheckCVO          bool           `json:"check_cvo"`
	ControlPlaneCount int            `json:"control_plane_count"`
	OpenshiftVersion  string         `json:"openshift_version,omitempty"`
	InstallerArgs     string         `json:"installer_args,omitempty"`
	Proxy             *AssistedProxy `json:"proxy,omitempty"`
}

// AssistedProxy is the proxy of AssistedInstallArgs.
type AssistedProxy struct {
	HTTP    string `json:"http_proxy,omitempty"`
	HTTPS   string `json:"https_proxy,omitempty"`
	NoProxy string `json:"no_proxy,omitempty"`
}

// LogsArgs is the argument of a logs-gather step.
type LogsArgs struct {
	InfraEnvID      string   `json:"infra_env_id"`
	HostID          string   `json:"host_id"`
	ClusterID       string   `json:"cluster_id"`
	Bootstrap       bool     `json:"bootstrap"`
	InstallerGather bool     `json:"installer_gather"`
	MasterIPs       []string `json:"master_ips,omitempty"`
}
