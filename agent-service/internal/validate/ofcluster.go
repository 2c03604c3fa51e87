// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package validate

import "fmt"

// Categories of validations of clusters, beside Network.
const (
	Configuration = "configuration"
	HostsData     = "hosts-data"
)

// ClusterSubject is what validations of a cluster look at.
type ClusterSubject struct {
	PullSecretSet bool
	BaseDomain    string
	// APIVIPs counts the addresses of the API; NoAPIVIPs is true for a cluster that needs none.
	APIVIPs   int
	NoAPIVIPs bool
	// ControlPlaneCount is how many hosts of the control plane the installation needs.
	ControlPlaneCount int
	// Counted is false where the hosts are not counted yet: what depends on them is pending. ControlPlaneHosts and UnreadyHosts are of the hosts that are bound.
	Counted           bool
	ControlPlaneHosts int
	UnreadyHosts      int
}

// OfCluster looks at a cluster itself. Ids and categories are those of assisted-service.
func OfCluster(s ClusterSubject) []Result {
	hosts := func(ok bool, good, bad string) Outcome {
		if !s.Counted {
			return pending("The hosts of the cluster are not counted yet")
		}
		return passes(ok, good, bad)
	}
	result := func(id, category string, o Outcome) Result {
		return Result{ID: id, Category: category, Status: o.Status, Message: o.Message}
	}
	return []Result{
		result("pull-secret-set", Configuration, passes(s.PullSecretSet, "The pull secret is set", "The cluster has no pull secret: set one")),
		result("dns-domain-defined", Network, passes(s.BaseDomain != "", "The base domain is defined", "The cluster has no base domain: set one")),
		result("api-vips-defined", Network, passes(s.NoAPIVIPs || s.APIVIPs > 0, "The addresses of the API are defined, or not needed",
			"The addresses of the API are not defined: set them, or user managed networking")),
		result("all-hosts-are-ready-to-install", HostsData, hosts(s.UnreadyHosts == 0, "All hosts in the cluster are ready to install",
			"Not ready to install: "+countHosts(s.UnreadyHosts)+" of the cluster")),
		result("sufficient-masters-count", HostsData, hosts(s.ControlPlaneHosts >= s.ControlPlaneCount, "The cluster has the hosts of its control plane",
			fmt.Sprintf("The cluster needs %s of the control plane and has %d", countHosts(s.ControlPlaneCount), s.ControlPlaneHosts))),
	}
}

func countHosts(n int) string {
	if n == 1 {
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", n)
}
