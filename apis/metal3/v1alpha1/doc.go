// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the group metal3.io that describe machines: BareMetalHost, HardwareData,
// BareMetalHostDiscovery and DiscoveredMachine.
//
// BareMetalHost and HardwareData keep the wire form that users already have; parts that Muster does not use are kept as
// they are on the wire. The other two are Muster's own.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=metal3.io
package v1alpha1
