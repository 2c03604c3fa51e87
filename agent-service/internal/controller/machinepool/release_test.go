// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinepool

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/agent-service/internal/machineplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/faultinject"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// TestAPoolStaysWhileAgentsAreNotServed deletes a pool while the API server answers 404 about its machines, as for machines that are gone: they would keep the labels of a pool that is not there.
func TestAPoolStaysWhileAgentsAreNotServed(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pool := &hivev1.MachinePool{ObjectMeta: metav1.ObjectMeta{
		Namespace: "n", Name: "p", Finalizers: []string{hivev1.FinalizerMachinePool}, DeletionTimestamp: new(metav1.NewTime(now)),
	}, Spec: hivev1.MachinePoolSpec{Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{}}}}
	agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", Labels: map[string]string{agentv1.MachinePoolLabel: "p"}}}
	served := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(pool, agent).Build()
	unserved := interceptor.NewClient(served, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if _, is := obj.(*agentv1.Agent); is {
				return faultinject.NotServed(schema.GroupResource{Group: agentv1.GroupVersion.Group, Resource: "agents"})
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
	release := func(c client.Client) error {
		require.NoError(t, served.Get(t.Context(), client.ObjectKeyFromObject(pool), pool))
		require.NoError(t, served.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
		seen := &snapshot{
			key: client.ObjectKeyFromObject(pool), pool: pool, machines: []machineplan.Machine{{Name: "a", Mine: true, Free: true}}, agents: map[string]*agentv1.Agent{"a": agent},
		}
		_, err := New(Deps{Client: c, Live: c, Clock: clocktesting.NewFakePassiveClock(now)}).release(t.Context(), seen, nil)
		return err
	}
	require.Error(t, release(unserved))
	require.NoError(t, release(served))
	assert.True(t, apierrors.IsNotFound(served.Get(t.Context(), client.ObjectKeyFromObject(pool), pool)))
	require.NoError(t, served.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
	assert.Empty(t, agent.Labels)
}
