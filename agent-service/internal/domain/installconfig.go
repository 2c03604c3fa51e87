// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"encoding/json"
	"fmt"
	"maps"
)

// InstallConfig is the cluster as installers describe it, without its pull secret, with a JSON object laid over it, empty for none.
func (c *Cluster) InstallConfig(overrides []byte) (map[string]any, error) {
	config := c.installConfig()
	if len(overrides) > 0 {
		var patch map[string]any
		if err := json.Unmarshal(overrides, &patch); err != nil {
			return nil, fmt.Errorf("reading the overrides of cluster %s: %w", c.ID, err)
		}
		merge(config, patch)
	}
	return config, nil
}

func (c *Cluster) installConfig() map[string]any {
	list := func(values []string, field string) []any {
		var found []any
		for _, v := range values {
			one := map[string]any{field: v}
			if field == "cidr" {
				one["hostPrefix"] = 23
			}
			found = append(found, one)
		}
		return found
	}
	networking := map[string]any{"networkType": "OVNKubernetes"}
	for field, values := range map[string][]any{"machineNetwork": list(c.MachineNetworks, "cidr"), "clusterNetwork": list(c.ClusterNetworks, "cidr")} {
		for _, v := range values {
			if field == "machineNetwork" {
				delete(v.(map[string]any), "hostPrefix")
			}
		}
		if len(values) > 0 {
			networking[field] = values
		}
	}
	if len(c.ServiceNetworks) > 0 {
		networking["serviceNetwork"] = c.ServiceNetworks
	}
	platform := map[string]any{"none": map[string]any{}}
	if len(c.APIVIPs) > 0 && !c.UserManagedNetworking {
		platform = map[string]any{"baremetal": map[string]any{"apiVIPs": c.APIVIPs, "ingressVIPs": c.IngressVIPs}}
	}
	config := map[string]any{
		"apiVersion": "v1", "metadata": map[string]any{"name": c.Name}, "baseDomain": c.BaseDNSDomain, "networking": networking, "platform": platform,
		"controlPlane": map[string]any{"name": "master", "replicas": c.ControlPlaneCount}, "compute": []any{map[string]any{"name": "worker", "replicas": c.WorkerCount}},
	}
	if c.SSHPublicKey != "" {
		config["sshKey"] = c.SSHPublicKey
	}
	if c.Proxy != (Proxy{}) {
		proxy := map[string]any{"httpProxy": c.Proxy.HTTP, "httpsProxy": c.Proxy.HTTPS, "noProxy": c.Proxy.NoProxy}
		maps.DeleteFunc(proxy, func(_ string, v any) bool { return v == "" })
		config["proxy"] = proxy
	}
	return config
}

// merge lays one tree over another; null takes a branch away.
func merge(into, over map[string]any) {
	for key, value := range over {
		branch, isBranch := value.(map[string]any)
		below, wasBranch := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isBranch && wasBranch:
			merge(below, branch)
		default:
			into[key] = value
		}
	}
}
