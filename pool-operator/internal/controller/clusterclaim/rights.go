// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterclaim

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	rbacv1ac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/claimplan"
)

// rights writes what a claim's subjects may do in its cluster: a Role and a RoleBinding.
type rights struct {
	client client.Client
	memory *memory
}

// grant writes the Role, then the RoleBinding: a role that does not exist yet cannot be bound. Absent objects are created, which costs the API server less than applying them.
func (w rights) grant(ctx context.Context, p *pass, a claimplan.GrantRights, now time.Time) error {
	if a.Role {
		role := &rbacv1.Role{ObjectMeta: ownedBy(a), Rules: a.Rules}
		if err := w.createOrApply(ctx, p.Role == nil, role, roleConfiguration(a)); err != nil {
			return fmt.Errorf("writing role %s/%s: %w", a.Cluster, hivev1.ClaimOwnerRoleName, err)
		}
		p.Role = &rbacv1.Role{Rules: a.Rules}
	}
	if a.Replace {
		if err := w.deleteBinding(ctx, a.Cluster); err != nil {
			return err
		}
		p.Binding = nil
	}
	if a.Binding {
		binding := &rbacv1.RoleBinding{ObjectMeta: ownedBy(a), Subjects: a.Subjects, RoleRef: claimplan.OwnerRoleRef()}
		if err := w.createOrApply(ctx, p.Binding == nil, binding, bindingConfiguration(a)); err != nil {
			return fmt.Errorf("writing role binding %s/%s: %w", a.Cluster, hivev1.ClaimOwnerRoleName, err)
		}
		p.Binding = &rbacv1.RoleBinding{Subjects: a.Subjects, RoleRef: claimplan.OwnerRoleRef()}
	}
	w.memory.grants(a.UID, now)
	return nil
}

// createOrApply creates an object that is absent as far as the cache knows. One that is there is made what it should be.
func (w rights) createOrApply(ctx context.Context, absent bool, object client.Object, configuration runtime.ApplyConfiguration) error {
	if absent {
		if err := w.client.Create(ctx, object, FieldOwner); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return w.client.Apply(ctx, configuration, FieldOwner, client.ForceOwnership)
}

// ownedBy is the metadata of what goes with the cluster.
func ownedBy(a claimplan.GrantRights) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: a.Cluster, Name: hivev1.ClaimOwnerRoleName, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: hivev1.GroupVersion.String(), Kind: "ClusterDeployment", Name: a.Cluster, UID: a.UID},
	}}
}

func ownerConfiguration(a claimplan.GrantRights) *metav1ac.OwnerReferenceApplyConfiguration {
	return metav1ac.OwnerReference().WithAPIVersion(hivev1.GroupVersion.String()).WithKind("ClusterDeployment").WithName(a.Cluster).WithUID(a.UID)
}

func roleConfiguration(a claimplan.GrantRights) *rbacv1ac.RoleApplyConfiguration {
	role := rbacv1ac.Role(hivev1.ClaimOwnerRoleName, a.Cluster).WithOwnerReferences(ownerConfiguration(a))
	for i := range a.Rules {
		rule := &a.Rules[i]
		role.WithRules(rbacv1ac.PolicyRule().
			WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).WithResourceNames(rule.ResourceNames...).WithVerbs(rule.Verbs...))
	}
	return role
}

func bindingConfiguration(a claimplan.GrantRights) *rbacv1ac.RoleBindingApplyConfiguration {
	ref := claimplan.OwnerRoleRef()
	binding := rbacv1ac.RoleBinding(hivev1.ClaimOwnerRoleName, a.Cluster).WithOwnerReferences(ownerConfiguration(a)).
		WithRoleRef(rbacv1ac.RoleRef().WithAPIGroup(ref.APIGroup).WithKind(ref.Kind).WithName(ref.Name))
	for i := range a.Subjects {
		binding.WithSubjects(subject(&a.Subjects[i]))
	}
	return binding
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

// revoke deletes the RoleBinding, then the Role, so that no moment gives more than the one before.
func (w rights) revoke(ctx context.Context, s *claimplan.Snapshot, a claimplan.RevokeRights) error {
	if a.Binding {
		if err := w.deleteBinding(ctx, a.Cluster); err != nil {
			return err
		}
		s.Binding = nil
	}
	if a.Role {
		role := &rbacv1.Role{}
		role.Namespace, role.Name = a.Cluster, hivev1.ClaimOwnerRoleName
		if err := client.IgnoreNotFound(w.client.Delete(ctx, role)); err != nil {
			return fmt.Errorf("deleting role %s/%s: %w", a.Cluster, hivev1.ClaimOwnerRoleName, err)
		}
		s.Role = nil
	}
	logf.FromContext(ctx).Info("revoked the subjects' rights", "ClusterDeployment", a.Cluster, "why", a.Why)
	return nil
}

func (w rights) deleteBinding(ctx context.Context, namespace string) error {
	binding := &rbacv1.RoleBinding{}
	binding.Namespace, binding.Name = namespace, hivev1.ClaimOwnerRoleName
	if err := client.IgnoreNotFound(w.client.Delete(ctx, binding)); err != nil {
		return fmt.Errorf("deleting role binding %s/%s: %w", namespace, hivev1.ClaimOwnerRoleName, err)
	}
	return nil
}
