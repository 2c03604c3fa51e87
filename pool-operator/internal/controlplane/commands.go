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

func (c configuration) etcd() []string {
	args := []string{
		"--name=default",
		"--data-dir=" + c.dir.etcdData(),
		"--listen-client-urls=unix://" + etcdSocket,
		"--advertise-client-urls=unix://" + etcdSocket,
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=" + noPeer,
		"--initial-cluster=default=" + noPeer,
		"--log-level=warn",
		// The API server compacts by a write, which an etcd that has reached its quota refuses: then etcd does it.
		"--auto-compaction-mode=periodic",
		"--auto-compaction-retention=10m",
	}
	if c.options.UnsafeNoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	return args
}

func (c configuration) apiServer() []string {
	args := []string{
		"--etcd-servers=unix://" + etcdSocket,
		"--bind-address=" + c.options.Host.String(),
		"--advertise-address=" + c.options.Host.String(),
		"--secure-port=" + strconv.Itoa(c.port),
		// The port is held by a bound socket of the parent; see reservation.
		"--permit-port-sharing=true",
		"--service-cluster-ip-range=" + c.options.ServiceClusterIPRange.String(),
		"--allow-privileged=true",
		"--authorization-mode=Node,RBAC",
		"--client-ca-file=" + c.dir.pki("ca.crt"),
		"--tls-cert-file=" + c.dir.pki("apiserver.crt"),
		"--tls-private-key-file=" + c.dir.pki("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.dir.pki("sa.pub"),
		"--service-account-signing-key-file=" + c.dir.pki("sa.key"),
		"--requestheader-client-ca-file=" + c.dir.pki("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.dir.pki("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.dir.pki("front-proxy-client.key"),
		"--profiling=false",
	}
	args = append(append(args, c.nodes()...), c.emulation()...)
	if c.dir.encrypted() {
		args = append(args, "--encryption-provider-config="+c.dir.encryption())
	}
	if c.options.Audit != "" {
		args = append(args, "--audit-policy-file="+c.dir.auditPolicy(), "--audit-log-path="+c.dir.auditLog(), "--audit-log-maxsize=8", "--audit-log-maxbackup=1")
	}
	if len(c.options.Tokens) > 0 {
		args = append(args, "--token-auth-file="+c.dir.tokens())
	}
	return args
}

// nodes are the API server's flags about nodes. Certificates of kubelets are verified, so that no machine in between can
// read logs or run commands, and NodeRestriction keeps each kubelet to its own node and pods.
func (c configuration) nodes() []string {
	if !c.options.takesNodes() {
		// No pod ever dials the service "kubernetes", and an endpoint on loopback is not valid.
		return []string{"--endpoint-reconciler-type=none"}
	}
	return []string{
		"--endpoint-reconciler-type=lease",
		"--enable-bootstrap-token-auth=true",
		"--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate=" + c.dir.pki("kubelet-client.crt"),
		"--kubelet-client-key=" + c.dir.pki("kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.dir.pki("ca.crt"),
		"--kubelet-preferred-address-types=InternalIP",
	}
}

func (c configuration) scheduler() []string {
	return append(c.emulation(),
		"--kubeconfig="+c.dir.schedulerConfig(),
		"--authentication-kubeconfig="+c.dir.schedulerConfig(),
		"--authorization-kubeconfig="+c.dir.schedulerConfig(),
		"--leader-elect=false",
		// As with the controller manager.
		"--secure-port=0",
		"--profiling=false",
	)
}

func (c configuration) controllerManager() []string {
	args := c.emulation()
	if c.options.takesNodes() {
		args = append(args,
			"--allocate-node-cidrs=true",
			"--cluster-cidr="+c.options.PodCIDR.String(),
			// Bootstrap tokens that expired are removed.
			"--controllers=*,bootstrapsigner,tokencleaner",
		)
	}
	return append(args,
		"--kubeconfig="+c.dir.managerConfig(),
		"--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.dir.pki("sa.key"),
		"--root-ca-file="+c.dir.pki("ca.crt"),
		"--cluster-signing-cert-file="+c.dir.pki("ca.crt"),
		"--cluster-signing-key-file="+c.dir.pki("ca.key"),
		"--service-cluster-ip-range="+c.options.ServiceClusterIPRange.String(),
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
func (c configuration) emulation() []string {
	if c.options.EmulatedVersion == "" {
		return nil
	}
	return []string{"--emulated-version=kube=" + c.options.EmulatedVersion}
}
