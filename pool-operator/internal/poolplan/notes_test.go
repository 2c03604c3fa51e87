// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package poolplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolplan"
	"github.com/muster-io/muster/pool-operator/internal/testobj"
)

func TestAPoolNamesWhatItWaitsFor(t *testing.T) {
	installing := func(c *poolplan.Cluster) { c.Installed, c.Created = false, now.Add(-time.Minute) }
	foreign := func(p *hivev1.ClusterPool) {
		p.Spec.Platform = hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}}
	}
	for name, c := range map[string]struct {
		snapshot        poolplan.Snapshot
		reason, message string
	}{
		"a protected cluster": {
			snapshot(testobj.Pool("p", testobj.Size(0)), with(free("p-a", 2), func(c *poolplan.Cluster) { c.Protected = true })), hivev1.ReasonPoolProtected,
			"1 of 0 clusters are installed; 1 too many are protected from deletion; to be deleted, but kept by the annotation hive.openshift.io/protected-delete: p-a",
		},
		"a released cluster that is paused": {
			snapshot(testobj.Pool("p", testobj.Size(0)), with(free("p-a", 2), func(c *poolplan.Cluster) { c.Marked, c.Paused = true, true })), hivev1.ReasonPoolFilled,
			"0 of 0 clusters are installed; to be deleted, but kept by the annotation hive.openshift.io/reconcile-pause: p-a",
		},
		"a paused cluster": {
			snapshot(testobj.Pool("p", testobj.Size(2)), free("p-a", 2), with(free("p-b", 2), func(c *poolplan.Cluster) { c.Paused = true })), hivev1.ReasonPoolFilled,
			"2 of 2 clusters are installed; given to no claim because of the annotation hive.openshift.io/reconcile-pause: p-b",
		},
		"a maxConcurrent that is used up": {
			snapshot(testobj.Pool("p", testobj.Size(3), testobj.MaxConcurrent(1)), with(free("p-a", 2), installing)), hivev1.ReasonPoolFilling,
			"0 of 3 clusters are installed; 2 more are to be created; maxConcurrent of 1 is used up by p-a (installing)",
		},
		"a frozen pool": {
			snapshot(testobj.Pool("p", testobj.Size(1), testobj.MaxConcurrent(0))), hivev1.ReasonPoolFrozen,
			"0 of 1 clusters are installed; maxConcurrent is 0, so that none is created",
		},
		"an installation that hangs": {
			snapshot(testobj.Pool("p", testobj.Size(1), foreign), with(free("p-a", 2), func(c *poolplan.Cluster) { c.Installed, c.Created = false, now.Add(-2*time.Hour) })),
			hivev1.ReasonPoolFilling,
			"0 of 1 clusters are installed; 1 are installing, 0 are broken; installing for more than 1h: p-a; set installTimeout to have such clusters replaced",
		},
		"a restored cluster without its claim": {
			snapshot(testobj.Pool("p", testobj.Size(0)), with(free("p-a", 2), func(c *poolplan.Cluster) { c.Restored, c.ClaimName = true, "mine" })), hivev1.ReasonPoolFilled,
			"0 of 0 clusters are installed; restored, and kept for a claim that is not there: p-a (claim mine); restore the claim, or remove the label " +
				"hive.openshift.io/disable-creation-webhook-for-dr to have the cluster deleted",
		},
		"an annotation that is no boolean": {
			snapshot(testobj.Pool("p", func(p *hivev1.ClusterPool) { p.Annotations = map[string]string{hivev1.AnnotationReconcilePause: "yes"} }), free("p-a", 2)), hivev1.ReasonPoolFilled,
			`1 of 1 clusters are installed; annotation hive.openshift.io/reconcile-pause is "yes", which is no boolean and counts as false; write "true" or "false"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := hivev1.FindCondition(poolplan.Plan(now, c.snapshot).Status.Conditions, hivev1.ClusterPoolReady)
			require.Equal(t, []string{c.reason, c.message}, []string{got.Reason, got.Message})
		})
	}
}
