// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pooladmin

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/membership"
)

// snapshot is what the copy in one namespace depends on.
type snapshot struct {
	namespace string
	// cluster is nil when there is none.
	cluster *hivev1.ClusterDeployment
	// labels are those of the namespace.
	labels map[string]string
	// bindings are those to the ClusterRole of pool admins in the pool's namespace.
	bindings []rbacv1.RoleBinding
	// copied is the copy that is there; nil when there is none.
	copied *rbacv1.RoleBinding
}

// plan returns who the copy is for, and whether that has to be written; without subjects there is to be no copy.
func plan(s snapshot) (subjects []rbacv1.Subject, change bool) {
	if s.cluster != nil && s.cluster.Name == s.namespace && membership.Proved(s.cluster, s.labels) {
		subjects = union(s.bindings)
	}
	if len(subjects) == 0 {
		return nil, s.copied != nil
	}
	same := s.copied != nil && s.copied.RoleRef == roleRef() && equality.Semantic.DeepEqual(s.copied.Subjects, subjects)
	return subjects, !same
}

// union returns the subjects of all bindings that last, each once, in order.
func union(bindings []rbacv1.RoleBinding) []rbacv1.Subject {
	var all []rbacv1.Subject
	for i := range bindings {
		if bindings[i].DeletionTimestamp.IsZero() && bindings[i].RoleRef == roleRef() {
			all = append(all, bindings[i].Subjects...)
		}
	}
	slices.SortFunc(all, func(a, b rbacv1.Subject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.APIGroup, b.APIGroup))
	})
	return slices.Compact(all)
}

func roleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hivev1.PoolAdminClusterRoleName}
}
