// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/muster-io/muster/e2e/environment/environmenttest"
	"github.com/muster-io/muster/e2e/render"
)

// Users with the roles view, edit and admin in a namespace may do with the kinds of all operators what these roles promise, scales included. Operators that share
// a namespace of another name have their rights there.
func TestRolesOfUsersAndOperatorsHold(t *testing.T) {
	_, config := environmenttest.ControlPlane(t)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	for _, name := range []string{"platform", "team"} {
		_, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, render.Apply(t.Context(), config, rendered(t, render.Overlay{
		Namespace: "platform", Resources: []string{"overlays/production"}, Components: []string{"components/existing-namespace"},
	})))
	for _, role := range []string{"view", "edit", "admin"} {
		_, err := clients.RbacV1().RoleBindings("team").Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: role}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	const operator = "system:serviceaccount:platform:"
	for _, it := range []struct {
		verb, group, resource, subresource string
		may, mayNot                        []string
	}{
		{"list", "hive.openshift.io", "clusterpools", "", []string{"view", "edit", "admin", operator + "pool-operator"}, []string{operator + "ipam-operator"}},
		{"get", "hive.openshift.io", "clusterpools", "scale", []string{"view", "edit", "admin"}, nil},
		{"update", "hive.openshift.io", "clusterpools", "scale", []string{"edit", "admin"}, []string{"view"}},
		{"create", "hive.openshift.io", "clusterclaims", "", []string{"edit", "admin"}, []string{"view"}},
		{"get", "hive.openshift.io", "machinepools", "scale", []string{"view", "edit", "admin"}, nil},
		{"update", "hive.openshift.io", "machinepools", "scale", []string{"edit", "admin"}, []string{"view"}},
		{"create", "hive.openshift.io", "clusterdeployments", "", []string{operator + "pool-operator"}, []string{"view", "edit", operator + "discovery-operator"}},
		{"watch", "ipam.metal3.io", "ippools", "", []string{"view", "edit", "admin", operator + "ipam-operator"}, []string{operator + "agent-service"}},
		{"create", "ipam.metal3.io", "ipclaims", "", []string{"edit", "admin"}, []string{"view"}},
		{"create", "ipam.metal3.io", "ippools", "", []string{"admin"}, []string{"view", "edit"}},
		{"list", "metal3.io", "baremetalhosts", "", []string{"view", "edit", "admin", operator + "discovery-operator"}, []string{operator + "ipam-operator"}},
		{"update", "metal3.io", "baremetalhosts", "", []string{"edit", "admin"}, []string{"view"}},
		{"create", "metal3.io", "baremetalhostdiscoveries", "", []string{"admin"}, []string{"view", "edit"}},
		{"list", "agent-install.openshift.io", "agents", "", []string{"view", "edit", "admin", operator + "agent-service"}, []string{operator + "pool-operator"}},
		{"patch", "agent-install.openshift.io", "agents", "", []string{"edit", "admin"}, []string{"view"}},
		{"create", "agent-install.openshift.io", "infraenvs", "", []string{"edit", "admin"}, []string{"view"}},
		{"create", "extensions.hive.openshift.io", "agentclusterinstalls", "", []string{"edit", "admin"}, []string{"view"}},
	} {
		may := func(c require.TestingT, user string) bool {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "team", Verb: it.verb, Group: it.group, Resource: it.resource, Subresource: it.subresource},
			}}
			answer, err := clients.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
			require.NoError(c, err)
			return answer.Status.Allowed
		}
		for _, user := range it.may { // a moment passes until the roles are aggregated
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				assert.True(c, may(c, user), "%s may not %s %s/%s", user, it.verb, it.resource, it.subresource)
			}, time.Minute, 50*time.Millisecond)
		}
		for _, user := range it.mayNot {
			assert.False(t, may(t, user), "%s may %s %s/%s", user, it.verb, it.resource, it.subresource)
		}
	}
}
