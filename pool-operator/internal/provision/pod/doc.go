// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod runs each hosted cluster as one pod in the namespace of its ClusterDeployment: a StatefulSet of one replica with the
// containers etcd, kube-apiserver and kube-controller-manager, a volume for etcd, a Service in front, and a Secret.
//
// The Secret is the cluster's identity: it is created once, with the authorities, the administrator's password and a random ID, and everything else can be
// made again from it. It is the last thing that Delete removes, so what is found without it is on its way out. A second Secret holds what ends or depends on the address: the
// serving certificate and the administrator's kubeconfig. It is made anew before they end and when the address changes; the API server reads the new certificate without a restart.
//
// Hibernating is replicas 0. The volume stays, and goes when the cluster is deleted: a StatefulSet that another client deletes is made again with it. A cluster whose volume claim another
// client deleted keeps its identity, and has lost its data.
//
// All objects are called hosted-<start of the UID> and carry Label with the UID. They have no owner reference, because the finalizer of the ClusterDeployment and
// List see to it that they go, and garbage collection would not wait for the pod to be gone.
//
// Exposure says how clients outside the cluster reach the API server.
package pod
