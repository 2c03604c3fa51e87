// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package adminplan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestOnlyBindingsOfTheAdminsClusterRoleCount(t *testing.T) {
	other := RoleRef()
	other.Name = "view"
	s := Snapshot{Member: true, Bindings: []rbacv1.RoleBinding{
		{RoleRef: other, Subjects: []rbacv1.Subject{{Kind: "User", Name: "eve"}}},
		{RoleRef: RoleRef(), ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: time.Unix(1, 0)}}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "old"}}},
		{RoleRef: RoleRef(), Subjects: []rbacv1.Subject{{Kind: "User", Name: "ada"}, {Kind: "User", Name: "ada"}}},
	}}
	subjects, change := Plan(s)
	require.True(t, change)
	require.Equal(t, []rbacv1.Subject{{Kind: "User", Name: "ada"}}, subjects)
	s.Copied = &rbacv1.RoleBinding{RoleRef: RoleRef(), Subjects: subjects}
	_, change = Plan(s)
	require.False(t, change, "without a change there is no write")
	s.Member = false
	_, change = Plan(s)
	require.False(t, change, "a user made it, with the name of a copy")
	s.Copied.OwnerReferences = []metav1.OwnerReference{{APIVersion: "hive.openshift.io/v1", Kind: "ClusterDeployment", Name: "x"}}
	subjects, change = Plan(s)
	require.True(t, change)
	require.Empty(t, subjects)
}
