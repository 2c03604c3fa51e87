// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"github.com/muster-io/muster/agent-service/internal/controller/conditionevent"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// eventRules lists the outcomes that become events.
var eventRules = []conditionevent.Rule{
	{Condition: agentv1.ConditionSpecSynced, Action: "Apply", Warning: []string{agentv1.ReasonInputError}},
	{
		Condition: hivev1.ClusterInstallCompleted, Action: "Install",
		Normal: []string{agentv1.ReasonInstallationInProgress, agentv1.ReasonInstallationCompleted},
	},
	{Condition: hivev1.ClusterInstallFailed, Action: "Install", Warning: []string{agentv1.ReasonInstallationFailed}},
	{Condition: conditionPreparationFailed, Action: "Prepare", Warning: []string{reasonPreparationFailed}},
	{Condition: hivev1.ClusterInstallStopped, Action: "Install", Normal: []string{reasonCancelled}},
}

// begins becomes an event where an installation was to begin and could not.
var begins = conditionevent.Rule{Condition: hivev1.ClusterInstallRequirementsMet, Action: "Install", Warning: []string{reasonClusterNotReady}}

// tell publishes outcomes of the cluster, once the status says them.
func (r *Reconciler) tell(seen *snapshot, before []hivev1.Condition) {
	rules := eventRules
	if seen.refusal != nil {
		rules = append([]conditionevent.Rule{begins}, eventRules...)
	}
	conditionevent.Publish(r.Recorder, seen.install, nil, rules, conditionevent.OfHive(before), conditionevent.OfHive(seen.install.Status.Conditions))
}
