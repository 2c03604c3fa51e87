// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs each hosted cluster as one pod in the namespace of its ClusterDeployment: a StatefulSet of one replica with the
// containers etcd, kube-apiserver and kube-controller-manager, a volume for etcd, a Service in front, and a Secret.
//
// The Secret is the cluster's identity: it is created once, with the keys, the administrator's password and a random ID, and everything else can be
// made again from it. It is the last thing that Delete removes, so what is found without it is on its way out.
//
// Hibernating is replicas 0. The volume stays, and goes with the StatefulSet.
//
// All objects are called hosted-<start of the UID> and carry Label with the UID; nobody owns them, because the finalizer of the ClusterDeployment and
// List see to it that they go, and garbage collection would not wait for the pod to be gone.
//
// Clients reach the API server at the Service's name, https://hosted-….<namespace>.svc:6443, which works inside the cluster. For clients outside,
// Options.Address names what somebody else routes there; certificates and kubeconfigs are made for it at the first start.
package pod
