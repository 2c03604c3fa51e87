// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/controller/infraenv"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/validate"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// installing is a service with a host that is being installed.
type installing struct {
	Service
	revoked int
}

func (s *installing) HostMinimums() validate.Minimums { return validate.DefaultMinimums }

func (s *installing) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	return &domain.Host{HostKey: key, State: lifecycle.Installing}, nil
}

func (s *installing) Inventory(context.Context, domain.Principal, domain.HostKey) ([]byte, error) {
	return nil, nil
}

func (s *installing) DeleteHost(context.Context, domain.Principal, domain.HostKey) error {
	return domain.Refuse(domain.Conflict, "HostInstalling", "the host is being installed")
}

func (s *installing) RevokeTokens(context.Context, domain.Principal, domain.HostKey) (*domain.Host, error) {
	s.revoked++
	return nil, nil //nolint:nilnil // nothing reads it
}

func TestTokensAreRevokedWhileAnInstallationKeepsTheAgentThatIsDeleted(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	key := domain.HostKey{InfraEnvID: "e", HostID: "0b2f4a0e-3b1c-4e0f-9a51-000000000001"}
	infraEnv := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rack", UID: "e"}}
	agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{
		Namespace: "metal", Name: key.HostID, DeletionTimestamp: new(metav1.Now()), Finalizers: []string{agentv1.AgentFinalizer},
		Annotations:     map[string]string{agentv1.RevokeTokensAnnotation: ""},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: agentv1.GroupVersion.String(), Kind: infraEnvKind, Name: "rack", UID: "e"}},
	}}
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(infraEnv, agent).WithStatusSubresource(agent).
		WithIndex(&agentv1.InfraEnv{}, infraenv.UIDIndex, func(o client.Object) []string { return []string{string(o.GetUID())} }).
		WithIndex(&agentv1.Agent{}, HostIndex, func(o client.Object) []string { return []string{HostKey(o).String()} }).Build()
	service := &installing{}
	r := New(Deps{Client: api, Live: api, Service: service, Recorder: events.NewFakeRecorder(10)})
	_, err := r.Reconcile(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, 1, service.revoked)
	require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
	assert.NotContains(t, agent.Annotations, agentv1.RevokeTokensAnnotation)
	assert.NotEmpty(t, agent.Finalizers, "it stays until the installation is over")
}
