// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

// Node access lets machines join a cluster as nodes. It is a Secret of type SecretTypeNodeAccess in the namespace of the
// ClusterDeployment, written by the installer of the cluster, or by a user for any other Kubernetes cluster. Its reader
// makes bootstrap tokens, approves certificate requests of nodes, and deletes nodes; it needs no administrator's rights.

// SecretTypeNodeAccess is the type of Secrets of node access. The type of a Secret is immutable.
const SecretTypeNodeAccess = "hive.openshift.io/node-access"

// Keys of a Secret of node access. Its kubeconfig is under SecretKeyKubeconfig.
const (
	// NodeAccessKeyServer is the key of the API server's URL as machines reach it: https, a host and a port, no path.
	// Required. It can differ from the server of the kubeconfig, which is the address for controllers.
	NodeAccessKeyServer = "server"
	// NodeAccessKeyTLSServerName is the key of the name that the API server's certificate is verified for, where the
	// certificate does not name the host of NodeAccessKeyServer. Optional.
	NodeAccessKeyTLSServerName = "tls-server-name"
	// NodeAccessKeyCA is the key of the PEM certificates that sign the API server's certificate and those of kubelets.
	// Required.
	NodeAccessKeyCA = "ca.crt"
	// NodeAccessKeyClusterDNS is the key of the addresses of the cluster's resolver, separated by commas. Optional:
	// without it, pods use the resolvers of their node.
	NodeAccessKeyClusterDNS = "cluster-dns"
	// NodeAccessKeyClusterDomain is the key of the cluster's DNS domain. Optional: DefaultClusterDomain.
	NodeAccessKeyClusterDomain = "cluster-domain"
	// NodeAccessKeyPodCIDR is the key of the networks of pods, at most one per address family, separated by a comma.
	// Optional where NodeAccessKeyNetwork is NodeNetworkNone.
	NodeAccessKeyPodCIDR = "pod-cidr"
	// NodeAccessKeyServiceCIDR is the key of the networks of Services, at most one per address family, separated by a
	// comma. Optional.
	NodeAccessKeyServiceCIDR = "service-cidr"
	// NodeAccessKeyKubernetesVersion is the key of the version of the API server, v1.2.3. Required: nodes run the same
	// minor, or one of the three before.
	NodeAccessKeyKubernetesVersion = "kubernetes-version"
	// NodeAccessKeyNetwork is the key of the network among pods: NodeNetworkHostGateway or NodeNetworkNone. Optional:
	// NodeNetworkNone.
	NodeAccessKeyNetwork = "network"
)

// Values of NodeAccessKeyNetwork.
const (
	// NodeNetworkHostGateway has each node route to the pods of others by their node's address. The nodes share a link.
	NodeNetworkHostGateway = "host-gw"
	// NodeNetworkNone leaves the network to a CNI plugin that the user installs in the cluster.
	NodeNetworkNone = "none"
)

// DefaultClusterDomain is the DNS domain of a cluster whose node access names none.
const DefaultClusterDomain = "cluster.local"

// NodeBootstrapGroup is the group of the bootstrap tokens that machines join with. The cluster binds it to the ClusterRole
// system:node-bootstrapper, and to no role that approves certificates.
const NodeBootstrapGroup = "system:bootstrappers:muster"
