// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package infraenv

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/domain"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// revoking counts revocations, of an InfraEnv whose hosts are bound.
type revoking struct {
	Service
	revoked int
	answer  error
}

func (r *revoking) RevokeHostTokens(context.Context, domain.Principal, string) error {
	r.revoked++
	return r.answer
}

func (r *revoking) DeleteInfraEnv(context.Context, domain.Principal, string, bool) error {
	return domain.Refuse(domain.Conflict, "HostsBound", "host h is bound")
}

func TestTokensAreRevokedWhateverElseIsInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*agentv1.InfraEnv)
		answer error
	}{
		"the spec cannot be applied: its pull secret is gone": {func(*agentv1.InfraEnv) {}, nil},
		"the InfraEnv is being deleted, and has bound hosts":  {func(e *agentv1.InfraEnv) { e.DeletionTimestamp = new(metav1.Now()) }, nil},
		"the service does not know it yet":                    {func(*agentv1.InfraEnv) {}, domain.RefuseUnknown("InfraEnv", "e")},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, clientgoscheme.AddToScheme(scheme))
			require.NoError(t, agentv1.AddToScheme(scheme))
			infraEnv := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{
				Namespace: "metal", Name: "rack", UID: "e", Finalizers: []string{agentv1.InfraEnvFinalizer}, Annotations: map[string]string{agentv1.RevokeHostTokensAnnotation: ""},
			}}
			infraEnv.Spec.PullSecretRef.Name = "gone"
			c.change(infraEnv)
			api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(infraEnv).WithStatusSubresource(infraEnv).Build()
			service := &revoking{answer: c.answer}
			r := New(Deps{Client: api, Live: api, Service: service, Recorder: events.NewFakeRecorder(10)})
			_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(infraEnv)})
			require.NoError(t, err)
			assert.Equal(t, 1, service.revoked)
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(infraEnv), infraEnv))
			assert.NotContains(t, infraEnv.Annotations, agentv1.RevokeHostTokensAnnotation)
			assert.NotNil(t, agentv1.FindCondition(infraEnv.Status.Conditions, agentv1.ConditionImageCreated), "what is in the way is said, too")
		})
	}
}
