// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds AgentClusterInstall of the group extensions.hive.openshift.io: a ClusterDeployment is installed on
// Agents. It keeps the wire form that users already have; parts that Muster does not use are kept as they are on the wire.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +groupName=extensions.hive.openshift.io
package v1beta1
