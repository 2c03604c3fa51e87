// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

const unlisted = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: unlistedinstalls.install.example.org}
spec:
  group: install.example.org
  names: {kind: UnlistedInstall, listKind: UnlistedInstallList, plural: unlistedinstalls, singular: unlistedinstall}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// The readiness probe waits for the caches of the manager. A user chooses the kind, and an administrator forgets a right.
func TestAKindOfInstallObjectThatMayNotBeListedLeavesTheOperatorReady(t *testing.T) {
	admin := controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"unlistedinstall.yaml": {Data: []byte(unlisted)}}))
	scheme, err := NewScheme()
	require.NoError(t, err)
	api, err := client.New(admin, client.Options{Scheme: scheme})
	require.NoError(t, err)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "unlisted-"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"", hivev1.GroupName, "events.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{"install.example.org"}, Resources: []string{"unlistedinstalls"}, Verbs: []string{"get"}},
	}}
	require.NoError(t, api.Create(t.Context(), role))
	require.NoError(t, api.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "unlisted-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role.Name}},
	}))

	own := rest.CopyConfig(admin)
	own.Impersonate = rest.ImpersonationConfig{UserName: role.Name}
	mgr, err := ctrl.NewManager(own, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(t, err)
	require.NoError(t, addInstalls(mgr))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		assert.NoError(t, <-ended)
	})

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "unlisted-"}}
	require.NoError(t, api.Create(t.Context(), namespace))
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "blue"}, Spec: hivev1.ClusterDeploymentSpec{
		ClusterName: "blue", BaseDomain: "example.com", Platform: hivev1.Platform{None: &runtime.RawExtension{Raw: []byte("{}")}},
		ClusterInstallRef: &hivev1.ClusterInstallLocalReference{Group: "install.example.org", Version: "v1", Kind: "UnlistedInstall", Name: "blue"},
	}}
	require.NoError(t, api.Create(t.Context(), cluster))
	require.Eventually(t, func() bool {
		return api.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster) == nil && hivev1.FindCondition(cluster.Status.Conditions, hivev1.ClusterDeploymentRequirementsMet) != nil
	}, time.Minute, 50*time.Millisecond)
	synced, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	require.True(t, mgr.GetCache().WaitForCacheSync(synced))
}
