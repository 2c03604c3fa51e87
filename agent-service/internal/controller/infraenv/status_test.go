// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package infraenv

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

func TestReadyIsThatThereIsAnImage(t *testing.T) {
	for sentence, test := range map[string]struct {
		obstacle error
		image    corev1.ConditionStatus
		ready    corev1.ConditionStatus
		reason   string
	}{
		"there is an image":            {nil, corev1.ConditionTrue, corev1.ConditionTrue, agentv1.ReasonInfraEnvAvailable},
		"its cluster is missing":       {domain.Refuse(domain.Invalid, noDeployment, "x"), corev1.ConditionUnknown, corev1.ConditionFalse, agentv1.ReasonMissingClusterDeployment},
		"the image cannot be composed": {domain.Refuse(domain.Invalid, "x", "x"), corev1.ConditionFalse, corev1.ConditionFalse, agentv1.ReasonImageCreationError},
	} {
		t.Run(sentence, func(t *testing.T) {
			said := status(&agentv1.InfraEnv{}, &domain.InfraEnv{}, Addresses{}, test.obstacle, metav1.Now())
			assert.Equal(t, test.image, agentv1.FindCondition(said.Conditions, agentv1.ConditionImageCreated).Status)
			ready := agentv1.FindCondition(said.Conditions, agentv1.ConditionReady)
			require.NotNil(t, ready)
			assert.Equal(t, test.ready, ready.Status)
			assert.Equal(t, test.reason, ready.Reason)
		})
	}
}
