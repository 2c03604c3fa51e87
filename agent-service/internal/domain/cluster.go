// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// Cluster is what hosts are bound to.
type Cluster struct {
	// ID is a UUID; that of a custom resource is the UID of its ClusterDeployment.
	ID   string
	Name string
	Owner
	Kube KubeRef
	ClusterSettings
	Status             lifecycle.ClusterState
	StatusInfo         string
	StatusUpdatedAt    time.Time
	InstallStartedAt   time.Time
	InstallCompletedAt time.Time
	Preparation        Preparation `json:",omitzero"`
	// RestoredAt is when the cluster came back as installed after the service lost its data, zero for others.
	RestoredAt time.Time `json:",omitzero"`
	// ControlPlane is that which hosts of the cluster run, nil for clusters whose control plane the service does not make.
	ControlPlane *ControlPlane `json:",omitempty"`
	// Kubeconfig is a secret, kept once the cluster is installed.
	Kubeconfig string
	// HostCount, ReadyHostCount and InstalledHostCount are of the hosts that are bound.
	HostCount          int
	ReadyHostCount     int
	InstalledHostCount int
	// InstallPercentage is the mean of the hosts that take part in the installation, 0 to 100.
	InstallPercentage int `json:",omitempty"`
	// Readiness is of the same hosts, nil where none was bound since the service counts it.
	Readiness *Readiness `json:",omitempty"`
	CreatedAt time.Time
	UpdatedAt time.Time
	Revision  int64
}

// Readiness counts hosts of a cluster for its validations.
type Readiness struct {
	// ControlPlane counts hosts of the control plane: masters, and hosts without a role as far as masters are missing.
	ControlPlane int
	// Unready hosts can neither be installed nor are they.
	Unready int
}

// Preparation is what became of the checks before an installation, until they pass or what is stated of the cluster changes.
type Preparation struct {
	// Failures is how often they failed in a row. Why says of the last time which hosts failed, and of what.
	Failures int    `json:",omitempty"`
	Why      string `json:",omitempty"`
	// RetryAt is when an installation may begin again by itself.
	RetryAt time.Time `json:",omitzero"`
	// Cancelled: a user ended them. The installation does not begin again by itself.
	Cancelled bool `json:",omitempty"`
}

// ClusterSettings are what a user states of a cluster.
type ClusterSettings struct {
	// OpenshiftVersion chooses the image that agents write.
	OpenshiftVersion string
	CPUArchitecture  string
	BaseDNSDomain    string
	// ControlPlaneCount and WorkerCount are how many hosts the installation waits for. Default 3 and 0.
	ControlPlaneCount int
	WorkerCount       int
	MachineNetworks   []string
	ClusterNetworks   []string
	ServiceNetworks   []string
	APIVIPs           []string
	IngressVIPs       []string
	// APIURL is where an installed cluster that takes nodes is reached, https://host:port; empty for others.
	APIURL string `json:",omitempty"`
	// UserManagedNetworking: addresses of the API are not ours to check.
	UserManagedNetworking bool
	// PullSecret is for the installed cluster only. It is a secret: nothing shows it but the first-boot data, which an agent gets while it installs.
	PullSecret           string
	SSHPublicKey         string
	Proxy                Proxy
	AdditionalNTPSources string
	// Imported clusters are installed already and take hosts (kind AddHostsCluster).
	Imported bool
	// OpenshiftClusterID is what an imported cluster calls itself. It proves nothing: its ID here is another one.
	OpenshiftClusterID string `json:",omitempty"`
	// HoldInstallation keeps a cluster that is ready from installing by itself; Install starts it.
	HoldInstallation bool
	// IgnoredValidations are ids that do not block. connected and has-inventory cannot be ignored.
	IgnoredValidations []string
}

// Missing says why a cluster is not ready.
func (c *Cluster) Missing(members []*Host) string {
	var valid, approved int
	for _, h := range members {
		if h.State == lifecycle.Known {
			valid++
			if h.Approved {
				approved++
			}
		}
	}
	return strings.Join([]string{
		"it needs " + hostCount(c.Wanted()), hostCount(len(members)) + " bound", hostCount(valid) + " valid", hostCount(approved) + " approved and valid",
	}, ", ")
}

func hostCount(n int) string {
	if n == 1 {
		return "1 host"
	}
	return strconv.Itoa(n) + " hosts"
}

// Validations are those of the cluster itself, by the counts of its hosts. An imported cluster is installed already and has none.
func (c *Cluster) Validations() []validate.Result {
	if c.Imported {
		return nil
	}
	s := validate.ClusterSubject{
		PullSecretSet: c.PullSecret != "", BaseDomain: c.BaseDNSDomain, APIVIPs: len(c.APIVIPs), NoAPIVIPs: c.UserManagedNetworking || c.ControlPlaneCount == 1,
		ControlPlaneCount: c.ControlPlaneCount, Counted: c.Readiness != nil || c.HostCount == 0,
	}
	if c.Readiness != nil {
		s.ControlPlaneHosts, s.UnreadyHosts = c.Readiness.ControlPlane, c.Readiness.Unready
	}
	return validate.OfCluster(s)
}

// Wanted is how many hosts an installation needs.
func (c *Cluster) Wanted() int { return max(c.ControlPlaneCount, 0) + max(c.WorkerCount, 0) }

// Restore makes a cluster what its custom resource says that it was.
func (c *Cluster) Restore(from *Restored, now time.Time) {
	c.Status, c.StatusInfo, c.StatusUpdatedAt = lifecycle.ClusterInstalled, "Cluster is installed", now
	c.InstallCompletedAt, c.RestoredAt, c.Preparation = from.InstalledAt, now, Preparation{}
	c.Kubeconfig = cmp.Or(c.Kubeconfig, from.Kubeconfig)
}

// Complete fills in defaults.
func (c *ClusterSettings) Complete() {
	c.CPUArchitecture = hardware.Architecture(cmp.Or(c.CPUArchitecture, "x86_64"))
	if c.ControlPlaneCount == 0 && c.WorkerCount == 0 && !c.Imported {
		c.ControlPlaneCount = 3
	}
}

// Check is what is wrong with the settings, nil for nothing.
func (c ClusterSettings) Check() error {
	switch {
	case !slices.Contains([]string{"x86_64", "aarch64", "ppc64le", "s390x", "multi"}, c.CPUArchitecture):
		return Refuse(Invalid, "CPUArchitectureInvalid", "cpu_architecture %q: write x86_64, aarch64, ppc64le, s390x or multi", Truncate(c.CPUArchitecture, 64))
	case c.ControlPlaneCount < 0 || c.WorkerCount < 0:
		return Refuse(Invalid, "HostCountInvalid", "counts of hosts must not be negative")
	}
	for _, network := range slices.Concat(c.MachineNetworks, c.ClusterNetworks, c.ServiceNetworks) {
		if _, err := netip.ParsePrefix(network); err != nil {
			return Refuse(Invalid, "NetworkInvalid", "%q is not a network: write an address and a prefix length", Truncate(network, 64))
		}
	}
	for _, address := range slices.Concat(c.APIVIPs, c.IngressVIPs) {
		if !isAddress(address) {
			return Refuse(Invalid, "AddressInvalid", "%q is not an IP address", Truncate(address, 64))
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
