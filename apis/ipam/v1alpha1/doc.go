// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the group ipam.metal3.io: IPPool, IPClaim and IPAddress.
//
// An IPPool lists ranges of addresses, an IPClaim asks for one of them, an IPAddress is an address that is taken. The
// name of an IPAddress is made from the address, so that the API server lets one claim have it and no other: the object
// is the truth and the lock, and the status of pools and claims is a projection of it.
//
// The wire form is the one that users already have; fields are added, none is renamed.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=ipam.metal3.io
package v1alpha1
