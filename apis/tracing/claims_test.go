// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/tracing"
)

func TestReconcilesOfAMachinePoolAreInTheTraceOfItsClaimUntilTheClusterRuns(t *testing.T) {
	const claim types.UID = "0b6a5f2e-1c1d-4d3a-9f10-6a2b3c4d5e6f"
	scheme := runtime.NewScheme()
	require.NoError(t, hivev1.AddToScheme(scheme))
	for name, test := range map[string]struct {
		given func(*hivev1.ClusterDeployment, *hivev1.MachinePool)
		want  types.UID
	}{
		"the claimed cluster does not run": {func(c *hivev1.ClusterDeployment, _ *hivev1.MachinePool) {
			c.Status.PowerState = hivev1.PowerStateWaitingForNodes
		}, claim},
		"its machines are bound, it ran without them":      {func(*hivev1.ClusterDeployment, *hivev1.MachinePool) {}, claim},
		"its nodes were Ready, it runs":                    {func(_ *hivev1.ClusterDeployment, p *hivev1.MachinePool) { p.Status.FirstReadyTime = new(metav1.Now()) }, ""},
		"a user adds a MachinePool to a cluster that runs": {func(_ *hivev1.ClusterDeployment, p *hivev1.MachinePool) { p.Labels = nil }, ""},
		"the cluster is not claimed":                       {func(c *hivev1.ClusterDeployment, _ *hivev1.MachinePool) { c.Spec.ClusterPoolRef.ClaimUID = "" }, ""},
		"the cluster is of no pool":                        {func(c *hivev1.ClusterDeployment, _ *hivev1.MachinePool) { c.Spec.ClusterPoolRef = nil }, ""},
		"another controller serves the MachinePool":        {func(_ *hivev1.ClusterDeployment, p *hivev1.MachinePool) { p.Spec.Platform.AgentBareMetal = nil }, ""},
		"the cluster of the MachinePool is missing":        {func(_ *hivev1.ClusterDeployment, p *hivev1.MachinePool) { p.Spec.ClusterDeploymentRef.Name = "gone" }, ""},
		"the MachinePool that is to be reconciled is gone": {func(_ *hivev1.ClusterDeployment, p *hivev1.MachinePool) { p.Name = "another" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue"}}
			cluster.Spec.ClusterPoolRef = &hivev1.ClusterPoolReference{Namespace: "team", PoolName: "dev", ClaimName: "mine", ClaimUID: claim}
			cluster.Status.PowerState = hivev1.PowerStateRunning
			pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{Namespace: "blue", Name: "blue-worker", Labels: map[string]string{hivev1.LabelClusterPoolName: "dev"}}}
			pool.Spec.ClusterDeploymentRef.Name = cluster.Name
			pool.Spec.Platform.AgentBareMetal = &hivev1.AgentBareMetalMachinePool{}
			test.given(cluster, pool)
			cache := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, pool).Build()
			request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: "blue", Name: "blue-worker"}}
			assert.Equal(t, test.want, tracing.OfMachinePool(cache)(t.Context(), request))
		})
	}
}
