// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/join"
)

// Configurations of containerd in the image: the second adds the network of pods, for which the kubelet tells the node's range.
const (
	containerdConfig        = "/usr/share/muster/containerd.toml"
	containerdNetworkConfig = "/usr/share/muster/containerd-network.toml"
)

// kubeletSettings are the image's.
var kubeletSettings = map[string]any{
	// The root is read-only.
	"volumePluginDir": "/var/lib/kubelet/volume-plugins",
	"failSwapOn":      false,
	// There is no systemd.
	"cgroupDriver": "cgroupfs",
	// Changed parameters of the kernel are an error of the image, not of a node.
	"protectKernelDefaults": true,
}

func containerdArguments(v join.Values) []string {
	config := containerdConfig
	if v.Network == join.HostGateway {
		config = containerdNetworkConfig
	}
	return []string{"--config=" + config, "--log-level=warn"}
}

func kubeletArguments(v join.Values) []string {
	arguments := []string{
		"--config=" + join.KubeletConfigurationPath, "--bootstrap-kubeconfig=" + join.BootstrapKubeconfigPath, "--kubeconfig=" + join.KubeconfigPath,
		"--cert-dir=" + join.CertificatesPath, "--hostname-override=" + v.NodeName,
	}
	if len(v.NodeIPs) > 0 {
		arguments = append(arguments, "--node-ip="+commas(v.NodeIPs, netip.Addr.String))
	}
	if len(v.Labels) > 0 {
		labels := slices.Sorted(maps.Keys(v.Labels))
		arguments = append(arguments, "--node-labels="+commas(labels, func(name string) string { return name + "=" + v.Labels[name] }))
	}
	return arguments
}

// kubeProxyArguments use the kubelet's certificate.
func kubeProxyArguments(v join.Values) []string {
	arguments := []string{
		"--kubeconfig=" + join.KubeconfigPath, "--proxy-mode=nftables", "--hostname-override=" + v.NodeName,
		// Health and metrics are served to the machine itself.
		"--healthz-bind-address=127.0.0.1:10256", "--metrics-bind-address=127.0.0.1:10249",
		// The kernel has its own limits.
		"--conntrack-max-per-core=0",
	}
	if len(v.PodCIDRs) > 0 {
		arguments = append(arguments, "--cluster-cidr="+commas(v.PodCIDRs, netip.Prefix.String))
	}
	return arguments
}

// podNetworkArguments use the kubelet's certificate, too.
func podNetworkArguments(v join.Values) []string {
	return []string{"--kubeconfig=" + join.KubeconfigPath, "--node=" + v.NodeName, "--pod-cidrs=" + commas(v.PodCIDRs, netip.Prefix.String)}
}

// commas writes values with commas between them.
func commas[T any](values []T, text func(T) string) string {
	var parts []string
	for _, v := range values {
		parts = append(parts, text(v))
	}
	return strings.Join(parts, ",")
}
