// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

// conventionExceptions says which places of the schemas are exempt from the conventions, and why. A key is the name of a CRD ("*" for all) and a
// path; what is below the path is exempt too.
var conventionExceptions = map[string]string{
	"clusterpools.hive.openshift.io .spec.installerEnv[]":                                       "EnvVar of Kubernetes itself, taken as it is",
	"clusterdeployments.hive.openshift.io .spec.provisioning.installerEnv[]":                    "EnvVar of Kubernetes itself, taken as it is",
	"clusterclaims.hive.openshift.io .spec.subjects[]":                                          "Subject of Kubernetes' RBAC, taken as it is",
	"clusterpools.hive.openshift.io .spec.platform.agentBareMetal.agentSelector":                "LabelSelector of Kubernetes itself, taken as it is",
	"clusterdeployments.hive.openshift.io .spec.platform.agentBareMetal.agentSelector":          "LabelSelector of Kubernetes itself, taken as it is",
	"baremetalhosts.metal3.io .spec.consumerRef":                                                "ObjectReference of Kubernetes itself, taken as it is",
	"baremetalhosts.metal3.io .spec.metaData":                                                   "SecretReference of Kubernetes itself, taken as it is",
	"baremetalhosts.metal3.io .spec.networkData":                                                "SecretReference of Kubernetes itself, taken as it is",
	"baremetalhosts.metal3.io .spec.userData":                                                   "SecretReference of Kubernetes itself, taken as it is",
	"baremetalhosts.metal3.io .status.goodCredentials.credentials":                              "SecretReference of Kubernetes itself, taken as it is",
	"baremetalhosts.metal3.io .status.triedCredentials.credentials":                             "SecretReference of Kubernetes itself, taken as it is",
	"ipclaims.ipam.metal3.io .spec.poolSelector":                                                "LabelSelector of Kubernetes itself, taken as it is",
	"ipclaims.ipam.metal3.io .spec.additionalAddresses[].poolSelector":                          "LabelSelector of Kubernetes itself, taken as it is",
	"ippools.ipam.metal3.io .spec.allowedNamespaces.selector":                                   "LabelSelector of Kubernetes itself, taken as it is",
	"clusterpools.hive.openshift.io .spec.machinePools[].platform.agentBareMetal.agentSelector": "LabelSelector of Kubernetes itself, taken as it is",
	"machinepools.hive.openshift.io .spec.platform.agentBareMetal.agentSelector":                "LabelSelector of Kubernetes itself, taken as it is",
	"clusterpools.hive.openshift.io .spec.machinePools[].taints[]":                              "Taint of Kubernetes itself, taken as it is",
	"machinepools.hive.openshift.io .spec.taints[]":                                             "Taint of Kubernetes itself, taken as it is",
	"infraenvs.agent-install.openshift.io .spec.allowedClusters.namespaces.selector":            "LabelSelector of Kubernetes itself, taken as it is",
	"agentreservations.agent-install.openshift.io .spec.agentSelector":                          "LabelSelector of Kubernetes itself, taken as it is",
	"infraenvs.agent-install.openshift.io .spec.nmStateConfigLabelSelector":                     "LabelSelector of Kubernetes itself, taken as it is",
	"infraenvs.agent-install.openshift.io .status.agentLabelSelector":                           "LabelSelector of Kubernetes itself, taken as it is",
}
