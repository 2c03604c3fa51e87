// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scale applies a merge patch to the scale of an object.
func (a api) scale(t *testing.T, u *unstructured.Unstructured, patch string) error {
	t.Helper()
	return a.SubResource("scale").Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// A bound on machines holds for each way to write their number.
func TestAMachinePoolIsNotLargerThanItsBound(t *testing.T) {
	a := newAPI(t)
	const sentence = "replicas must not be more than maxReplicas"
	_, err := a.create(t, machinePool("  replicas: 4\n  maxReplicas: 3\n"))
	assertRefused(t, err, sentence)
	u := a.mustCreate(t, machinePool("  replicas: 2\n  maxReplicas: 3\n"))
	assertRefused(t, a.merge(t, u, `{"spec":{"replicas":4}}`), sentence)
	assertRefused(t, a.scale(t, u, `{"spec":{"replicas":4}}`), sentence)
	require.NoError(t, a.scale(t, u, `{"spec":{"replicas":3}}`))
	_, err = a.create(t, nodesPool("{name: worker, replicas: 2, maxReplicas: 1, platform: {agentBareMetal: {agentSelector: {}}}}"))
	assertRefused(t, err, sentence)
	_, err = a.create(t, nodesPool("{name: worker, replicas: 2, maxReplicas: 2, platform: {agentBareMetal: {agentSelector: {}}}}"))
	require.NoError(t, err)
}

// A claim's subject scales the MachinePools that the pool made for his cluster within their bounds, and changes nothing else of them.
func TestASubjectChangesTheNumberOfMachines(t *testing.T) {
	a := newAPI(t)
	a.installPolicies(t, admissionFile)
	u := a.object(t, machinePool("  replicas: 1\n  maxReplicas: 3\n"))
	u.SetLabels(map[string]string{"hive.openshift.io/clusterpool-name": "p", "hive.openshift.io/clusterpool-namespace": "team"})
	u.SetFinalizers([]string{"hive.openshift.io/machine-pool-release"})
	require.NoError(t, a.Create(t.Context(), u))
	t.Cleanup(func() { _ = a.merge(t, u, `{"metadata":{"finalizers":null}}`) })
	foreign := a.mustCreate(t, hiveMachinePool)
	rules := func(verbs ...string) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{APIGroups: []string{"hive.openshift.io"}, Resources: []string{"machinepools", "machinepools/scale"}, Verbs: verbs}}
	}
	for name, verbs := range map[string][]string{"scaler": {"get", "patch", "update"}, "editor": {"create", "get", "patch", "update"}} {
		role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}, Rules: rules(verbs...)}
		require.NoError(t, a.Create(t.Context(), role))
		require.NoError(t, a.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}},
		}))
	}
	controller := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: a.namespace + "-machines"}, Rules: rules("get", "patch")}
	require.NoError(t, a.Create(t.Context(), controller))
	require.NoError(t, a.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: controller.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: controller.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "machines"}},
	}))
	subject, editor, machines := a.as(t, "scaler"), a.as(t, "editor"), a.as(t, "machines")
	const only = "of the spec of a MachinePool that the pool made, a claim's subjects may change replicas only"
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	require.Eventually(t, func() bool {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"maxReplicas":9}}`))
		return subject.Patch(t.Context(), u.DeepCopy(), patch, client.DryRunAll) != nil && subject.merge(t, u, label) == nil && editor.merge(t, u, label) == nil && machines.merge(t, u, label) == nil
	}, time.Minute, 50*time.Millisecond, "policies and rights come into force in their own time")

	for name, test := range map[string]struct{ patch, says string }{
		"the bound":             {`{"spec":{"maxReplicas":9}}`, only},
		"no bound":              {`{"spec":{"maxReplicas":null}}`, only},
		"which machines":        {`{"spec":{"platform":{"agentBareMetal":{"minimum":{"cpuCores":4}}}}}`, only},
		"labels of nodes":       {`{"spec":{"labels":{"a":"b"}}}`, only},
		"more than the bound":   {`{"spec":{"replicas":4}}`, "replicas must not be more than maxReplicas"},
		"the finalizer":         {`{"metadata":{"finalizers":null}}`, "are the operator's: leave them as they are"},
		"a pause":               {`{"metadata":{"annotations":{"hive.openshift.io/reconcile-pause":"true"}}}`, "are the operator's: leave them as they are"},
		"the label of its pool": {`{"metadata":{"labels":{"hive.openshift.io/clusterpool-name":null}}}`, "are the operator's: leave them as they are"},
	} {
		t.Run(name, func(t *testing.T) { assertRefused(t, subject.merge(t, u, test.patch), test.says) })
	}
	require.NoError(t, subject.merge(t, u, `{"spec":{"replicas":2}}`))
	require.NoError(t, subject.scale(t, u, `{"spec":{"replicas":3}}`))
	assertRefused(t, subject.scale(t, u, `{"spec":{"replicas":4}}`), "replicas must not be more than maxReplicas")
	require.NoError(t, subject.merge(t, foreign, `{"spec":{"machineLabels":{"c":"d"}}}`), "a MachinePool that no pool made")
	require.NoError(t, editor.merge(t, u, `{"spec":{"maxReplicas":9}}`), "a user who may create MachinePools")
	require.NoError(t, machines.merge(t, u, `{"metadata":{"finalizers":null}}`), "the controller of the machines")
}
