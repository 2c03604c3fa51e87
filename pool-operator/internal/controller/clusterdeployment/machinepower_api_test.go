// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterdeployment_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1ac "github.com/muster-io/muster/apis/applyconfiguration/hive/v1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
)

// machinesAre says of the machines of a cluster what agent-service says, as it does: it applies its own conditions.
func (o *operator) machinesAre(key client.ObjectKey, status corev1.ConditionStatus, reason string) {
	o.Helper()
	now := metav1.Now().Rfc3339Copy()
	condition := hivev1ac.Condition().WithType(hivev1.ClusterDeploymentMachinesStopped).WithStatus(status).WithReason(reason).WithMessage("one is being switched").
		WithLastProbeTime(now).WithLastTransitionTime(now)
	apply := hivev1ac.ClusterDeployment(key.Name, key.Namespace).WithStatus(hivev1ac.ClusterDeploymentStatus().WithConditions(condition))
	require.NoError(o, o.admin.Status().Apply(o.Context(), apply, client.FieldOwner("agent-service/power"), client.ForceOwnership))
}

func TestAControlPlaneIsStoppedLastAndStartedFirst(t *testing.T) {
	o := newOperator(t)
	key := client.ObjectKeyFromObject(createCluster(t, o.admin))
	access := o.access(o.await(key, hivev1.PowerStateRunning))
	o.machinesAre(key, corev1.ConditionFalse, hivev1.ReasonMachinesRunning)

	o.setPower(key, hivev1.PowerStateHibernating)
	o.await(key, hivev1.PowerStateWaitingForMachinesToStop)
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), access), "it serves its nodes until they are off")
	o.crash()
	o.machinesAre(key, corev1.ConditionFalse, hivev1.ReasonStoppingMachines)
	o.start()
	o.await(key, hivev1.PowerStateWaitingForMachinesToStop)
	o.machinesAre(key, corev1.ConditionTrue, hivev1.ReasonMachinesStopped)
	o.await(key, hivev1.PowerStateHibernating)
	require.Error(t, contract.Kubernetes{}.Use(t.Context(), access))

	o.setPower(key, hivev1.PowerStateRunning)
	o.await(key, hivev1.PowerStateWaitingForNodes)
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), access), "it is there before its nodes are")
	o.machinesAre(key, corev1.ConditionFalse, hivev1.ReasonStartingMachines)
	o.machinesAre(key, corev1.ConditionFalse, hivev1.ReasonMachinesRunning)
	cluster := o.await(key, hivev1.PowerStateRunning)
	assert.NotNil(t, hivev1.FindCondition(cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped), "the condition is another controller's")
}
