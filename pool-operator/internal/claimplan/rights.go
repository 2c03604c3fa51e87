// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// ownerResources are the kinds of the group that live in a cluster's namespace; those that other controllers serve are among them. They and the
// verbs are written out because nobody can grant a wildcard without holding one.
var (
	ownerResources = []string{
		"clusterdeploymentcustomizations", "clusterdeployments", "clusterdeprovisions", "clusterprovisions", "clusterstates", "dnszones",
		"machinepools", "syncidentityproviders", "syncsets",
	}
	ownerVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)

// OwnerRules returns what a claim's subjects may do in the namespace of their cluster: everything with the kinds of the group that live there, and read the
// Secrets that lead into the cluster.
func OwnerRules(metadata *hivev1.ClusterMetadata) []rbacv1.PolicyRule {
	secrets := []string{metadata.AdminKubeconfigSecretRef.Name}
	for _, ref := range []*hivev1.LocalObjectReference{metadata.AdminPasswordSecretRef, metadata.MetadataJSONSecretRef} {
		if ref != nil && ref.Name != "" {
			secrets = append(secrets, ref.Name)
		}
	}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{hivev1.GroupName}, Resources: slices.Clone(ownerResources), Verbs: slices.Clone(ownerVerbs)},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: secrets, Verbs: []string{"get"}},
	}
}

// OwnerSubjects returns the subjects in the form that the API server keeps them in, and a sentence about each one that it would refuse.
func OwnerSubjects(claimed []rbacv1.Subject) (subjects []rbacv1.Subject, refused []string) {
	for i, subject := range claimed {
		problem := ""
		group := rbacv1.GroupName
		switch subject.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
		case rbacv1.ServiceAccountKind:
			group = ""
			if subject.Namespace == "" {
				problem = "a ServiceAccount needs a namespace"
			}
		default:
			problem = fmt.Sprintf("kind %q is none of User, Group and ServiceAccount", subject.Kind)
		}
		if subject.Name == "" {
			problem = "the name is missing"
		}
		if subject.APIGroup != "" && subject.APIGroup != group {
			problem = fmt.Sprintf("apiGroup %q is not that of kind %s", subject.APIGroup, subject.Kind)
		}
		if problem != "" {
			refused = append(refused, fmt.Sprintf("subjects[%d]: %s", i, problem))
			continue
		}
		subject.APIGroup = group
		subjects = append(subjects, subject)
	}
	return subjects, refused
}

// grant returns what has to be done about the subjects' rights, and whether they are as they should be.
func (s *Snapshot) grant(own *Cluster) (action Action, settled bool) {
	subjects, _ := OwnerSubjects(s.Claim.Spec.Subjects)
	if len(subjects) == 0 {
		if s.Role == nil && s.Binding == nil {
			return nil, true
		}
		return RevokeRights{Cluster: own.Namespace, Role: s.Role != nil, Binding: s.Binding != nil, Why: WhyNoSubjects}, false
	}
	if own.Metadata == nil {
		return nil, false
	}
	g := GrantRights{Cluster: own.Namespace, UID: own.UID, Rules: OwnerRules(own.Metadata), Subjects: subjects, Why: WhyRights}
	g.Role = s.Role == nil || !equality.Semantic.DeepEqual(s.Role.Rules, g.Rules)
	g.Binding = s.Binding == nil || !equality.Semantic.DeepEqual(s.Binding.Subjects, subjects)
	g.Replace = s.Binding != nil && s.Binding.RoleRef != OwnerRoleRef()
	g.Binding = g.Binding || g.Replace
	if !g.Role && !g.Binding {
		return nil, true
	}
	return g, false
}

// OwnerRoleRef leads to the Role of a claim's subjects.
func OwnerRoleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: hivev1.ClaimOwnerRoleName}
}

// subjectsNote is appended to a message when subjects were left out.
func (s *Snapshot) subjectsNote() string {
	_, refused := OwnerSubjects(s.Claim.Spec.Subjects)
	if len(refused) == 0 {
		return ""
	}
	return "; left out of its rights: " + strings.Join(refused, ", ")
}
