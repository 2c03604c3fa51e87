// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const agentInstall = "apiVersion: agent-install.openshift.io/v1beta1\n"

// TestAgentInstallManifests applies the manifests of discovered hosts that users have, and checks the sentences with which others are refused.
func TestAgentInstallManifests(t *testing.T) {
	a := newAPI(t)
	accepted := map[string]string{
		"an InfraEnv of free hosts": agentInstall + "kind: InfraEnv\nmetadata: {name: free}\nspec: {pullSecretRef: {name: pull}}\n",
		"an InfraEnv of a cluster":  agentInstall + "kind: InfraEnv\nmetadata: {name: of-cluster}\nspec: {pullSecretRef: {name: pull}, clusterRef: {name: c, namespace: ns}}\n",
		"an agent":                  agentInstall + "kind: Agent\nmetadata: {name: a}\nspec: {approved: false, role: auto-assign}\n",
		"a static network": agentInstall + "kind: NMStateConfig\nmetadata: {name: net}\n" +
			"spec: {config: {interfaces: [{name: eth0, type: ethernet}]}, interfaces: [{name: eth0, macAddress: '52:54:00:00:00:01'}]}\n",
		"a classification": agentInstall + "kind: AgentClassification\nmetadata: {name: large}\nspec: {labelKey: size, labelValue: large, query: '.cpu.count >= 16'}\n",
		"an installation": "apiVersion: extensions.hive.openshift.io/v1beta1\nkind: AgentClusterInstall\nmetadata: {name: i}\n" +
			"spec: {clusterDeploymentRef: {name: c}, networking: {}, provisionRequirements: {controlPlaneAgents: 1}}\n",
	}
	for name, manifest := range accepted {
		t.Run(name, func(t *testing.T) {
			_, err := a.create(t, manifest)
			require.NoError(t, err)
		})
	}
	_, err := a.create(t, agentInstall+"kind: Agent\nmetadata: {name: b}\nspec: {approved: true, role: worker, installation_disk_id: x, installation_disk_path: /dev/x}\n")
	assertRefused(t, err, "Either InstallationDiskID or InstallationDiskPath can be set, not both.")
	_, err = a.create(t, agentInstall+"kind: InfraEnv\nmetadata: {name: clocks}\nspec: {pullSecretRef: {name: pull}, ntpSources: [a], additionalNTPSources: [b]}\n")
	assertRefused(t, err, "write one of them")
	bound := a.mustCreate(t, agentInstall+"kind: InfraEnv\nmetadata: {name: bound}\nspec: {pullSecretRef: {name: pull}, clusterRef: {name: c, namespace: ns}}\n")
	assertRefused(t, a.set(t, bound, "d", "spec", "clusterRef", "name"), "Attempted to change Spec.ClusterRef which is immutable after InfraEnv creation.")
	assertRefused(t, a.set(t, bound, "aarch64", "spec", "cpuArchitecture"), "Attempted to change Spec.CpuArchitecture which is immutable after InfraEnv creation.")
	require.NoError(t, a.set(t, bound, "ssh-ed25519 AAAA", "spec", "sshAuthorizedKey"))
}
