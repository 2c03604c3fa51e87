// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRolesOfUsers binds the roles that are shipped, and asks the API server what their users may do. The roles of edit and admin hold what is added to those of
// view and edit.
func TestRolesOfUsers(t *testing.T) {
	w := newDataTestEnv(t)
	w.install("user_roles.yaml")
	w.installFrom("components/network-data", "user_roles.yaml")
	shipped := &rbacv1.ClusterRoleList{}
	require.NoError(t, w.user.List(t.Context(), shipped))
	aggregated := map[string][]string{}
	for _, role := range shipped.Items {
		if !strings.HasPrefix(role.Name, "ipam-operator-") {
			continue
		}
		for _, user := range []string{"view", "edit", "admin"} {
			if role.Labels["rbac.authorization.k8s.io/aggregate-to-"+user] == "true" {
				aggregated[user] = append(aggregated[user], role.Name)
				w.bind(user, role.Name)
			}
		}
	}
	assert.Equal(t, map[string][]string{
		"view":  {"ipam-operator-network-data-view", "ipam-operator-view"},
		"edit":  {"ipam-operator-edit", "ipam-operator-network-data-edit", "ipam-operator-network-data-view", "ipam-operator-view"},
		"admin": {"ipam-operator-admin", "ipam-operator-edit", "ipam-operator-network-data-edit", "ipam-operator-network-data-view", "ipam-operator-view"},
	}, aggregated)

	const ipam, infra = "ipam.metal3.io", "infrastructure.cluster.x-k8s.io"
	for _, c := range []struct {
		group    string
		resource string
		verbs    []string
		want     []string
	}{
		{ipam, "ippools", []string{"get", "list", "watch"}, []string{"view", "edit", "admin"}},
		{ipam, "ippools", []string{"create", "update", "patch", "delete"}, []string{"admin"}},
		{ipam, "ippools/status", []string{"get"}, []string{"view", "edit", "admin"}},
		{ipam, "ippools/status", []string{"update", "patch"}, nil},
		{ipam, "ipclaims", []string{"get", "list", "watch"}, []string{"view", "edit", "admin"}},
		{ipam, "ipclaims", []string{"create", "update", "patch", "delete"}, []string{"edit", "admin"}},
		{ipam, "ipclaims/status", []string{"update", "patch"}, nil},
		{ipam, "ipaddresses", []string{"get", "list", "watch"}, []string{"view", "edit", "admin"}},
		{ipam, "ipaddresses", []string{"create", "update", "patch", "delete"}, []string{"admin"}},
		{infra, "metal3datatemplates", []string{"get", "list", "watch"}, []string{"view", "edit", "admin"}},
		{infra, "metal3datatemplates", []string{"create", "update", "patch", "delete"}, []string{"edit", "admin"}},
		{infra, "metal3dataclaims", []string{"get", "list", "watch"}, []string{"view", "edit", "admin"}},
		{infra, "metal3dataclaims", []string{"create", "update", "patch", "delete"}, []string{"edit", "admin"}},
		{infra, "metal3datas", []string{"get", "list", "watch"}, []string{"view", "edit", "admin"}},
		{infra, "metal3datas", []string{"create", "update", "patch", "delete"}, nil},
		{"", "secrets", []string{"get", "list"}, nil},
	} {
		for _, verb := range c.verbs {
			for _, user := range []string{"view", "edit", "admin", "stranger"} {
				assert.Equal(t, slices.Contains(c.want, user), w.may(user, verb, c.group, c.resource), "%s: %s %s", user, verb, c.resource)
			}
		}
	}
}

// bind gives a user a role in this environment's namespace.
func (w *site) bind(user, role string) {
	w.t.Helper()
	require.NoError(w.t, w.user.Create(w.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: user + "-" + role},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: w.namespace + "-" + user}},
	}))
}

func (w *site) may(user, verb, group, resource string) bool {
	w.t.Helper()
	kind, subresource, _ := strings.Cut(resource, "/")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: w.namespace + "-" + user, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: w.namespace, Verb: verb, Group: group, Resource: kind, Subresource: subresource},
	}}
	require.NoError(w.t, w.user.Create(w.t.Context(), review))
	return review.Status.Allowed
}
