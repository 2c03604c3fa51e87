// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// reserve makes an AgentReservation of Agents with the label rack=a.
func reserve(c *cluster, name string, count int32, change ...func(*agentv1.AgentReservationSpec)) *agentv1.AgentReservation {
	c.Helper()
	reservation := &agentv1.AgentReservation{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec:       agentv1.AgentReservationSpec{Count: count, AgentSelector: metav1.LabelSelector{MatchLabels: map[string]string{"rack": "a"}}},
	}
	for _, one := range change {
		one(&reservation.Spec)
	}
	c.create(reservation)
	return reservation
}

// readiness waits for a reason of the condition Ready, and returns its sentence.
func readiness(c *cluster, reservation *agentv1.AgentReservation, reason, message string) {
	c.Helper()
	c.until(reservation, "it is "+reason+": "+message, func() bool {
		ready := agentv1.FindCondition(reservation.Status.Conditions, agentv1.ConditionReady)
		return ready != nil && ready.Reason == reason && (message == "" || ready.Message == message)
	})
}

// rack boots machines whose Agents are approved.
func rack(c *cluster, infraEnv *agentv1.InfraEnv, machines int) []*agentv1.Agent {
	c.Helper()
	booted := make([]*machine, 0, machines)
	for i := range machines {
		booted = append(booted, c.boot(infraEnv, i, 0))
	}
	agents := make([]*agentv1.Agent, 0, machines)
	for _, m := range booted {
		agent := c.agent(m)
		c.until(agent, "it is valid", func() bool {
			return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionValidated) && agent.Spec.Approved
		})
		agents = append(agents, agent)
	}
	return agents
}

func approving(s *agentv1.InfraEnvSpec) { s.AgentApproval = &agentv1.AgentApproval{AutoApprove: true} }

func TestAnAgentReservationHoldsAllMachinesOrNone(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	rack(c, c.infraEnv("a", approving), 3)
	few := reserve(c, "few", 4)
	readiness(c, few, agentv1.ReasonTooFewAgents, "3 of 4 Agents can be reserved: 3 Agents match; 3 free")
	c.eventOf(few, corev1.EventTypeWarning, agentv1.ReasonTooFewAgents, "", "3 of 4 Agents")
	assert.Empty(t, few.Status.Agents)
	assert.Zero(t, few.Status.Reserved)

	two := reserve(c, "two", 2)
	readiness(c, two, agentv1.ReasonMachinesReserved, "")
	assert.Equal(t, int32(2), two.Status.Reserved)
	require.Len(t, two.Status.Agents, 2)
	until := two.Status.ReservedUntil.UTC().Format("2006-01-02T15:04:05Z")
	readiness(c, two, agentv1.ReasonMachinesReserved, "2 of 2 machines are reserved until "+until)
	c.eventOf(two, corev1.EventTypeNormal, agentv1.ReasonMachinesReserved, "", "until "+until)
	held := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: two.Status.Agents[0]}}
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	assert.Equal(t, "The machine is reserved by AgentReservation two until "+until+": only its Agent binds it before", agentv1.FindCondition(held.Status.Conditions, agentv1.ConditionReserved).Message)
	other := reserve(c, "other", 2)
	readiness(c, other, agentv1.ReasonTooFewAgents, "1 of 2 Agents can be reserved: 3 Agents match; 2 reserved, 1 free")

	deployment, _ := c.deployment()
	change(c, held, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	readiness(c, two, agentv1.ReasonMachinesReserved, "1 of 2 machines are reserved until "+until+" (1 bound)")
	c.says(held, agentv1.ConditionBound, agentv1.ReasonBound)
	assert.Nil(t, agentv1.FindCondition(held.Status.Conditions, agentv1.ConditionReserved))

	require.NoError(t, c.user.Delete(t.Context(), two))
	c.gone(two)
	readiness(c, other, agentv1.ReasonMachinesReserved, "") // by the machine that the other one released
	assert.NotContains(t, other.Status.Agents, held.Name)
	require.NoError(t, c.user.Delete(t.Context(), few))
	c.gone(few)
}

func TestAnAgentReservationThatCannotBeReadSaysSo(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	bad := reserve(c, "bad", 1, func(s *agentv1.AgentReservationSpec) {
		s.AgentSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "rack", Operator: "Like"}}}
	})
	readiness(c, bad, agentv1.ReasonInvalidSelector, `spec.agentSelector cannot be read: "Like" is not a valid label selector operator`)
	none := reserve(c, "none", 1)
	readiness(c, none, agentv1.ReasonTooFewAgents, "0 of 1 Agents can be reserved: no Agent matches")
}

// TestReplicasGiveNoMachineToTwoReservations lets two replicas reconcile the same objects, and every second answer of the API server be lost.
func TestReplicasGiveNoMachineToTwoReservations(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	c := newCluster(t, func(o *Options) { o.Database = server.URL })
	defer c.stop() // while there is a database
	c.start("127.0.0.1:0")
	defer c.stop()
	rack(c, c.infraEnv("a", approving), 6)
	c.lossy.Store(true)
	const each, reservations = 2, 5
	all := make([]*agentv1.AgentReservation, 0, reservations)
	for i := range reservations {
		all = append(all, reserve(c, fmt.Sprintf("r%d", i), each))
	}
	ready := func(one *agentv1.AgentReservation) bool {
		return agentv1.IsConditionTrue(one.Status.Conditions, agentv1.ConditionReady)
	}
	for _, one := range all {
		c.until(one, "it is decided", func() bool {
			condition := agentv1.FindCondition(one.Status.Conditions, agentv1.ConditionReady)
			return ready(one) || condition != nil && condition.Reason == agentv1.ReasonTooFewAgents && condition.Message == "0 of 2 Agents can be reserved: 6 Agents match; 6 reserved"
		})
	}
	holders := map[string]string{}
	waiting := 0
	for _, one := range all {
		if !ready(one) {
			waiting++
		}
		for _, name := range one.Status.Agents {
			assert.Empty(t, holders[name], "Agent %s", name)
			holders[name] = one.Name
		}
	}
	assert.Len(t, holders, 6)
	assert.Equal(t, 2, waiting)
	for _, one := range all {
		if ready(one) {
			require.NoError(t, c.user.Delete(t.Context(), one))
			c.gone(one)
		}
	}
	for _, one := range all { // what was held is free again, and nothing more is taken than there is
		if !ready(one) {
			readiness(c, one, agentv1.ReasonMachinesReserved, "")
			assert.Len(t, one.Status.Agents, each)
		}
	}
}
