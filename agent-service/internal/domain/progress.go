// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import "github.com/muster-io/muster/agent-service/internal/lifecycle"

// ClusterProgress is how far the installation of a cluster is, in percent of its stages and of all of it. The fields are those of the published interface.
type ClusterProgress struct {
	FinalizingStagePercentage               int
	InstallingStagePercentage               int
	PreparingForInstallationStagePercentage int
	TotalPercentage                         int
}

// The stages are these parts of an installation, in percent.
const (
	partPreparing  = 10
	partInstalling = 70
	partFinalizing = 20
)

// Progress is that of the last installation, zero before the first one. A cluster that failed or was cancelled keeps what its hosts reached. An imported cluster was installed elsewhere.
func (c *Cluster) Progress() ClusterProgress {
	var p ClusterProgress
	if c.Imported {
		return p
	}
	switch c.Status {
	case lifecycle.ClusterInstalled, lifecycle.ClusterAddingHosts:
		p.PreparingForInstallationStagePercentage, p.InstallingStagePercentage, p.FinalizingStagePercentage = 100, 100, 100
	case lifecycle.ClusterInstalling, lifecycle.ClusterFinalizing:
		p.PreparingForInstallationStagePercentage, p.InstallingStagePercentage = 100, c.InstallPercentage
	case lifecycle.ClusterFailed, lifecycle.ClusterCancelled:
		if c.InstallPercentage > 0 { // hosts report no stage while they prepare
			p.PreparingForInstallationStagePercentage, p.InstallingStagePercentage = 100, c.InstallPercentage
		}
	case lifecycle.ClusterInsufficient, lifecycle.ClusterReady, lifecycle.ClusterPreparing:
	}
	p.TotalPercentage = (partPreparing*p.PreparingForInstallationStagePercentage + partInstalling*p.InstallingStagePercentage + partFinalizing*p.FinalizingStagePercentage) / 100
	return p
}
