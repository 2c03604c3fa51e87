// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adminplan decides which admins of a pool have rights in the namespace of one of its clusters.
package adminplan

import (
	"cmp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// Snapshot is what the copy of the bindings in one namespace depends on.
type Snapshot struct {
	// Member is true where the namespace is that of a cluster of the pool, by the namespace's labels.
	Member bool
	// Bindings are those to the ClusterRole of pool admins in the pool's namespace.
	Bindings []rbacv1.RoleBinding
	// Copied is the binding that is there with the name of the copy; nil when there is none.
	Copied *rbacv1.RoleBinding
}

// Plan returns who the copy is for, and whether that has to be written; without subjects there is to be no copy.
func Plan(s Snapshot) (subjects []rbacv1.Subject, change bool) {
	if s.Member {
		subjects = union(s.Bindings)
	}
	if len(subjects) == 0 {
		return nil, s.Copied != nil && (s.Member || isCopy(s.Copied))
	}
	same := s.Copied != nil && s.Copied.RoleRef == RoleRef() && equality.Semantic.DeepEqual(s.Copied.Subjects, subjects)
	return subjects, !same
}

// isCopy says whether a binding was made as a copy, which belongs to a ClusterDeployment. One that a user gave the same name, such as in the namespace of a pool, does not.
func isCopy(binding *rbacv1.RoleBinding) bool {
	return slices.ContainsFunc(binding.OwnerReferences, func(owner metav1.OwnerReference) bool {
		return owner.Kind == "ClusterDeployment" && strings.HasPrefix(owner.APIVersion, hivev1.GroupName+"/")
	})
}

// union returns the subjects of all bindings that last, each once, in order.
func union(bindings []rbacv1.RoleBinding) []rbacv1.Subject {
	var all []rbacv1.Subject
	for i := range bindings {
		if bindings[i].DeletionTimestamp.IsZero() && bindings[i].RoleRef == RoleRef() {
			all = append(all, bindings[i].Subjects...)
		}
	}
	slices.SortFunc(all, func(a, b rbacv1.Subject) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.APIGroup, b.APIGroup))
	})
	return slices.Compact(all)
}

// RoleRef refers to the ClusterRole of pool admins.
func RoleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: hivev1.PoolAdminClusterRoleName}
}
