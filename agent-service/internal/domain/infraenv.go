// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/muster-io/muster/agent-service/internal/hardware"
)

// KubeRef names the custom resource of an object, empty without one.
type KubeRef struct {
	Namespace string
	Name      string
}

// Proxy is how the discovery system and the installed one reach the network.
type Proxy struct {
	HTTP  string
	HTTPS string
	// NoProxy is comma separated.
	NoProxy string
}

// InfraEnv boots any number of hosts with one image.
type InfraEnv struct {
	// ID is a UUID. For a custom resource it is the UID of the resource, so that making it twice makes one.
	ID   string
	Name string
	Owner
	Kube KubeRef
	InfraEnvSettings

	Generations
	// Deleting is set from the beginning of a deletion: no host registers any more, and none is bound.
	// DeletingForced is set where hosts that are bound go with it.
	Deleting       bool `json:",omitempty"`
	DeletingForced bool `json:",omitempty"`
	// Closed is set where the custom resource is being deleted and waits for bound hosts: no further host registers. A deletion of a custom resource is not taken back.
	Closed bool `json:",omitempty"`
	// ImageUpdatedAt is when something changed that the image shows: Last-Modified of downloads.
	ImageUpdatedAt time.Time
	// RestoredAt is when the InfraEnv came back after the service lost its data, zero for others: hosts of it may follow.
	RestoredAt time.Time `json:",omitzero"`
	CreatedAt  time.Time
	UpdatedAt  time.Time
	Revision   int64
}

// Generations are what tokens carry: those of older generations open nothing.
type Generations struct {
	// ImageGeneration is of tokens that stand in images and their addresses.
	ImageGeneration int64
	// HostGeneration is of tokens that are narrowed to a host.
	HostGeneration int64
}

// InfraEnvSettings are what a user states of an InfraEnv.
type InfraEnvSettings struct {
	// ClusterID binds hosts at registration, empty for hosts that are free. Immutable.
	ClusterID string
	// OSImageVersion is the version of the discovery image, empty for the default.
	OSImageVersion string
	// CPUArchitecture is x86_64 (default) or aarch64. Immutable.
	CPUArchitecture string
	// ImageType is full-iso (default), minimal-iso or disconnected-iso.
	ImageType string
	// PullSecret is for the discovery image only. It is a secret: no reply shows it.
	PullSecret           string
	Proxy                Proxy
	NTPSources           string
	AdditionalNTPSources string
	SSHAuthorizedKey     string
	// StaticNetworkConfig is a JSON list of {network_yaml, mac_interface_map[{mac_address, logical_nic_name}]}.
	StaticNetworkConfig          json.RawMessage `json:",omitempty"`
	IgnitionConfigOverride       string
	KernelArguments              []KernelArgument
	AdditionalTrustBundle        string
	RendezvousIP                 string
	NetworkDiscoveryDelaySeconds int64
	IPXEScriptType               string
	// MirrorRegistry is the content of registries.conf, and MirrorRegistryCA the certificates that go with it.
	MirrorRegistry   string
	MirrorRegistryCA string
	// AutoApprove makes hosts approved when they register.
	AutoApprove bool
	// AgentLabels are put on the custom resources of hosts when these are made.
	AgentLabels map[string]string
	// Wipe is what is erased of hosts before they are free again; empty is WipeNone.
	Wipe Wipe `json:",omitempty"`
	// NodeAddresses are the pools that give each installed host an address.
	NodeAddresses []AddressPool `json:",omitempty"`
}

// KernelArgument is one change to the kernel command line of the discovery image.
type KernelArgument struct {
	// Operation is append, replace or delete.
	Operation string `json:"operation"`
	Value     string `json:"value"`
}

// InImage are the settings that the image shows.
func (e InfraEnvSettings) InImage() InfraEnvSettings {
	e.AutoApprove, e.AgentLabels, e.IPXEScriptType, e.Wipe, e.NodeAddresses = false, nil, "", "", nil
	return e
}

// Complete fills in defaults.
func (e *InfraEnvSettings) Complete() {
	e.CPUArchitecture, e.ImageType = hardware.Architecture(cmp.Or(e.CPUArchitecture, "x86_64")), cmp.Or(e.ImageType, "full-iso")
}

// Check is what is wrong with the settings, nil for nothing: a machine that boots them cannot report it.
func (e InfraEnvSettings) Check() error {
	switch {
	case !slices.Contains([]string{"x86_64", "aarch64", "ppc64le", "s390x"}, e.CPUArchitecture):
		return Refuse(Invalid, "CPUArchitectureInvalid", "cpu_architecture %q: write x86_64, aarch64, ppc64le or s390x", Truncate(e.CPUArchitecture, 64))
	case !slices.Contains([]string{"full-iso", "minimal-iso", "disconnected-iso"}, e.ImageType):
		return Refuse(Invalid, "ImageTypeInvalid", "image_type %q: write full-iso, minimal-iso or disconnected-iso", Truncate(e.ImageType, 64))
	case e.NTPSources != "" && e.AdditionalNTPSources != "":
		return Refuse(Invalid, "NTPSourcesInvalid", "ntp_sources and additional_ntp_sources exclude each other")
	case e.Wipe != "" && !slices.Contains(Wipes, e.Wipe):
		return Refuse(Invalid, "WipeInvalid", "on_release.wipe %q: write None, InstalledDisk or AllDisks", Truncate(string(e.Wipe), 64))
	case e.NetworkDiscoveryDelaySeconds < 0:
		return Refuse(Invalid, "DelayInvalid", "network_discovery_delay_seconds must not be negative")
	case e.RendezvousIP != "" && !isAddress(e.RendezvousIP):
		return Refuse(Invalid, "AddressInvalid", "rendezvous_ip %q is not an IP address", Truncate(e.RendezvousIP, 64))
	}
	for _, err := range []error{
		oneLine(map[string]string{
			"openshift_version": e.OSImageVersion, "ntp_sources": e.NTPSources, "additional_ntp_sources": e.AdditionalNTPSources,
			"http_proxy": e.Proxy.HTTP, "https_proxy": e.Proxy.HTTPS, "no_proxy": e.Proxy.NoProxy,
		}),
		checkProxy(e.Proxy), checkHosts("ntp_sources", e.NTPSources), checkHosts("additional_ntp_sources", e.AdditionalNTPSources),
		checkKeys("ssh_authorized_key", e.SSHAuthorizedKey), checkPullSecret(e.PullSecret), checkIgnition("ignition_config_override", e.IgnitionConfigOverride),
		checkCertificates("additional_trust_bundle", e.AdditionalTrustBundle), checkCertificates("the ca-bundle.crt of the mirrors' configuration", e.MirrorRegistryCA),
		checkKernelArguments(e.KernelArguments), checkNetworks(e.StaticNetworkConfig), checkLabels(e.AgentLabels),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}
