// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package rack_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
)

// stagesVariable names the stages, separated by commas, at which the machine is killed; all is every one.
const stagesVariable = "MUSTER_RACK_STAGES"

// stages are the representatives of a machine's life, in its order.
var stages = []string{"registering", "writing", "booted", "joined", "releasing", "released"}

// killedAt are the stages of this run.
func killedAt(t *testing.T) []string {
	t.Helper()
	chosen := os.Getenv(stagesVariable)
	if chosen == "" {
		t.Skipf("%s=%s (or all) names the stages at which a machine is killed", stagesVariable, strings.Join(stages, ","))
	}
	if chosen == "all" {
		return stages
	}
	at := strings.Split(chosen, ",")
	for _, stage := range at {
		require.Contains(t, stages, stage, "%s names no stage", stagesVariable)
	}
	return at
}

// A machine that loses its power at a stage of its way, and gets it back, goes on: it is one Agent, is installed, joins, and comes back wiped, whatever the stage was. Only one whose disk was
// being written waits for its user: the installation failed.
func TestAMachineThatIsKilledGoesOn(t *testing.T) {
	at := killedAt(t)
	r, link := newRack(t)
	r.create(read(r, "ClusterImageSet", &hivev1.ClusterImageSet{}))
	pool := read(r, "ClusterPool", &hivev1.ClusterPool{})
	pool.Spec.MachinePools[0].Replicas = 1
	r.create(pool)
	machines := r.machinePool()
	m := r.newMachine(1, link, r.infraEnv(""))
	r.machines = []*machine{m}
	kill := func(stage string) {
		if slices.Contains(at, stage) {
			r.cutPower(m, stage)
		}
	}

	m.agent = r.onlyAgent()
	kill("registering")
	r.see(m.agent, "its disk is being written", func() bool { return m.agent.Status.Progress.CurrentStage == "Writing image to disk" })
	if slices.Contains(at, "writing") {
		kill("writing")
		r.replaceFailed(machines, m)
	}
	r.see(m.agent, "its installed system runs", func() bool {
		return slices.Contains([]string{"Configuring", "Joined", "Done"}, m.agent.Status.Progress.CurrentStage)
	})
	kill("booted")
	r.see(machines, "the MachinePool is Ready", func() bool { return hivev1.IsConditionTrue(machines.Status.Conditions, hivev1.MachinePoolReady) })
	r.see(pool, "the pool has a ready cluster", func() bool { return pool.Status.Ready == 1 })

	claim := r.claim()
	inside, _ := r.inside(claim.Spec.Namespace)
	node := &corev1.Node{}
	node.Name = m.agent.Spec.Hostname
	require.NoError(t, inside.Get(t.Context(), client.ObjectKeyFromObject(node), node))
	if boot := node.Status.NodeInfo.BootID; slices.Contains(at, "joined") {
		kill("joined")
		r.waits("it is the same Node, and Ready again", func() error {
			if err := inside.Get(t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
				return err
			}
			if node.Status.NodeInfo.BootID == boot || !isReady(node) {
				return fmt.Errorf("boot %s, %+v", node.Status.NodeInfo.BootID, node.Status.Conditions)
			}
			return nil
		})
	}
	r.see(m.agent, "it belongs to the cluster", func() bool { return m.agent.Status.DebugInfo.State == "added-to-existing-cluster" })

	r.scale(pool, 0)
	r.scale(machines, 0)
	if slices.Contains(at, "releasing") { // its installed system starts again, and is asked again to come back
		r.see(m.agent, "it is being released", func() bool { return m.agent.Status.DebugInfo.State == "reclaiming" })
		kill("releasing")
	}
	r.see(m.agent, "it restarts", func() bool {
		return slices.Contains([]string{"reclaiming-rebooting", "discovering-unbound", "known-unbound"}, m.agent.Status.DebugInfo.State)
	})
	kill("released")
	r.comesBack(m)
	assert.Equal(t, m.agent.UID, r.onlyAgent().UID, "it is no other Agent")
}

// replaceFailed frees a machine whose installation failed, as the MachinePool says, and boots it from the image. The pool takes it again.
func (r *rack) replaceFailed(pool *hivev1.MachinePool, m *machine) {
	r.Helper()
	r.see(pool, "the MachinePool says that the installation failed", func() bool {
		c := hivev1.FindCondition(pool.Status.Conditions, hivev1.MachinePoolReady)
		return c != nil && c.Reason == hivev1.ReasonMachinesFailed
	})
	r.see(m.agent, "its Agent says that it restarted", func() bool { return m.agent.Status.DebugInfo.State == "error" })
	require.NoError(r, r.user.Patch(r.Context(), m.agent, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"clusterDeploymentName":null}}`))))
	r.see(m.agent, "it is released", func() bool { return m.agent.Status.DebugInfo.State != "error" })
	r.cutPower(m, "by its user")
	r.see(m.agent, "its disk is being written again", func() bool {
		return m.agent.Spec.ClusterDeploymentName != nil && m.agent.Status.DebugInfo.State == "installing-in-progress" && m.agent.Status.Progress.CurrentStage == "Writing image to disk"
	})
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// onlyAgent is the Agent of the only machine, once it has one.
func (r *rack) onlyAgent() *agentv1.Agent {
	r.Helper()
	var agents agentv1.AgentList
	r.waits("a machine that was not registered is an Agent", func() error {
		if err := r.user.List(r.Context(), &agents, client.InNamespace(namespace)); err != nil {
			return err
		}
		if len(agents.Items) == 0 {
			return errors.New("there is no Agent")
		}
		return nil
	})
	require.Len(r, agents.Items, 1)
	return &agents.Items[0]
}

// cutPower kills the process of the machine, and switches the same machine on again.
func (r *rack) cutPower(m *machine, stage string) {
	r.Helper()
	r.Logf("killed: %s, state %s, stage %q", stage, m.agent.Status.DebugInfo.State, m.agent.Status.Progress.CurrentStage)
	m.Kill()
	m.Machine = machinetest.PowerOn(r, m.hardware)
}
