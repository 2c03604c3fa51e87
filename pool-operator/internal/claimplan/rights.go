// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package claimplan

import (
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/pool-operator/internal/poolview"
)

// clusterVerbs are what subjects may do with the ClusterDeployment of their claim, by its name; what an update may change is for admission to say. They may list what is
// in its namespace, so that clients which watch it work. Verbs are written out because granting a wildcard requires holding one.
var (
	clusterVerbs = []string{"get", "patch", "update"}
	listVerbs    = []string{"list", "watch"}
	scaleVerbs   = []string{"get", "patch", "update"}
	// machinePoolVerbs never allow to create a MachinePool where it takes machines that clusters share.
	machinePoolVerbs = map[poolview.MachinePoolRights][]string{
		poolview.MachinePoolsScale:  {"get", "list", "patch", "update", "watch"},
		poolview.MachinePoolsManage: {"create", "delete", "get", "list", "patch", "update", "watch"},
	}
)

// ownerRules returns what a claim's subjects may do in the namespace of their cluster: switch it on and off and label it, read the Secrets that lead into it, and scale
// or manage its MachinePools if the pool allows that.
func ownerRules(own *Cluster, machinePools poolview.MachinePoolRights) []rbacv1.PolicyRule {
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{hivev1.GroupName}, Resources: []string{"clusterdeployments"}, ResourceNames: []string{own.Namespace}, Verbs: slices.Clone(clusterVerbs)},
		{APIGroups: []string{hivev1.GroupName}, Resources: []string{"clusterdeployments"}, Verbs: slices.Clone(listVerbs)},
	}
	if verbs := machinePoolVerbs[machinePools]; len(verbs) > 0 {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: []string{hivev1.GroupName}, Resources: []string{"machinepools"}, Verbs: slices.Clone(verbs)},
			rbacv1.PolicyRule{APIGroups: []string{hivev1.GroupName}, Resources: []string{"machinepools/scale"}, Verbs: slices.Clone(scaleVerbs)})
	}
	// Without a name, a rule would be about all Secrets.
	if secrets, _ := accessSecrets(own); len(secrets) > 0 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: secrets, Verbs: []string{"get"}})
	}
	return rules
}

// accessSecrets returns the names of the Secrets that lead into the cluster, and those that its metadata names although no subject may read them.
func accessSecrets(own *Cluster) (secrets, private []string) {
	refs := []*hivev1.LocalObjectReference{&own.Metadata.AdminKubeconfigSecretRef, own.Metadata.AdminPasswordSecretRef, own.Metadata.MetadataJSONSecretRef}
	for _, ref := range refs {
		switch {
		case ref == nil || ref.Name == "":
		case slices.Contains(own.Private, ref.Name):
			private = append(private, ref.Name)
		default:
			secrets = append(secrets, ref.Name)
		}
	}
	return secrets, private
}

// machinePools is what the pool allows with MachinePools.
func (s *Snapshot) machinePools() poolview.MachinePoolRights {
	if s.Pool == nil {
		return poolview.MachinePoolsNone
	}
	return s.pool().MachinePools
}

// ownerSubjects returns the subjects in the form that the API server keeps them in, and a sentence about each one that it would refuse.
func ownerSubjects(claimed []rbacv1.Subject) (subjects []rbacv1.Subject, refused []string) {
	for i, subject := range claimed {
		problem := ""
		group := rbacv1.GroupName
		switch subject.Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
		case rbacv1.ServiceAccountKind:
			group = ""
			if subject.Namespace == "" {
				problem = "a ServiceAccount needs a namespace"
			} else if len(validation.IsDNS1123Subdomain(subject.Name)) > 0 {
				problem = fmt.Sprintf("%q is no name of a ServiceAccount; write name and namespace apart", poolview.Shorten(subject.Name))
			}
		default:
			problem = fmt.Sprintf("kind %q is none of User, Group and ServiceAccount", poolview.Shorten(subject.Kind))
		}
		if subject.Name == "" {
			problem = "the name is missing"
		}
		if subject.APIGroup != "" && subject.APIGroup != group {
			problem = fmt.Sprintf("apiGroup %q is not that of kind %s", poolview.Shorten(subject.APIGroup), poolview.Shorten(subject.Kind))
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
	subjects, _ := ownerSubjects(s.Claim.Spec.Subjects)
	if len(subjects) == 0 {
		if s.Role == nil && s.Binding == nil {
			return nil, true
		}
		return RevokeRights{Cluster: own.Namespace, Role: s.Role != nil, Binding: s.Binding != nil, Why: WhyNoSubjects}, false
	}
	if own.Metadata == nil {
		return nil, false
	}
	ref := OwnerRoleRef()
	if own.Deleting && s.Binding != nil && s.Binding.RoleRef != ref {
		return s.revoke(own.Namespace, WhyRights), false
	}
	g := GrantRights{Cluster: own.Namespace, UID: own.UID, Rules: ownerRules(own, s.machinePools()), Subjects: subjects, Why: WhyRights}
	g.Role = s.Role == nil || !equality.Semantic.DeepEqual(s.Role.Rules, g.Rules)
	g.Binding = s.Binding == nil || !equality.Semantic.DeepEqual(s.Binding.Subjects, subjects)
	g.Replace = s.Binding != nil && s.Binding.RoleRef != ref
	g.Binding = g.Binding || g.Replace
	if own.Deleting { // no object can be created in a namespace that ends
		g.Role, g.Binding = g.Role && s.Role != nil, g.Binding && s.Binding != nil
	}
	if !g.Role && !g.Binding {
		return nil, true
	}
	return g, false
}

// OwnerRoleRef leads to the Role of a claim's subjects.
func OwnerRoleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: hivev1.ClaimOwnerRoleName}
}

// mostLeftOut is how much of what was left out a message names: with a longer one than the API server takes, the claim would have no status, and its lifetime no beginning.
const mostLeftOut = 5

// rightsNote is appended to a message when something was left out of the subjects' rights.
func (s *Snapshot) rightsNote(own *Cluster) string {
	_, refused := ownerSubjects(s.Claim.Spec.Subjects)
	if own.Metadata != nil {
		_, private := accessSecrets(own)
		for _, name := range private {
			refused = append(refused, fmt.Sprintf("Secret %s, which spec.clusterMetadata of the cluster names and no subject may read", name))
		}
	}
	if len(refused) == 0 {
		return ""
	}
	if more := len(refused) - mostLeftOut; more > 0 {
		refused = append(refused[:mostLeftOut], fmt.Sprintf("and %d more", more))
	}
	return "; left out of its rights: " + strings.Join(refused, ", ")
}
