// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/join"
)

// etcd stores the cluster. Its only client is the API server, by a socket. It has no network but for the members of a group, which show each other certificates of an authority of
// their own.
func (m Machine) etcd() []string {
	arguments := []string{"--data-dir=" + m.path("etcd"), "--listen-client-urls=unix://" + etcdSocket, "--advertise-client-urls=unix://" + etcdSocket, "--log-level=warn"}
	if m.Group == nil {
		return append(arguments, "--name=default", "--listen-peer-urls=unix://"+peerSocket, "--initial-advertise-peer-urls="+noPeer, "--initial-cluster=default="+noPeer)
	}
	own := m.Group.Own()
	var members []string
	for _, member := range m.Group.Members {
		members = append(members, member.Name+"="+peerURL(member))
	}
	return append(arguments,
		"--name="+own.Name, "--listen-peer-urls="+peerURL(own), "--initial-advertise-peer-urls="+peerURL(own),
		"--initial-cluster="+strings.Join(members, ","), "--initial-cluster-state=new", "--initial-cluster-token="+m.clusterToken(),
		// A member that a slow disk or processor keeps busy for a second does not cost the others their leader.
		"--heartbeat-interval=500", "--election-timeout=5000",
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file="+m.pki("etcd-ca.crt"), "--peer-cert-file="+m.pki(peer+".crt"), "--peer-key-file="+m.pki(peer+".key"),
	)
}

// peerURL is where the other members of etcd reach one.
func peerURL(m join.Member) string {
	return "https://" + netip.AddrPortFrom(m.Address, peerPort).String()
}

// clusterToken is of this installation alone: members of another one are no members.
func (m Machine) clusterToken() string {
	sum := sha256.Sum256([]byte(m.Group.Etcd.CA))
	return hex.EncodeToString(sum[:16])
}

func (m Machine) apiServer() []string {
	at, _ := m.Address() // it was validated when it was read
	bound, advertised := at.Addr(), at.Addr()
	if m.Group != nil { // the address of the API comes and goes
		bound, advertised = netip.IPv6Unspecified(), m.Group.Own().Address
		if at.Addr().Is4() {
			bound = netip.IPv4Unspecified()
		}
	}
	return []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + bound.String(), "--advertise-address=" + advertised.String(), fmt.Sprintf("--secure-port=%d", at.Port()),
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

// controllers have no port, as no process scrapes their metrics, and other replicas in a group.
func (m Machine) controllers(name string) []string {
	return []string{"--kubeconfig=" + m.conf(name), fmt.Sprintf("--leader-elect=%t", m.Group != nil), "--secure-port=0", "--profiling=false"}
}

func commas(networks []netip.Prefix) string {
	var all []string
	for _, n := range networks {
		all = append(all, n.String())
	}
	return strings.Join(all, ",")
}
