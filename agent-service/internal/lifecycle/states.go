// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle is the state machine of hosts and of clusters, as data.
package lifecycle

// State is where a host is in its life.
type State string

// States of hosts, as users know them.
const (
	DiscoveringUnbound          State = "discovering-unbound"
	InsufficientUnbound         State = "insufficient-unbound"
	KnownUnbound                State = "known-unbound"
	DisconnectedUnbound         State = "disconnected-unbound"
	Binding                     State = "binding"
	Discovering                 State = "discovering"
	Insufficient                State = "insufficient"
	Known                       State = "known"
	Disconnected                State = "disconnected"
	PreparingForInstallation    State = "preparing-for-installation"
	PreparingSuccessful         State = "preparing-successful"
	PreparingFailed             State = "preparing-failed"
	Installing                  State = "installing"
	InstallingInProgress        State = "installing-in-progress"
	InstallingPendingUserAction State = "installing-pending-user-action"
	Installed                   State = "installed"
	AddedToExistingCluster      State = "added-to-existing-cluster"
	Failed                      State = "error"
	Cancelled                   State = "cancelled"
	ResettingPendingUserAction  State = "resetting-pending-user-action"
	Unbinding                   State = "unbinding"
	UnbindingPendingUserAction  State = "unbinding-pending-user-action"
	Reclaiming                  State = "reclaiming"
	ReclaimingRebooting         State = "reclaiming-rebooting"
)

// ClusterState is where a cluster is in its life.
type ClusterState string

// States of clusters, as users know them.
const (
	ClusterInsufficient ClusterState = "insufficient"
	ClusterReady        ClusterState = "ready"
	ClusterPreparing    ClusterState = "preparing-for-installation"
	ClusterInstalling   ClusterState = "installing"
	ClusterFinalizing   ClusterState = "finalizing"
	ClusterInstalled    ClusterState = "installed"
	ClusterAddingHosts  ClusterState = "adding-hosts"
	ClusterFailed       ClusterState = "error"
	ClusterCancelled    ClusterState = "cancelled"
)

// Stage is a part of an installation.
type Stage string

// Stages, in their order.
const (
	StageStarting        Stage = "Starting installation"
	StageInstalling      Stage = "Installing"
	StageWriting         Stage = "Writing image to disk"
	StageCopying         Stage = "Copying registry data to disk"
	StageControlPlane    Stage = "Waiting for control plane"
	StageBootkube        Stage = "Waiting for bootkube"
	StageController      Stage = "Waiting for controller"
	StageRebooting       Stage = "Rebooting"
	StageWaitingIgnition Stage = "Waiting for ignition"
	StageConfiguring     Stage = "Configuring"
	StageJoined          Stage = "Joined"
	StageDone            Stage = "Done"
	StageFailed          Stage = "Failed"
)
