// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

func TestAFirstAgentARevocationAndADeletionDoNotWait(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	key := domain.HostKey{InfraEnvID: "rack", HostID: "0c1d2e3f-0000-4000-8000-000000000001"}
	now := metav1.Now()
	for name, c := range map[string]struct {
		change func(*agentv1.Agent)
		want   bool
	}{
		"the host has no Agent":      {want: true},
		"its Agent is as ever":       {change: func(*agentv1.Agent) {}},
		"its Agent is being deleted": {change: func(a *agentv1.Agent) { a.DeletionTimestamp = &now }, want: true},
		"the tokens are to be revoked": {change: func(a *agentv1.Agent) {
			metav1.SetMetaDataAnnotation(&a.ObjectMeta, agentv1.RevokeTokensAnnotation, "")
		}, want: true},
		"its Agent is bound": {change: func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: "blue"} }},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{}
			if c.change != nil {
				agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{
					Namespace: "metal", Name: key.HostID, Finalizers: []string{agentv1.AgentFinalizer},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: agentv1.GroupVersion.String(), Kind: infraEnvKind, Name: "rack", UID: "rack"}},
				}}
				c.change(agent)
				objects = append(objects, agent)
			}
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
				WithIndex(&agentv1.Agent{}, HostIndex, func(o client.Object) []string { return []string{HostKey(o).String()} }).Build()
			assert.Equal(t, c.want, New(Deps{Client: api}).cannotWait(t.Context(), key))
		})
	}
}

func TestABindIsOfAMomentAgoWhateverTheClockOfThePoolSays(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for at, want := range map[string]bool{
		"2026-01-02T03:04:04Z": true, "2026-01-02T03:04:06Z": true, "2026-01-02T03:03:05Z": false, "2099-01-02T03:04:05Z": false, "now": false, "": false,
	} {
		agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{agentv1.MachinePoolBoundAtAnnotation: at}}}
		assert.Equal(t, want, justBound(agent, now), at)
	}
	assert.False(t, justBound(&agentv1.Agent{}, now))
}
