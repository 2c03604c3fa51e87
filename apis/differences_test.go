// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

// knownDifferences says where a kind of ours refuses an object that the same kind of the legacy system accepts, and why. A key is the name of a CRD and a
// path; what is below the path is covered too.
var knownDifferences = map[string]string{
	"clusterpools.hive.openshift.io .spec.inventory":                                                             "lists cluster names, and was a list of customizations; a policy says how to rewrite it",
	"clusterpools.hive.openshift.io .spec.maxSize":                                                               "a negative number meant a pool that can never have a cluster; it is refused with a sentence",
	"clusterpools.hive.openshift.io .spec.maxConcurrent":                                                         "a negative number meant a pool that stands still, as 0 does; it is refused with a sentence",
	"baremetalhosts.metal3.io .status.provisioningFailCount":                                                     "is required as in the newer of the two forms in the field, and has a default",
	"ippools.ipam.metal3.io .spec.namePrefix":                                                                    "must give valid object names; a pool with another prefix never handed out an address",
	"ippools.ipam.metal3.io .spec.prefix":                                                                        "a negative prefix never meant anything; it is refused",
	"ippools.ipam.metal3.io .spec.pools[].prefix":                                                                "a negative prefix never meant anything; it is refused",
	"ipaddresses.ipam.metal3.io .spec.prefix":                                                                    "a negative prefix never meant anything; it is refused",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io versions":                                               "v1beta2 is served by the provider that brings it; what its manifests say otherwise than v1beta1 is taken in v1beta1 too",
	"metal3dataclaims.infrastructure.cluster.x-k8s.io versions":                                                  "v1beta2 is served by the provider that brings it",
	"metal3datas.infrastructure.cluster.x-k8s.io versions":                                                       "v1beta2 is served by the provider that brings it",
	"metal3datas.infrastructure.cluster.x-k8s.io .spec.index":                                                    "a negative index never meant anything; it is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.links.bonds[].mtu":                    "IPv6 needs 1280; less is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.links.ethernets[].mtu":                "IPv6 needs 1280; less is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.links.vlans[].mtu":                    "IPv6 needs 1280; less is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.links.vlans[].vlanID":                 "a negative tag never meant anything; it is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.networks.ipv4[].routes[].prefix":      "a negative prefix never meant anything; it is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.networks.ipv4DHCP[].routes[].prefix":  "a negative prefix never meant anything; it is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.networks.ipv6[].routes[].prefix":      "a negative prefix never meant anything; it is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.networks.ipv6DHCP[].routes[].prefix":  "a negative prefix never meant anything; it is refused, as in v1beta2",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.networks.ipv6SLAAC[].routes[].prefix": "a negative prefix never meant anything; it is refused, as in v1beta2",
}
