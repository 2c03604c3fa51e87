// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net"
	"net/netip"
	"regexp"
	"slices"

	"github.com/muster-io/muster/agent-service/internal/validate"
)

// todaysInstall is the argument of an install step as agents of today's system read it: they run the installer's image with it.
type todaysInstall struct {
	InfraEnvID        string       `json:"infra_env_id"`
	HostID            string       `json:"host_id"`
	ClusterID         string       `json:"cluster_id"`
	Role              string       `json:"role"`
	BootDevice        string       `json:"boot_device"`
	InstallerImage    string       `json:"installer_image"`
	ControllerImage   string       `json:"controller_image"`
	CheckCVO          bool         `json:"check_cvo"`
	ControlPlaneCount int          `json:"control_plane_count"`
	OpenshiftVersion  string       `json:"openshift_version,omitempty"`
	InstallerArgs     string       `json:"installer_args,omitempty"`
	Proxy             *todaysProxy `json:"proxy,omitempty"`
}

type todaysProxy struct {
	HTTP    string `json:"http_proxy,omitempty"`
	HTTPS   string `json:"https_proxy,omitempty"`
	NoProxy string `json:"no_proxy,omitempty"`
}

// todaysLogs is the argument of a logs-gather step.
type todaysLogs struct {
	InfraEnvID      string   `json:"infra_env_id"`
	HostID          string   `json:"host_id"`
	ClusterID       string   `json:"cluster_id"`
	Bootstrap       bool     `json:"bootstrap"`
	InstallerGather bool     `json:"installer_gather"`
	MasterIPs       []string `json:"master_ips,omitempty"`
}

// versionNumber is what agents of today's system can read as a version; others are left out.
var versionNumber = regexp.MustCompile(`^[0-9]+(\.[0-9]+){0,2}([-+][0-9A-Za-z.-]+)?$`)

// todaysArguments are those of steps that agents of today's system read in another way than ours; own is false for the other steps.
func (s *Service) todaysArguments(h *Host, c *Cluster, t StepType) (arguments []string, own bool) {
	switch t {
	case StepInstall:
		return []string{encodeArgument(s.todaysInstall(h, c))}, true
	case StepImageAvailability:
		// They ask registries only, and the installer's image is what they need.
		return []string{encodeArgument(map[string]any{"images": slices.Concat([]string{s.InstallerImage}, s.RegistryImages), "timeout": 960})}, true
	case StepAPIConnectivity:
		// They fetch what the cluster's machine config server has for workers.
		if !h.DayTwo || len(c.APIVIPs) == 0 {
			return nil, false
		}
		return []string{encodeArgument(map[string]string{"url": "http://" + net.JoinHostPort(c.APIVIPs[0], "22624") + "/config/worker"})}, true
	case StepLogsGather:
		return []string{encodeArgument(s.todaysLogs(h, c))}, true
	default:
		return nil, false
	}
}

func (s *Service) todaysInstall(h *Host, c *Cluster) todaysInstall {
	disk, _ := validate.Disk(s.subject(h), s.Minimums)
	step := todaysInstall{
		InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: c.ID, Role: h.Role, BootDevice: disk.Path, InstallerImage: s.InstallerImage, ControllerImage: s.InstallerImage,
		ControlPlaneCount: c.ControlPlaneCount, InstallerArgs: h.InstallerArgs,
	}
	if h.Bootstrap {
		step.Role = "bootstrap"
	}
	if versionNumber.MatchString(c.OpenshiftVersion) {
		step.OpenshiftVersion = c.OpenshiftVersion
	}
	if c.Proxy != (Proxy{}) {
		step.Proxy = &todaysProxy{HTTP: c.Proxy.HTTP, HTTPS: c.Proxy.HTTPS, NoProxy: c.Proxy.NoProxy}
	}
	return step
}

func (s *Service) todaysLogs(h *Host, c *Cluster) todaysLogs {
	logs := todaysLogs{InfraEnvID: h.InfraEnvID, HostID: h.HostID, ClusterID: c.ID, Bootstrap: h.Bootstrap, InstallerGather: h.Bootstrap}
	if !h.Bootstrap {
		return logs
	}
	for _, key := range s.hosts.ofCluster(c.ID) {
		e := s.hosts.get(key)
		if e == nil {
			continue
		}
		e.mu.Lock()
		other := e.host
		e.mu.Unlock()
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
