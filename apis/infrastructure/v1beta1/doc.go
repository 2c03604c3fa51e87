// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the kinds of the group infrastructure.cluster.x-k8s.io that render network data: Metal3DataTemplate,
// Metal3DataClaim and Metal3Data.
//
// A template says what the files of a machine look like, a claim asks for one set of them, a Metal3Data is that set: it has
// an index of its own in the template, addresses of every pool that the template names, and two Secrets.
//
// The wire form is the one that users already have; fields are added, none is renamed. Keys that exist in two spellings are
// taken in both.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=infrastructure.cluster.x-k8s.io
package v1beta1
