// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package v1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MayInstall reports whether a group may have kinds of install objects. The kinds of Kubernetes, and those of this group, are none: an operator has rights on them for its own work, by which a user
// who names one could have it create them, such as StatefulSets in the namespace of a cluster, or hold all of them in memory.
func MayInstall(group string) bool {
	return strings.Contains(group, ".") && group != GroupName && !strings.HasSuffix(group, ".k8s.io")
}

// ClusterInstall is the part of an install object that every installer's kind has in common: the install contract. It is no kind of its own; an install object of
// any kind is read through it.
//
// The creator of the install object sets spec.clusterDeploymentRef and makes the ClusterDeployment point back with spec.clusterInstallRef. The installer sets
// spec.clusterMetadata when the cluster exists and reports with the conditions ClusterInstallRequirementsMet, ClusterInstallCompleted, ClusterInstallFailed and
// ClusterInstallStopped; Completed and Failed are final when Stopped is True.
type ClusterInstall struct {
	// spec is what the installer is asked for, and where it writes how to get into the cluster.
	// +optional
	Spec ClusterInstallSpec `json:"spec,omitempty"`

	// status is how far the installer is.
	// +optional
	Status ClusterInstallStatus `json:"status,omitempty"`
}

// ClusterInstallSpec is what an installer is asked for.
type ClusterInstallSpec struct {
	// imageSetRef names the ClusterImageSet whose release is installed.
	// +optional
	ImageSetRef *ClusterImageSetReference `json:"imageSetRef,omitempty"`

	// clusterDeploymentRef names the ClusterDeployment that is installed, in the same namespace.
	// +optional
	ClusterDeploymentRef LocalObjectReference `json:"clusterDeploymentRef,omitempty"`

	// clusterMetadata says how to get into the installed cluster. Written by the installer.
	// +optional
	ClusterMetadata *ClusterMetadata `json:"clusterMetadata,omitempty"`
}

// ClusterInstallStatus is how far an installer is.
type ClusterInstallStatus struct {
	// conditions are at least those of the install contract.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []Condition `json:"conditions,omitempty"`

	// installRestarts counts how often installation began again.
	// +optional
	InstallRestarts int `json:"installRestarts,omitempty"`

	// installStartedTimestamp is when installation began.
	// +optional
	InstallStartedTimestamp *metav1.Time `json:"installStartedTimestamp,omitempty"`
}

// Condition types of the install contract.
const (
	// ClusterInstallRequirementsMet is True when the installer has all that it needs.
	ClusterInstallRequirementsMet = "RequirementsMet"
	// ClusterInstallCompleted is True when the cluster is installed.
	ClusterInstallCompleted = "Completed"
	// ClusterInstallFailed is True when the last attempt failed.
	ClusterInstallFailed = "Failed"
	// ClusterInstallStopped is True when the installer will try no more, for better or worse.
	ClusterInstallStopped = "Stopped"
	// ClusterInstallReady is True while the cluster is installed as the spec says. It is no part of the contract: agent-service writes it, for
	// kubectl wait and GitOps tools.
	ClusterInstallReady = "Ready"
)
