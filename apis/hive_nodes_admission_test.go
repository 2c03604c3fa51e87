// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestClustersThatRunAsPodsAreNotMadeWithNodes holds the policy to refuse nodes where pool-operator is deployed with the runtime of pods, with a sentence, and nothing that is there already.
func TestClustersThatRunAsPodsAreNotMadeWithNodes(t *testing.T) {
	a := newAPI(t)
	withNodes := "  platform: {hosted: {nodes: {}}}\n"
	there := a.mustCreate(t, cluster(withNodes))
	poolThere := a.object(t, pool("  size: 1\n"+withNodes))
	require.NoError(t, a.Create(t.Context(), poolThere))
	a.installPolicies(t, "../deploy/base/pool-operator/nodes.yaml")
	require.Eventually(t, func() bool {
		return a.Create(t.Context(), a.object(t, cluster(withNodes)), client.DryRunAll) != nil
	}, time.Minute, 50*time.Millisecond, "the policy is not in force")

	const sentence = "spec.platform.hosted.nodes: hosted clusters run as pods here, and take no nodes."
	_, err := a.create(t, cluster(withNodes))
	assertRefused(t, err, sentence)
	_, err = a.create(t, pool("  size: 1\n"+withNodes))
	assertRefused(t, err, sentence)
	plain := a.mustCreate(t, pool(hostedPool))
	assertRefused(t, a.set(t, plain, map[string]any{}, "spec", "platform", "hosted", "nodes"), sentence)
	a.mustCreate(t, cluster("  platform: {hosted: {}}\n"))
	a.mustCreate(t, cluster("  platform: {agentBareMetal: {agentSelector: {}}}\n"))
	a.mustCreate(t, cluster(withNodes+"  clusterInstallRef: {group: a.example.com, version: v1, kind: Install, name: blue}\n"))
	require.NoError(t, a.set(t, there, "Hibernating", "spec", "powerState"), "it is there already")
	require.NoError(t, a.set(t, poolThere, int64(2), "spec", "size"), "it is there already")
}
