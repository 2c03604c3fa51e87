// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package infraenv

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
)

// Former versions of assisted-service make Agents without an owner. Those that another InfraEnv owns, or had under the same name before, are left alone.
func TestAnInfraEnvAdoptsItsAgentsThatHaveNoOwner(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	infraEnv := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rack", UID: "e"}}
	agent := func(namespace, name, label string, owners ...metav1.OwnerReference) *agentv1.Agent {
		return &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{agentv1.InfraEnvLabel: label}, OwnerReferences: owners}}
	}
	former := metav1.OwnerReference{APIVersion: agentv1.GroupVersion.String(), Kind: infraEnvKind, Name: "rack", UID: "former"}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "a"}
	given := map[*agentv1.Agent][]string{
		agent("metal", "alone", "rack"): {"e"}, agent("metal", "beside", "rack", other): {"a", "e"}, agent("metal", "of-former", "rack", former): {"former"},
		agent("metal", "elsewhere", "row"): {}, agent("foreign", "of-others", "rack"): {},
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for one := range given {
		builder = builder.WithObjects(one)
	}
	refused := agent("metal", "a-refused", "rack")
	api := interceptor.NewClient(builder.WithObjects(refused).Build(), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, options ...client.PatchOption) error {
			if obj.GetName() == refused.Name { // by a policy of its users: the others get their owner
				return apierrors.NewForbidden(schema.GroupResource{Group: agentv1.GroupVersion.Group, Resource: "agents"}, refused.Name, nil)
			}
			return c.Patch(ctx, obj, patch, options...)
		},
	})
	require.NoError(t, New(Deps{Client: api}).adopt(t.Context(), infraEnv))
	for one, want := range given {
		require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(one), one))
		owners := []string{}
		for _, owner := range one.OwnerReferences {
			owners = append(owners, string(owner.UID))
		}
		assert.Equal(t, want, owners, one.Name)
	}
}
