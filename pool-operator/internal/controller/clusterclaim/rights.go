// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// grantRights writes the Role, then the RoleBinding: nobody may bind a role that does not exist yet.
func (r *Reconciler) grantRights(ctx context.Context, p *pass, a claimplan.GrantRights) error {
	owner := metav1ac.OwnerReference().
		WithAPIVersion(hivev1.GroupVersion.String()).WithKind("ClusterDeployment").WithName(a.Cluster).WithUID(a.UID)
	if a.Role {
		role := rbacv1ac.Role(hivev1.ClaimOwnerRoleName, a.Cluster).WithOwnerReferences(owner)
		for i := range a.Rules {
			rule := &a.Rules[i]
			role.WithRules(rbacv1ac.PolicyRule().
				WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).WithResourceNames(rule.ResourceNames...).WithVerbs(rule.Verbs...))
		}
		if err := r.Client.Apply(ctx, role, FieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("writing role %s/%s: %w", a.Cluster, hivev1.ClaimOwnerRoleName, err)
		}
		p.Role = &rbacv1.Role{Rules: a.Rules}
	}
	if a.Replace {
		if err := r.deleteBinding(ctx, a.Cluster); err != nil {
			return err
		}
		p.Binding = nil
	}
	if a.Binding {
		ref := claimplan.OwnerRoleRef()
		binding := rbacv1ac.RoleBinding(hivev1.ClaimOwnerRoleName, a.Cluster).WithOwnerReferences(owner).
			WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(ref.APIGroup).WithKind(ref.Kind).WithName(ref.Name))
		for i := range a.Subjects {
			binding.WithSubjects(subject(&a.Subjects[i]))
		}
		if err := r.Client.Apply(ctx, binding, FieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("writing role binding %s/%s: %w", a.Cluster, hivev1.ClaimOwnerRoleName, err)
		}
		p.Binding = &rbacv1.RoleBinding{Subjects: a.Subjects, RoleRef: ref}
	}
	return nil
}

func subject(s *rbacv1.Subject) *rbacv1ac.SubjectApplyConfiguration {
	out := rbacv1ac.Subject().WithKind(s.Kind).WithName(s.Name)
	if s.APIGroup != "" {
		out.WithAPIGroup(s.APIGroup)
	}
	if s.Namespace != "" {
		out.WithNamespace(s.Namespace)
	}
	return out
}

// revokeRights deletes the RoleBinding, then the Role, so that no moment gives more than the one before.
func (r *Reconciler) revokeRights(ctx context.Context, s *claimplan.Snapshot, a claimplan.RevokeRights) error {
	if a.Binding {
		if err := r.deleteBinding(ctx, a.Cluster); err != nil {
			return err
		}
		s.Binding = nil
	}
	if a.Role {
		role := &rbacv1.Role{}
		role.Namespace, role.Name = a.Cluster, hivev1.ClaimOwnerRoleName
		if err := client.IgnoreNotFound(r.Client.Delete(ctx, role)); err != nil {
			return fmt.Errorf("deleting role %s/%s: %w", a.Cluster, hivev1.ClaimOwnerRoleName, err)
		}
		s.Role = nil
	}
	logf.FromContext(ctx).Info("revoked the subjects' rights", "ClusterDeployment", a.Cluster, "why", a.Why)
	return nil
}

func (r *Reconciler) deleteBinding(ctx context.Context, namespace string) error {
	binding := &rbacv1.RoleBinding{}
	binding.Namespace, binding.Name = namespace, hivev1.ClaimOwnerRoleName
	if err := client.IgnoreNotFound(r.Client.Delete(ctx, binding)); err != nil {
		return fmt.Errorf("deleting role binding %s/%s: %w", namespace, hivev1.ClaimOwnerRoleName, err)
	}
	return nil
}
