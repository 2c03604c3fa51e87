// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the kinds of the group agent-install.openshift.io: InfraEnv boots machines with one image, an Agent
// is a machine that did, NMStateConfig is the static network of one, AgentClassification labels them by their hardware,
// and AgentReservation reserves several of them together.
//
// They keep the wire form that users already have.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=agent-install.openshift.io
package v1beta1
