// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/nmstate"
)

// What is wrong with settings is said when they are written: a machine that boots them can tell nobody.

// complete fills in what is said when nothing is.
func (e *InfraEnvSettings) complete() {
	e.CPUArchitecture, e.ImageType = hardware.Architecture(cmp.Or(e.CPUArchitecture, "x86_64")), cmp.Or(e.ImageType, "full-iso")
}

func (e InfraEnvSettings) check() error {
	switch {
	case !slices.Contains([]string{"x86_64", "aarch64", "ppc64le", "s390x"}, e.CPUArchitecture):
		return Refuse(Invalid, "CPUArchitectureInvalid", "cpu_architecture %q: write x86_64, aarch64, ppc64le or s390x", bound(e.CPUArchitecture, 64))
	case !slices.Contains([]string{"full-iso", "minimal-iso", "disconnected-iso"}, e.ImageType):
		return Refuse(Invalid, "ImageTypeInvalid", "image_type %q: write full-iso, minimal-iso or disconnected-iso", bound(e.ImageType, 64))
	case e.NTPSources != "" && e.AdditionalNTPSources != "":
		return Refuse(Invalid, "NTPSourcesInvalid", "ntp_sources and additional_ntp_sources exclude each other")
	case e.NetworkDiscoveryDelaySeconds < 0:
		return Refuse(Invalid, "DelayInvalid", "network_discovery_delay_seconds must not be negative")
	case e.RendezvousIP != "" && !isAddress(e.RendezvousIP):
		return Refuse(Invalid, "AddressInvalid", "rendezvous_ip %q is not an IP address", bound(e.RendezvousIP, 64))
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

// complete fills in what is said when nothing is.
func (c *ClusterSettings) complete() {
	c.CPUArchitecture = hardware.Architecture(cmp.Or(c.CPUArchitecture, "x86_64"))
	if c.ControlPlaneCount == 0 && c.WorkerCount == 0 && !c.Imported {
		c.ControlPlaneCount = 3
	}
}

func (c ClusterSettings) check() error {
	switch {
	case !slices.Contains([]string{"x86_64", "aarch64", "ppc64le", "s390x", "multi"}, c.CPUArchitecture):
		return Refuse(Invalid, "CPUArchitectureInvalid", "cpu_architecture %q: write x86_64, aarch64, ppc64le, s390x or multi", bound(c.CPUArchitecture, 64))
	case c.ControlPlaneCount < 0 || c.WorkerCount < 0:
		return Refuse(Invalid, "HostCountInvalid", "counts of hosts must not be negative")
	}
	for _, network := range slices.Concat(c.MachineNetworks, c.ClusterNetworks, c.ServiceNetworks) {
		if _, err := netip.ParsePrefix(network); err != nil {
			return Refuse(Invalid, "NetworkInvalid", "%q is not a network: write an address and a prefix length", bound(network, 64))
		}
	}
	for _, address := range slices.Concat(c.APIVIPs, c.IngressVIPs) {
		if !isAddress(address) {
			return Refuse(Invalid, "AddressInvalid", "%q is not an IP address", bound(address, 64))
		}
	}
	for _, err := range []error{
		oneLine(map[string]string{
			"openshift_version": c.OpenshiftVersion, "base_dns_domain": c.BaseDNSDomain, "additional_ntp_source": c.AdditionalNTPSources,
			"http_proxy": c.Proxy.HTTP, "https_proxy": c.Proxy.HTTPS, "no_proxy": c.Proxy.NoProxy,
		}),
		checkProxy(c.Proxy), checkHosts("additional_ntp_source", c.AdditionalNTPSources), checkKeys("ssh_public_key", c.SSHPublicKey), checkPullSecret(c.PullSecret),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func (h HostSettings) check() error {
	switch {
	case !slices.Contains([]string{autoAssign, "master", "worker", "arbiter"}, h.Role):
		return Refuse(Invalid, "RoleInvalid", "role %q: write auto-assign, master, worker or arbiter", bound(h.Role, 32))
	case h.InstallationDiskID != "" && h.InstallationDiskPath != "":
		return Refuse(Invalid, "DiskInvalid", "Either InstallationDiskID or InstallationDiskPath can be set, not both.")
	case utf8.RuneCountInString(h.RequestedHostname) > 253:
		return Refuse(Invalid, "HostnameInvalid", "a host name has at most 253 characters")
	case h.InstallerArgs != "" && json.Unmarshal([]byte(h.InstallerArgs), &[]string{}) != nil:
		return Refuse(Invalid, "InstallerArgsInvalid", "installer_args is not a JSON list of strings")
	case h.MachineConfigPool != "" && h.Role != "worker" && h.Role != autoAssign:
		return Refuse(Invalid, "MachineConfigPoolInvalid", "machine_config_pool_name needs role worker")
	}
	for _, err := range []error{
		oneLine(map[string]string{"host_name": h.RequestedHostname, "machine_config_pool_name": h.MachineConfigPool}),
		checkIgnition("ignition_config_overrides", h.IgnitionConfigOverrides), checkLabels(h.NodeLabels),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkName is for names of InfraEnvs and clusters.
func checkName(name string) error {
	if name == "" || utf8.RuneCountInString(name) > 253 {
		return Refuse(Invalid, "NameInvalid", "name must have 1 to 253 characters")
	}
	return oneLine(map[string]string{"name": name})
}

// oneLine refuses control characters: these settings become parts of lines in files of others, where a line break would begin another line.
func oneLine(settings map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if strings.ContainsFunc(settings[name], unicode.IsControl) {
			return Refuse(Invalid, "ControlCharacter", "%s has a line break or another control character: leave it out", name)
		}
	}
	return nil
}

// checkKeys is oneLine for settings with one key in each line.
func checkKeys(what, keys string) error {
	for line := range strings.Lines(keys) {
		if err := oneLine(map[string]string{what: strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", " ")}); err != nil {
			return err
		}
	}
	return nil
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// isHost is true for an IP address, and for a name. What consists of numbers and dots is an address, or nothing.
func isHost(s string) bool {
	if isAddress(s) {
		return true
	}
	if strings.Trim(s, "0123456789.") == "" {
		return false
	}
	return len(validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(s, ".")))) == 0
}

// checkHosts is for lists of names and addresses, comma separated.
func checkHosts(what, list string) error {
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); one != "" && !isHost(one) {
			return Refuse(Invalid, "AddressInvalid", "%s: %q is neither a name nor an IP address", what, bound(one, 256))
		}
	}
	return nil
}

// checkProxy does not repeat addresses: they may hold a password.
func checkProxy(p Proxy) error {
	for what, address := range map[string]string{"http_proxy": p.HTTP, "https_proxy": p.HTTPS} {
		if address == "" {
			continue
		}
		parsed, err := url.Parse(address)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || !isHost(parsed.Hostname()) {
			return Refuse(Invalid, "ProxyInvalid", "%s is not the URL of a proxy: write http://host:port", what)
		}
	}
	for one := range strings.SplitSeq(p.NoProxy, ",") {
		one = strings.TrimSpace(one)
		_, err := netip.ParsePrefix(one)
		host, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(one, "*"), "."), ":")
		if one != "" && one != "*" && err != nil && !isAddress(one) && !isHost(host) {
			return Refuse(Invalid, "ProxyInvalid", "no_proxy: %q is neither a name, an IP address nor a network", bound(one, 256))
		}
	}
	return nil
}

// checkPullSecret does not say what is wrong in more words: they would be parts of a secret.
func checkPullSecret(secret string) error {
	var content struct {
		Auths map[string]json.RawMessage `json:"auths"`
	}
	if secret != "" && (json.Unmarshal([]byte(secret), &content) != nil || content.Auths == nil) {
		return Refuse(Invalid, "PullSecretInvalid", `the pull secret is not a JSON object with credentials under "auths"`)
	}
	return nil
}

// ignitionVersion is that of configurations that CoreOS of today understands.
var ignitionVersion = regexp.MustCompile(`^3\.[0-6]\.0$`)

func checkIgnition(what, config string) error {
	if config == "" {
		return nil
	}
	var content struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	switch {
	case !json.Valid([]byte(config)):
		return Refuse(Invalid, "IgnitionInvalid", "%s is not JSON", what)
	case json.Unmarshal([]byte(config), &content) != nil:
		return Refuse(Invalid, "IgnitionInvalid", "%s is not a configuration of ignition: it needs an object with ignition.version", what)
	case !ignitionVersion.MatchString(content.Ignition.Version):
		return Refuse(Invalid, "IgnitionInvalid", "%s has ignition.version %q: write one from 3.0.0 to 3.6.0", what, bound(content.Ignition.Version, 32))
	}
	return nil
}

func checkCertificates(what, bundle string) error {
	rest := []byte(bundle)
	for n := 1; strings.TrimSpace(string(rest)) != ""; n++ {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil && n > 1 && !strings.Contains(string(rest), "-----BEGIN") {
			return nil // a remark at the end
		}
		if block == nil || block.Type != "CERTIFICATE" {
			return Refuse(Invalid, "TrustBundleInvalid", "%s: number %d is not a certificate in PEM", what, n)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return Refuse(Invalid, "TrustBundleInvalid", "%s: certificate %d cannot be read", what, n)
		}
	}
	return nil
}

// maxKernelArguments is the room that live images have for a whole command line.
const maxKernelArguments = 2048

func checkKernelArguments(arguments []KernelArgument) error {
	size := 0
	for _, k := range arguments {
		switch {
		case !slices.Contains([]string{"append", "replace", "delete"}, k.Operation) || k.Value == "":
			return Refuse(Invalid, "KernelArgumentsInvalid", "kernel argument %q with operation %q: write append, replace or delete and a value", bound(k.Value, 256), bound(k.Operation, 32))
		case strings.ContainsFunc(k.Value, unicode.IsControl):
			// Boot loaders read what follows a line break as a command of theirs.
			return Refuse(Invalid, "KernelArgumentsInvalid", "kernel argument %q has a line break or another control character: leave it out", bound(k.Value, 256))
		case k.Operation != "delete":
			size += len(k.Value) + 1
		}
	}
	if size > maxKernelArguments {
		return Refuse(Invalid, "KernelArgumentsInvalid", "kernel arguments have %d bytes: live images have room for at most %d", size, maxKernelArguments)
	}
	return nil
}

func checkNetworks(config json.RawMessage) error {
	if len(config) == 0 {
		return nil
	}
	statements, err := nmstate.Read(config)
	if err != nil {
		return Refuse(Invalid, "NetworkInvalid", "static_network_config is not a list of networks of machines")
	}
	for n, statement := range statements {
		if !statement.IsMapping() {
			return Refuse(Invalid, "NetworkInvalid", "network_yaml of entry %d of static_network_config is not a mapping in YAML: write what nmstate shall make, such as interfaces", n+1)
		}
	}
	return nil
}

func checkLabels(labels map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		value := labels[name]
		if wrong := append(validation.IsQualifiedName(name), validation.IsValidLabelValue(value)...); len(wrong) > 0 {
			return Refuse(Invalid, "LabelInvalid", "label %q with value %q: %s", bound(name, 320), bound(value, 64), wrong[0])
		}
	}
	return nil
}
