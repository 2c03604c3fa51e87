// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/controller/conditionevent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// eventRules lists the outcomes that become events, but for the cluster that a machine is in now.
var eventRules = []conditionevent.Rule{
	{Condition: agentv1.ConditionSpecSynced, Action: "Apply", Warning: []string{agentv1.ReasonInputError}},
	{
		Condition: agentv1.ConditionConnected, Action: "Listen", Later: true,
		Normal: []string{agentv1.ReasonAgentIsConnected}, Warning: []string{agentv1.ReasonAgentIsDisconnected},
	},
	{
		Condition: agentv1.ConditionBound, Action: "Unbind", Later: true,
		Normal: []string{agentv1.ReasonUnbound}, Warning: []string{agentv1.ReasonUnbindingPendingUserAction},
	},
	{
		Condition: agentv1.ConditionReleased, Action: "Release",
		Normal: []string{agentv1.ReasonReleased}, Warning: []string{agentv1.ReasonWipeFailed},
	},
	{
		Condition: agentv1.ConditionInstalled, Action: "Install",
		Normal: []string{agentv1.ReasonInstallationInProgress, agentv1.ReasonInstallationCompleted}, Warning: []string{agentv1.ReasonInstallationFailed},
	},
}

// tell publishes outcomes of the machine, once the status says them.
func (r *Reconciler) tell(seen *snapshot, before []agentv1.Condition) {
	conditionevent.Publish(r.Recorder, seen.agent, nil, eventRules, conditionevent.OfAgentInstall(before), conditionevent.OfAgentInstall(seen.agent.Status.Conditions))
	c := seen.cluster
	was := agentv1.FindCondition(before, agentv1.ConditionBound)
	if c == nil || !agentv1.IsConditionTrue(seen.agent.Status.Conditions, agentv1.ConditionBound) || was != nil && was.Reason == agentv1.ReasonBound && !seen.moved {
		return
	}
	if c.Kube == (domain.KubeRef{}) {
		r.Recorder.Eventf(seen.agent, nil, corev1.EventTypeNormal, agentv1.ReasonBound, "Bind", "Bound to cluster %s", c.Name)
		return
	}
	deployment := &hivev1.ClusterDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: hivev1.GroupVersion.String(), Kind: "ClusterDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: c.Kube.Namespace, Name: c.Kube.Name},
	}
	r.Recorder.Eventf(seen.agent, deployment, corev1.EventTypeNormal, agentv1.ReasonBound, "Bind", "Bound to ClusterDeployment %s/%s", c.Kube.Namespace, c.Kube.Name)
}
