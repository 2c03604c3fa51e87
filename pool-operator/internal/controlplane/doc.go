// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs one Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager) as child
// processes of the calling process, on one machine and in one data directory. Tests, the demo and the hosted clusters
// of the process runtime all run on it.
//
// # Data directory
//
//	lock            flock of the owner; the child processes hold it too, so that it is free only when all have ended
//	owner           process that owns the directory
//	plane.json      what must survive a restart: the port
//	kubeconfig      admin access with a client certificate
//	pki/            CA, serving and client certificates, service-account key pair, static tokens, key of Secrets in etcd, audit policy
//	etcd/           etcd's data
//	run/            etcd's sockets and a pid file per process; working directory of the processes
//	log/            one log per process and the audit log, each plus its predecessor
//
// Everything in it is private to the user. Files are replaced by rename, so that a process that is killed at any moment
// leaves either the old or the new content.
//
// # Life of the processes
//
// Children die with their parent, also when it is killed: the kernel signals them (Linux), and the process that opens the
// directory next ends what a pid file still names before it takes the lock. A pid file holds the start time of its
// process and the boot's identity, so that a recycled pid is never touched.
//
// etcd listens on unix sockets inside the directory only. The one TCP port is the API server's; it is held by a bound
// socket for as long as the directory is open, so that no other process can take it while the cluster hibernates.
package controlplane
