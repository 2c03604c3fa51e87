// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package hostedplan_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/hostedplan"
	"github.com/muster-io/muster/pool-operator/internal/provision"
)

func machines(pools ...hostedplan.MachinePool) option {
	return func(s *hostedplan.Snapshot) { s.MachinePools = pools }
}

func TestAClusterRunsWhenItsMachinesAreNodes(t *testing.T) {
	waits := hostedplan.MachinePool{Name: "blue-x-worker", Awaited: true, Message: "1 of 2 machines are bound"}
	ready := hostedplan.MachinePool{Name: "blue-x-worker"}
	for name, test := range map[string]struct {
		pool  hostedplan.MachinePool
		state provision.State
		want  hivev1.PowerState
	}{
		"machines are missing":         {waits, provision.StateReady, hivev1.PowerStateWaitingForNodes},
		"nodes are Ready":              {ready, provision.StateReady, hivev1.PowerStateRunning},
		"no answer says more":          {waits, provision.StateUnreachable, hivev1.PowerStateWaitingForClusterOperators},
		"the pool goes":                {hostedplan.MachinePool{Name: "a", Awaited: true, Deleting: true}, provision.StateReady, hivev1.PowerStateRunning},
		"the control plane is stopped": {waits, provision.StateStopped, hivev1.PowerStateStartingMachines},
	} {
		t.Run(name, func(t *testing.T) {
			d := hostedplan.Plan(now, snapshot(withNodes, installed, observed(test.state), machines(test.pool)))
			assert.Equal(t, test.want, d.Status.PowerState)
			c := hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterDeploymentReady)
			assert.Equal(t, test.want == hivev1.PowerStateRunning, c.Status == corev1.ConditionTrue)
			if test.want == hivev1.PowerStateWaitingForNodes {
				assert.Equal(t, "The API of the cluster answers. MachinePool blue-x-worker: 1 of 2 machines are bound (step 2 of 2).", c.Message)
			}
		})
	}
}

func TestMachinesAreReleasedBeforeTheirCluster(t *testing.T) {
	stays, goes := hostedplan.MachinePool{Name: "blue-x-a"}, hostedplan.MachinePool{Name: "blue-x-b", Deleting: true}
	s := snapshot(withNodes, installed, deleting, observed(provision.StateReady), machines(stays, goes))
	d := hostedplan.Plan(now.Add(time.Minute), s)
	require.Equal(t, []hostedplan.Action{hostedplan.DeleteMachinePools{Why: hostedplan.WhyDeleted, Names: []string{"blue-x-a"}}}, d.Actions)
	assert.Positive(t, d.RequeueAfter)
	assert.Equal(t, "Machines are released first; MachinePools that are left: blue-x-a, blue-x-b.",
		hivev1.FindCondition(d.Status.Conditions, hivev1.ClusterDeploymentProvisioned).Message)

	waiting := hostedplan.Plan(now.Add(time.Minute), snapshot(withNodes, installed, deleting, observed(provision.StateReady), machines(goes)))
	assert.Empty(t, waiting.Actions)
	assert.Positive(t, waiting.RequeueAfter)

	for name, left := range map[string]struct {
		at    time.Time
		pools option
	}{
		"they are gone":   {now.Add(time.Minute), machines()},
		"they do not end": {now.Add(15 * time.Minute), machines(goes)},
	} {
		t.Run(name, func(t *testing.T) {
			d := hostedplan.Plan(left.at, snapshot(withNodes, installed, deleting, observed(provision.StateReady), left.pools))
			assert.Equal(t, []hostedplan.Action{hostedplan.Delete{Why: hostedplan.WhyDeleted}}, d.Actions)
		})
	}
}
