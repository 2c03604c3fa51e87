// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package writecheck is the request that tells whether the etcd of a hosted cluster takes writes. An etcd that reached the quota of its database goes on answering reads, and with them
// /readyz of the API server.
package writecheck

import "bytes"

// Path is where the request is posted to, with Body, as JSON: it creates a Lease of one name. Where that exists, the API server still sends the write to etcd, which stores nothing.
const Path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"

// Body is the Lease.
const Body = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"muster-write-check","namespace":"kube-system"},"spec":{}}`

// Full says whether the answer to the request is that etcd has reached its quota. Any other refusal, as by an admission webhook of the cluster, says nothing about etcd.
func Full(answer []byte) bool {
	return bytes.Contains(answer, []byte("mvcc: database space exceeded"))
}
