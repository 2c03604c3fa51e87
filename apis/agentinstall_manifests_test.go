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
		"a reservation":    agentInstall + "kind: AgentReservation\nmetadata: {name: three}\nspec: {count: 3, agentSelector: {matchLabels: {rack: a}}, minimum: {memoryGiB: 64}, spreadBy: example.com/rack, duration: 1h30m}\n",
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
	for spec, sentence := range map[string]string{
		"count: 0": "write a count from 1 to 1000", "count: 1001": "write a count from 1 to 1000", "agentSelector: {}": "count: Required value", "count: 1, duration: 2d": "write a duration of hours",
		"count: 1, duration: 30s": "write a duration of hours", "count: 1, duration: 25h": "write a duration of hours", "count: 1, spreadBy: 'a b'": "write the key of a label",
	} {
		_, err = a.create(t, agentInstall+"kind: AgentReservation\nmetadata: {name: refused}\nspec: {"+spec+"}\n")
		assertRefused(t, err, sentence)
	}
	reserved := a.mustCreate(t, agentInstall+"kind: AgentReservation\nmetadata: {name: fixed}\nspec: {count: 1}\n")
	assertRefused(t, a.set(t, reserved, int64(2), "spec", "count"), "the spec cannot be changed")
	bound := a.mustCreate(t, agentInstall+"kind: InfraEnv\nmetadata: {name: bound}\nspec: {pullSecretRef: {name: pull}, clusterRef: {name: c, namespace: ns}}\n")
	assertRefused(t, a.set(t, bound, "d", "spec", "clusterRef", "name"), "Attempted to change Spec.ClusterRef which is immutable after InfraEnv creation.")
	assertRefused(t, a.set(t, bound, "aarch64", "spec", "cpuArchitecture"), "Attempted to change Spec.CpuArchitecture which is immutable after InfraEnv creation.")
	require.NoError(t, a.set(t, bound, "ssh-ed25519 AAAA", "spec", "sshAuthorizedKey"))
}
