// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

// Names of the two authorities of a cluster. The second one signs only proxies of aggregated APIs, so that no other client can name users.
const (
	ClusterAuthority = "kubernetes"
	ProxyAuthority   = "front-proxy-ca"
)

// APIServer describes the serving certificate of an API server that answers at the hosts, which are names or addresses, and as a Service in its cluster.
func APIServer(hosts ...string) Leaf {
	leaf := Server(append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}, hosts...)...)
	leaf.User = "kube-apiserver"
	return leaf
}

// Admin describes the certificate of a cluster's administrator.
func Admin() Leaf { return Client("system:admin", "system:masters") }

// ControllerManager describes the certificate of kube-controller-manager.
func ControllerManager() Leaf { return Client("system:kube-controller-manager") }

// Scheduler describes the certificate of kube-scheduler.
func Scheduler() Leaf { return Client("system:kube-scheduler") }

// KubeletClient describes the certificate of the API server as a client of kubelets; the cluster gives its rights to the group.
func KubeletClient(group string) Leaf { return Client("kube-apiserver-kubelet-client", group) }

// FrontProxy describes the certificate of the API server as a proxy of aggregated APIs. ProxyAuthority signs it.
func FrontProxy() Leaf { return Client("front-proxy-client") }
