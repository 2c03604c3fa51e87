// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

// knownDifferences says where a kind of ours refuses an object that the same kind of the legacy system accepts, and why. A key is the name of a CRD and a
// path, and what is below the path is covered too; or the name of a CRD and what the comparison says.
var knownDifferences = map[string]string{
	"clusterpools.hive.openshift.io .spec.inventory":                                                             "lists cluster names, and was a list of customizations; a policy says how to rewrite it",
	"clusterpools.hive.openshift.io .spec.maxSize":                                                               "a negative number meant a pool that can never have a cluster; it is refused with a sentence",
	"clusterpools.hive.openshift.io .spec.maxConcurrent":                                                         "a negative number meant a pool that stands still, as 0 does; it is refused with a sentence",
	"baremetalhosts.metal3.io .status.provisioningFailCount":                                                     "is required as in the newer of the two forms in the field, and has a default",
	"ippools.ipam.metal3.io .spec.namePrefix":                                                                    "must give valid object names; a pool with another prefix never handed out an address",
	"ippools.ipam.metal3.io .spec.prefix":                                                                        "a negative prefix never meant anything; it is refused",
	"ippools.ipam.metal3.io .spec.pools[].prefix":                                                                "a negative prefix never meant anything; it is refused",
	"ipaddresses.ipam.metal3.io .spec.prefix":                                                                    "a negative prefix never meant anything; it is refused",
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
	"metal3datatemplates.infrastructure.cluster.x-k8s.io is a list of type atomic, was map":                      "the spec cannot be modified, so that its lists are never merged",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io is a list of type atomic, was set":                      "the spec cannot be modified, so that its lists are never merged",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io lost the default \"IPPool\"":                            "no kind means an IPPool in both versions; a default would be a change of a spec that cannot be modified",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io lost the default \"ipam.metal3.io\"":                    "no group means that of IPPools in both versions",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io is integer, was integer int32":                          "as in v1beta1",
	"metal3datatemplates.infrastructure.cluster.x-k8s.io .spec.networkData.links.bonds[].parameters[].value":     "takes strings and numbers, as in v1beta1, besides objects",
	"metal3datas.infrastructure.cluster.x-k8s.io .spec.claim":                                                    "names the claim: data without one means nothing",
	"metal3datas.infrastructure.cluster.x-k8s.io .spec.template":                                                 "names the template: data without one means nothing",
	"metal3dataclaims.infrastructure.cluster.x-k8s.io .spec.template":                                            "names the template: a claim without one asks for nothing",

	`* has the default {"observedGeneration":-1}`: "until a controller has looked at an object it is not as it should be, and tools that wait for it wait",
	`* has the default {"conditions":[{"message":"agent-service has not looked at the object yet","reason":"Initialized","status":"Unknown","type":"Ready"}]}`: "until a controller has looked at an object it is not as it should be, and tools that wait for it wait",
	`* has the default {"conditions":[{"message":"pool-operator has not looked at the object yet","reason":"Initialized","status":"Unknown","type":"Ready"}]}`: "until a controller has looked at an object it is not as it should be, and tools that wait for it wait",
}
