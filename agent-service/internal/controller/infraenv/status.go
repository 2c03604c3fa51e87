// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package infraenv

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/muster-io/muster/agent-service/internal/controller/conditionevent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// reasonHostsBound is why an InfraEnv that is being deleted is still there.
const reasonHostsBound = "HostsBound"

// eventRules lists the outcomes that become events.
var eventRules = []conditionevent.Rule{{
	Condition: agentv1.ConditionImageCreated, Action: "CreateImage", Normal: []string{agentv1.ReasonInfraEnvAvailable},
	Warning: []string{agentv1.ReasonImageCreationError, agentv1.ReasonMissingClusterDeployment, reasonHostsBound},
}}

// status is what to say of an InfraEnv: where its image is, or what stands in the way.
func status(infraEnv *agentv1.InfraEnv, env *domain.InfraEnv, a Addresses, obstacle error, now metav1.Time) agentv1.InfraEnvStatus {
	said := *infraEnv.Status.DeepCopy()
	said.AgentLabelSelector = metav1.LabelSelector{MatchLabels: map[string]string{agentv1.InfraEnvLabel: Label(infraEnv)}}
	condition := agentv1.Condition{
		Type: agentv1.ConditionImageCreated, Status: corev1.ConditionTrue, Reason: agentv1.ReasonInfraEnvAvailable, Message: "InfraEnv is available: Image has been created",
	}
	switch {
	case !infraEnv.DeletionTimestamp.IsZero():
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, reasonHostsBound, "The InfraEnv stays until none of its hosts is bound, or on its way back from a cluster: "+obstacle.Error()
	case domain.ReasonOf(obstacle) == noDeployment:
		condition.Status, condition.Reason, condition.Message = corev1.ConditionUnknown, agentv1.ReasonMissingClusterDeployment, "ClusterDeployment is missing"
		forget(&said)
	case domain.ReasonOf(obstacle) == noCluster:
		condition.Status, condition.Reason = corev1.ConditionUnknown, agentv1.ReasonMissingClusterDeployment
		condition.Message = "ClusterDeployment is not complete: no AgentClusterInstall names it yet, or the SpecSynced of the one that does says what is wrong"
		forget(&said)
	case obstacle != nil:
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, agentv1.ReasonImageCreationError, "Failed to create image: "+obstacle.Error()
		forget(&said)
	default:
		if a.Lacks != "" {
			condition.Message += ", but " + a.Lacks
		}
		said.ISODownloadURL = a.ISO
		said.CreatedTime = new(metav1.NewTime(env.ImageUpdatedAt).Rfc3339Copy())
		said.BootArtifacts = agentv1.BootArtifacts{
			DiscoveryIgnitionURL: a.Ignition, InitrdURL: a.Initrd, IpxeScriptURL: a.IPXEScript, KernelURL: a.Kernel, RootfsURL: a.RootFS,
		}
		said.InfraEnvDebugInfo = agentv1.InfraEnvDebugInfo{EventsURL: a.Events, StaticNetworkDownloadURL: a.StaticNetwork}
	}
	agentv1.SetCondition(&said.Conditions, condition, now)
	agentv1.SetCondition(&said.Conditions, agentv1.Summarize(agentv1.ConditionReady, said.Conditions, agentv1.ConditionImageCreated), now)
	return said
}

// forget clears the addresses of an image that cannot be made.
func forget(said *agentv1.InfraEnvStatus) {
	said.ISODownloadURL, said.CreatedTime, said.BootArtifacts, said.InfraEnvDebugInfo = "", nil, agentv1.BootArtifacts{}, agentv1.InfraEnvDebugInfo{}
}

// Label is the value of the label that Agents of the InfraEnv have: its name, or its UID where the name is too long for a label.
func Label(infraEnv *agentv1.InfraEnv) string {
	if len(infraEnv.Name) > validation.LabelValueMaxLength {
		return string(infraEnv.UID)
	}
	return infraEnv.Name
}
