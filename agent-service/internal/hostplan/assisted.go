// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostplan

import (
	"net"
	"net/netip"
	"regexp"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
)

// versionNumber is what agents of assisted-service can read as a version; others are left out.
var versionNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+){0,2}([-+][0-9A-Za-z.-]+)?$`)

// assistedDiskTimeout is how many seconds agents of assisted-service may take to measure a disk.
const assistedDiskTimeout = "480.00"

// assistedArguments are those of steps that agents of assisted-service read in another way than ours; own is false for the other steps.
func (r *Rules) assistedArguments(h *domain.Host, t agentproto.StepType, k Known) (arguments []string, own bool) {
	c := k.Cluster
	switch t {
	case agentproto.StepInstall:
		return []string{agentproto.Argument(r.assistedInstall(h, c))}, true
	case agentproto.StepImageAvailability:
		// They ask registries only, and the installer's image is what they need.
		return []string{agentproto.Argument(agentproto.ImagesArgs{Images: slices.Concat([]string{r.InstallerImage}, r.RegistryImages), Timeout: 960})}, true
	case agentproto.StepAPIConnectivity:
		// They fetch what the cluster's machine config server has for workers.
		if !h.DayTwo || len(c.APIVIPs) == 0 {
			return nil, false
		}
		return []string{agentproto.Argument(agentproto.APIArgs{URL: "http://" + net.JoinHostPort(c.APIVIPs[0], "22624") + "/config/worker"})}, true
	case agentproto.StepLogsGather:
		return []string{agentproto.Argument(logsArgs(h, c, k.Members))}, true
	default:
		return nil, false
	}
}

func (r *Rules) assistedInstall(h *domain.Host, c *domain.Cluster) agentproto.AssistedInstallArgs {
	step := agentproto.AssistedInstallArgs{
		InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: c.ID, Role: h.Role, BootDevice: r.device(h), InstallerImage: r.InstallerImage, ControllerImage: r.InstallerImage,
		ControlPlaneCount: c.ControlPlaneCount, InstallerArgs: h.InstallerArgs,
	}
	if h.Bootstrap {
		step.Role = "bootstrap"
	}
	if versionNumber.MatchString(c.OpenshiftVersion) {
		step.OpenshiftVersion = c.OpenshiftVersion
	}
	if c.Proxy != (domain.Proxy{}) {
		step.Proxy = &agentproto.AssistedProxy{HTTP: c.Proxy.HTTP, HTTPS: c.Proxy.HTTPS, NoProxy: c.Proxy.NoProxy}
	}
	return step
}

func logsArgs(h *domain.Host, c *domain.Cluster, members []*domain.Host) agentproto.LogsArgs {
	logs := agentproto.LogsArgs{InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: c.ID, Bootstrap: h.Bootstrap, InstallerGather: h.Bootstrap}
	if !h.Bootstrap {
		return logs
	}
	for _, other := range members {
		if other.Role != "master" || len(other.Summary.Addresses) == 0 {
			continue
		}
		if prefix, err := netip.ParsePrefix(other.Summary.Addresses[0]); err == nil {
			logs.MasterIPs = append(logs.MasterIPs, prefix.Addr().String())
		}
	}
	slices.Sort(logs.MasterIPs)
	return logs
}
