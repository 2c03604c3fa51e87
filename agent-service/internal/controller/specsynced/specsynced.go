// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package specsynced says in the condition SpecSynced how far the spec of an object was applied to the service, alike for all kinds.
package specsynced

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// Of returns the condition for what kept the spec from being applied, nil for nothing. The text of an error that is no refusal is not shown.
func Of(obstacle error) (status corev1.ConditionStatus, reason, message string) {
	switch {
	case obstacle == nil:
		return corev1.ConditionTrue, agentv1.ReasonSyncOK, "The Spec has been successfully applied"
	case domain.Transient(obstacle):
		message = "the service or the API server does not answer as it should; it is tried again"
		if domain.KindOf(obstacle) != "" {
			message = obstacle.Error()
		}
		return corev1.ConditionFalse, agentv1.ReasonBackendError, "The Spec could not be synced due to backend error: " + message
	}
	return corev1.ConditionFalse, agentv1.ReasonInputError, "The Spec could not be synced due to an input error: " + obstacle.Error()
}
