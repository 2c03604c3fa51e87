// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"fmt"
	"net/netip"
	"strings"
)

// etcd stores the cluster. It has no network: its only client is the API server, by a socket.
func (m Machine) etcd() []string {
	return []string{
		"--name=default", "--data-dir=" + m.path("etcd"), "--listen-client-urls=unix://" + etcdSocket, "--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket, "--initial-advertise-peer-urls=" + noPeer, "--initial-cluster=default=" + noPeer, "--log-level=warn",
	}
}

func (m Machine) apiServer() []string {
	at, _ := m.Address() // it was validated when it was read
	return []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + at.Addr().String(), "--advertise-address=" + at.Addr().String(), fmt.Sprintf("--secure-port=%d", at.Port()),
		"--service-cluster-ip-range=" + commas(m.ServiceCIDRs),
		"--allow-privileged=true", "--authorization-mode=Node,RBAC", "--profiling=false",
		"--client-ca-file=" + m.pki("ca.crt"), "--tls-cert-file=" + m.pki("apiserver.crt"), "--tls-private-key-file=" + m.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + m.pki("sa.pub"), "--service-account-signing-key-file=" + m.pki("sa.key"),
		"--requestheader-client-ca-file=" + m.pki("front-proxy-ca.crt"), "--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + m.pki("front-proxy-client.crt"), "--proxy-client-key-file=" + m.pki("front-proxy-client.key"),
		// Certificates of kubelets are verified, and each kubelet is kept to its own node and pods.
		"--enable-bootstrap-token-auth=true", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + m.pki("kubelet-client.crt"), "--kubelet-client-key=" + m.pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + m.pki("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
	}
}

func (m Machine) controllerManager() []string {
	return append(m.controllers(controllerManager),
		"--use-service-account-credentials=true", "--service-account-private-key-file="+m.pki("sa.key"), "--root-ca-file="+m.pki("ca.crt"),
		"--cluster-signing-cert-file="+m.pki("ca.crt"), "--cluster-signing-key-file="+m.pki("ca.key"),
		"--service-cluster-ip-range="+commas(m.ServiceCIDRs), "--allocate-node-cidrs=true", "--cluster-cidr="+commas(m.PodCIDRs),
		// Bootstrap tokens that expired are removed.
		"--controllers=*,bootstrapsigner,tokencleaner",
	)
}

func (m Machine) scheduler() []string {
	return append(m.controllers(scheduler), "--authentication-kubeconfig="+m.conf(scheduler), "--authorization-kubeconfig="+m.conf(scheduler))
}

// controllers have no port, as no process scrapes their metrics, and no other replica.
func (m Machine) controllers(name string) []string {
	return []string{"--kubeconfig=" + m.conf(name), "--leader-elect=false", "--secure-port=0", "--profiling=false"}
}

func commas(networks []netip.Prefix) string {
	var all []string
	for _, n := range networks {
		all = append(all, n.String())
	}
	return strings.Join(all, ",")
}
