// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// stations are what the conditions of the install contract say in each state of a cluster: which of them are True. Those who follow the contract know these
// conditions only: an installer is blocked, at work, done, or has given up.
var stations = map[lifecycle.ClusterState][]string{
	lifecycle.ClusterInsufficient: nil,
	lifecycle.ClusterReady:        {hivev1.ClusterInstallRequirementsMet},
	lifecycle.ClusterPreparing:    {hivev1.ClusterInstallRequirementsMet},
	lifecycle.ClusterInstalling:   {hivev1.ClusterInstallRequirementsMet},
	lifecycle.ClusterFinalizing:   {hivev1.ClusterInstallRequirementsMet},
	lifecycle.ClusterInstalled:    {hivev1.ClusterInstallRequirementsMet, hivev1.ClusterInstallCompleted, hivev1.ClusterInstallStopped},
	lifecycle.ClusterAddingHosts:  {hivev1.ClusterInstallRequirementsMet, hivev1.ClusterInstallCompleted, hivev1.ClusterInstallStopped},
	lifecycle.ClusterFailed:       {hivev1.ClusterInstallRequirementsMet, hivev1.ClusterInstallFailed, hivev1.ClusterInstallStopped},
	lifecycle.ClusterCancelled:    {hivev1.ClusterInstallRequirementsMet, hivev1.ClusterInstallStopped},
}

func TestEveryStateOfAClusterIsOfTheInstallContract(t *testing.T) {
	for state, want := range stations {
		install := read(t, state, nil)
		for _, kind := range []string{
			hivev1.ClusterInstallRequirementsMet, hivev1.ClusterInstallCompleted, hivev1.ClusterInstallFailed, hivev1.ClusterInstallStopped,
		} {
			c := hivev1.FindCondition(install.Status.Conditions, kind)
			require.NotNil(t, c, "%s: %s", state, kind)
			assert.Equal(t, contains(want, kind), string(c.Status), "%s: %s", state, kind)
			assert.NotEmpty(t, c.Reason, "%s: %s", state, kind)
			assert.NotEmpty(t, c.Message, "%s: %s", state, kind)
		}
	}
}

func TestReadySumsAClusterUp(t *testing.T) {
	for state, want := range map[lifecycle.ClusterState]string{
		lifecycle.ClusterInsufficient: "False InsufficientAgents",
		lifecycle.ClusterReady:        "False InstallationNotStarted",
		lifecycle.ClusterPreparing:    "False InstallationInProgress",
		lifecycle.ClusterInstalling:   "False InstallationInProgress",
		lifecycle.ClusterFinalizing:   "False InstallationInProgress",
		lifecycle.ClusterInstalled:    "True InstallationCompleted",
		lifecycle.ClusterAddingHosts:  "True InstallationCompleted",
		lifecycle.ClusterFailed:       "False InstallationFailed",
		lifecycle.ClusterCancelled:    "False InstallationFailed",
	} {
		seen := &snapshot{install: &hiveextv1.AgentClusterInstall{}, cluster: &domain.Cluster{Status: state}}
		seen.cluster.ControlPlaneCount = 1
		c := hivev1.FindCondition(status(seen, "http://muster", metav1.Now()).Conditions, hivev1.ClusterInstallReady)
		require.NotNil(t, c, state)
		assert.Equal(t, want, string(c.Status)+" "+c.Reason, state)
	}
	refused := read(t, lifecycle.ClusterInstalled, domain.Refuse(domain.Invalid, "ClusterDeploymentMissing", "it is missing"))
	c := hivev1.FindCondition(refused.Status.Conditions, hivev1.ClusterInstallReady)
	assert.Equal(t, "False InputError", string(c.Status)+" "+c.Reason, "the spec is not what is installed")
}

func TestAnObstacleBlocksTheInstaller(t *testing.T) {
	install := read(t, "", domain.Refuse(domain.Invalid, "ClusterDeploymentMissing", "it is missing"))
	for _, c := range install.Status.Conditions {
		assert.Equal(t, "False", string(c.Status), c.Type)
	}
}

func contains(kinds []string, kind string) string {
	if slices.Contains(kinds, kind) {
		return "True"
	}
	return "False"
}

// read is what those who follow the contract read of a cluster in a state, whatever the kind of the object.
func read(t *testing.T, state lifecycle.ClusterState, obstacle error) *hivev1.ClusterInstall {
	t.Helper()
	seen := &snapshot{install: &hiveextv1.AgentClusterInstall{}, obstacle: obstacle}
	if state != "" {
		seen.cluster = &domain.Cluster{Status: state, StatusInfo: "as it is"}
	}
	seen.install.Status = status(seen, "http://muster", metav1.Now())
	content, err := json.Marshal(seen.install)
	require.NoError(t, err)
	install := &hivev1.ClusterInstall{}
	require.NoError(t, json.Unmarshal(content, install))
	return install
}
