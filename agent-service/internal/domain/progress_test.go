// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/agent-service/internal/lifecycle"
)

func TestProgressOfAClusterFollowsItsState(t *testing.T) {
	for name, c := range map[string]struct {
		given Cluster
		want  ClusterProgress
	}{
		"nothing before the installation": {Cluster{Status: lifecycle.ClusterReady}, ClusterProgress{}},
		"nothing while it is prepared":    {Cluster{Status: lifecycle.ClusterPreparing}, ClusterProgress{}},
		"the preparation when hosts begin": {
			Cluster{Status: lifecycle.ClusterInstalling}, ClusterProgress{PreparingForInstallationStagePercentage: 100, TotalPercentage: 10},
		},
		"what hosts reached": {
			Cluster{Status: lifecycle.ClusterFinalizing, InstallPercentage: 60},
			ClusterProgress{PreparingForInstallationStagePercentage: 100, InstallingStagePercentage: 60, TotalPercentage: 52},
		},
		"all of it, although its hosts were released": {
			Cluster{Status: lifecycle.ClusterInstalled},
			ClusterProgress{PreparingForInstallationStagePercentage: 100, InstallingStagePercentage: 100, FinalizingStagePercentage: 100, TotalPercentage: 100},
		},
		"what was reached before it failed": {
			Cluster{Status: lifecycle.ClusterFailed, InstallPercentage: 20},
			ClusterProgress{PreparingForInstallationStagePercentage: 100, InstallingStagePercentage: 20, TotalPercentage: 24},
		},
		"nothing of a preparation that was cancelled": {Cluster{Status: lifecycle.ClusterCancelled}, ClusterProgress{}},
		"nothing of an imported cluster":              {Cluster{Status: lifecycle.ClusterAddingHosts, ClusterSettings: ClusterSettings{Imported: true}}, ClusterProgress{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, c.given.Progress()) })
	}
}
