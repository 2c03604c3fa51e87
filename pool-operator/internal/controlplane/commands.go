// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"strconv"
)

// Sockets are named relative to run/, the working directory of the processes: the path of a unix socket is limited to
// about 100 bytes, the path of a data directory is not.
const (
	etcdSocket = "etcd.sock"
	peerSocket = "peer.sock"
	// noPeer is announced as etcd's peer address. A single member never dials it, and nothing can listen on port 1 of
	// loopback without being root.
	noPeer = "http://127.0.0.1:1"
)

func (p *Plane) etcdArgs() []string {
	args := []string{
		"--name=default",
		"--data-dir=" + p.dir.etcdData(),
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=" + noPeer,
		"--initial-cluster=default=" + noPeer,
		"--log-level=warn",
	}
	if p.options.UnsafeNoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func (p *Plane) apiServerArgs() []string {
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + p.options.Host.String(),
		"--advertise-address=" + p.options.Host.String(),
		"--secure-port=" + strconv.Itoa(p.reserved.port),
		// The port is held by a bound socket of the parent; see reservation.
		"--permit-port-sharing=true",
		"--service-cluster-ip-range=" + p.options.ServiceClusterIPRange.String(),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + p.dir.pki("ca.crt"),
		"--tls-cert-file=" + p.dir.pki("apiserver.crt"),
		"--tls-private-key-file=" + p.dir.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.dir.pki("sa.pub"),
		"--service-account-signing-key-file=" + p.dir.pki("sa.key"),
		"--requestheader-client-ca-file=" + p.dir.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.dir.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + p.dir.pki("front-proxy-client.key"),
		"--profiling=false",
	}
	args = append(append(args, p.nodeArgs()...), p.emulation()...)
	if p.dir.encrypted() {
		args = append(args, "--encryption-provider-config="+p.dir.encryption())
	}
	if p.options.Audit != "" {
		args = append(args, "--audit-policy-file="+p.dir.auditPolicy(), "--audit-log-path="+p.dir.auditLog(), "--audit-log-maxsize=8", "--audit-log-maxbackup=1")
	}
	if len(p.options.Tokens) > 0 {
		args = append(args, "--token-auth-file="+p.dir.tokens())
	}
	return args
}

// nodeArgs are the API server's flags about nodes. Certificates of kubelets are verified, so that no machine in between can
// read logs or run commands, and NodeRestriction keeps each kubelet to its own node and pods.
func (p *Plane) nodeArgs() []string {
	if !p.options.takesNodes() {
		// No pod ever dials the service "kubernetes", and an endpoint on loopback is not valid.
		return []string{"--endpoint-reconciler-type=none"}
	}
	return []string{
		"--endpoint-reconciler-type=lease",
		"--enable-bootstrap-token-auth=true",
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + p.dir.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + p.dir.pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + p.dir.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
	}
}

func (p *Plane) schedulerArgs() []string {
	return append(p.emulation(),
		"--kubeconfig="+p.dir.schedulerConfig(),
		"--authentication-kubeconfig="+p.dir.schedulerConfig(),
		"--authorization-kubeconfig="+p.dir.schedulerConfig(),
		"--leader-elect=false",
		// As with the controller manager.
		"--secure-port=0",
		"--profiling=false",
	)
}

func (p *Plane) controllerManagerArgs() []string {
	args := p.emulation()
	if p.options.takesNodes() {
		args = append(args,
			"--allocate-node-cidrs=true",
			"--cluster-cidr="+p.options.PodCIDR.String(),
			// Bootstrap tokens that expired are removed.
			"--controllers=*,bootstrapsigner,tokencleaner",
		)
	}
	return append(args,
		"--kubeconfig="+p.dir.managerConfig(),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+p.dir.pki("sa.key"),
		"--root-ca-file="+p.dir.pki("ca.crt"),
		"--cluster-signing-cert-file="+p.dir.pki("ca.crt"),
		"--cluster-signing-key-file="+p.dir.pki("ca.key"),
		"--service-cluster-ip-range="+p.options.ServiceClusterIPRange.String(),
		"--leader-elect=false",
		// Its metrics are not scraped, and another process could take a second port.
		"--secure-port=0",
		"--profiling=false",
		// The server queues fairly by itself; waiting in the client only delays the first service accounts by seconds.
		"--kube-api-qps=1000",
		"--kube-api-burst=1000",
	)
}

// emulation is the flag of both programs that makes them behave as an older minor.
func (p *Plane) emulation() []string {
	if p.options.EmulatedVersion == "" {
		return nil
	}
	return []string{"--emulated-version=kube=" + p.options.EmulatedVersion}
}
