// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// eventOf waits for an event about an object that says, among other things, what note is. related is the namespace of the other object, empty without one.
func (c *cluster) eventOf(object client.Object, kind, reason, related, note string) eventsv1.Event {
	c.Helper()
	var found eventsv1.Event
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		list := &eventsv1.EventList{}
		require.NoError(collect, c.user.List(c.Context(), list, client.InNamespace(object.GetNamespace())))
		seen := []string{}
		for _, e := range list.Items {
			namespace := ""
			if e.Related != nil {
				namespace = e.Related.Namespace
			}
			if e.Regarding.UID == object.GetUID() && e.Type == kind && e.Reason == reason && namespace == related && strings.Contains(e.Note, note) {
				found = e
				return
			}
			seen = append(seen, e.Regarding.Name+" "+e.Reason+": "+e.Note)
		}
		require.Fail(collect, "it is not told", "%s among %v", reason, seen)
	}, kubePatience, 50*time.Millisecond)
	return found
}

func TestOutcomesBecomeEvents(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	infraEnv := c.infraEnv("rack")
	assert.Equal(t, "agent-service", c.eventOf(infraEnv, corev1.EventTypeNormal, agentv1.ReasonInfraEnvAvailable, "", "").ReportingController)
	agent := c.agent(c.boot(infraEnv, 1, 0))
	first, _ := c.deployment()
	second, install := c.deployment(func(spec *hiveextv1.AgentClusterInstallSpec) { spec.HoldInstallation = false })
	bind := func(to *agentv1.ClusterReference) {
		change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = to })
	}
	bind(reference(first))
	assert.Equal(t, "Bound to ClusterDeployment "+first.Namespace+"/blue", c.eventOf(agent, corev1.EventTypeNormal, agentv1.ReasonBound, first.Namespace, "").Note)
	bind(reference(second))
	c.eventOf(agent, corev1.EventTypeNormal, agentv1.ReasonBound, second.Namespace, "")
	bind(nil)
	c.eventOf(agent, corev1.EventTypeNormal, agentv1.ReasonUnbound, "", "")
	bind(&agentv1.ClusterReference{Name: "nowhere"})
	c.eventOf(agent, corev1.EventTypeWarning, agentv1.ReasonInputError, "", "nowhere is missing")
	bind(reference(second))
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Approved = true })
	c.eventOf(install, corev1.EventTypeNormal, agentv1.ReasonInstallationInProgress, "", "")
	c.eventOf(install, corev1.EventTypeNormal, agentv1.ReasonInstallationCompleted, "", "")
	c.eventOf(agent, corev1.EventTypeNormal, agentv1.ReasonInstallationCompleted, "", "")
	bind(nil)
	c.eventOf(agent, corev1.EventTypeWarning, agentv1.ReasonUnbindingPendingUserAction, "", "")

	list := &eventsv1.EventList{}
	require.NoError(t, c.user.List(t.Context(), list, client.InNamespace(c.namespace)))
	for _, e := range list.Items {
		assert.NotEqual(t, agentv1.ReasonAgentIsConnected, e.Reason, "it was never silent")
	}
}
