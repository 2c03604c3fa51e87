// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"slices"
	"time"
)

// Node is what a host is in a cluster that takes nodes.
type Node struct {
	// Name is empty for a host that was not given what it joins with.
	Name string `json:",omitempty"`
	// Seen is true where the cluster has a Node of that name, and Ready where that is Ready.
	Seen  bool `json:",omitempty"`
	Ready bool `json:",omitempty"`
	// Certificates are those that were approved for it, the newest last.
	Certificates []Certificate `json:",omitempty"`
}

// Certificate is a request that was approved.
type Certificate struct {
	// Name is that of the CertificateSigningRequest, Type is client or serving.
	Name       string
	Type       string
	ApprovedAt time.Time
}

// maxCertificates bounds how many are kept: nodes renew theirs.
const maxCertificates = 16

// Approve keeps a certificate that was approved; it is false for one that is known.
func (n *Node) Approve(c Certificate) bool {
	if slices.ContainsFunc(n.Certificates, func(known Certificate) bool { return known.Name == c.Name }) {
		return false
	}
	n.Certificates = append(slices.Clone(n.Certificates), c)
	n.Certificates = n.Certificates[max(0, len(n.Certificates)-maxCertificates):]
	return true
}
