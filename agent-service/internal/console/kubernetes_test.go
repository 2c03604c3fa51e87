// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package console_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// kubeSite is a site that serves the custom resources of a namespace of a control plane. People are ServiceAccounts, and administrators of REST.
type kubeSite struct {
	*site
	admin     client.Client
	namespace string
}

func newKubeSite(t *testing.T, flags ...string) *kubeSite {
	t.Helper()
	config := controlplanetest.Start(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, authenticationv1.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, ipamv1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	admin, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "console-"}}
	require.NoError(t, admin.Create(t.Context(), namespace))
	s := newSite(t, append(flags, "--oidc-issuer=kubernetes", "--oidc-audience=agent-service", "--oidc-key-file=", "--kubeconfig="+controlplanetest.Kubeconfig(t), "--kube-api", "--oidc-admin-group=system:serviceaccounts:"+namespace.Name)...)
	return &kubeSite{s, admin, namespace.Name}
}

// create makes an object in the namespace of the site, unless it names another one.
func (s *kubeSite) create(object client.Object) {
	s.t.Helper()
	if object.GetNamespace() == "" {
		object.SetNamespace(s.namespace)
	}
	require.NoError(s.t, s.admin.Create(s.t.Context(), object))
}

// account makes a ServiceAccount with rights in the namespace, and returns its token.
func (s *kubeSite) account(name string, rules ...rbacv1.PolicyRule) string {
	s.t.Helper()
	return s.accountIn(s.namespace, name, rules...)
}

// accountIn makes a ServiceAccount of another namespace with rights in that of the site.
func (s *kubeSite) accountIn(namespace, name string, rules ...rbacv1.PolicyRule) string {
	s.t.Helper()
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	s.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
	s.create(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})
	var claims jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(s.tokenIn(namespace, name), &claims) // the audience of the API server
	require.NoError(s.t, err)
	return s.tokenIn(namespace, name, append(claims.Audience, "agent-service")...)
}

// tokenOf is a token of a ServiceAccount for the audiences that are named; for the API server where none is.
func (s *kubeSite) tokenOf(name string, audiences ...string) string {
	s.t.Helper()
	return s.tokenIn(s.namespace, name, audiences...)
}

func (s *kubeSite) tokenIn(namespace, name string, audiences ...string) string {
	s.t.Helper()
	issued := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}
	require.NoError(s.t, s.admin.SubResource("token").Create(s.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, issued))
	return issued.Status.Token
}

func allow(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

// TestMachinesAreApprovedByThoseWhoMay: the Kubernetes API decides, by the token of the person.
func TestMachinesAreApprovedByThoseWhoMay(t *testing.T) {
	chromium := browserOf(t)
	s := newKubeSite(t)
	approver := s.account("approver", allow(agentv1.GroupVersion.Group, "agents", "get", "patch"))
	looker := s.account("looker", allow(agentv1.GroupVersion.Group, "agents", "get", "list"))
	s.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson, StringData: map[string]string{corev1.DockerConfigJsonKey: `{"auths":{}}`}})
	env := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}}}
	s.create(env)
	id := string(env.UID)
	require.Eventually(t, func() bool {
		return strings.Contains(string(s.call("Authorization", "Bearer "+approver, "GET", "/infra-envs", nil)), id)
	}, patience, tick)
	image := s.imageToken(approver, id)
	hosts := []string{uuid.NewString(), uuid.NewString(), uuid.NewString()}
	for i, host := range hosts {
		s.report(image, id, host, map[string]any{"hostname": "node-" + string(rune('a'+i)), "cpu": map[string]any{"architecture": "x86_64", "count": 16}})
	}
	agent := func(host string) *agentv1.Agent {
		found := &agentv1.Agent{}
		require.Eventually(t, func() bool {
			return s.admin.Get(t.Context(), client.ObjectKey{Namespace: s.namespace, Name: host}, found) == nil
		}, patience, tick)
		return found
	}
	for _, host := range hosts {
		require.False(t, agent(host).Spec.Approved)
	}

	// Who may not patch Agents has no button, and is refused where the form is sent all the same.
	b := s.open(chromium, t, looker)
	b.visit("/machines")
	b.sees("main", "node-c")
	b.sees("main", "Not approved")
	assert.NotContains(t, ask[string](b, `document.querySelector("main").innerText`), "Approve…")
	ask[any](b, `(() => { const f = document.querySelector("form[data-select]"); f.querySelector("input[name=host]").checked = true; const a = document.createElement("input"); a.name = "action"; a.value = "approve"; f.append(a); f.action = "/console/machines/apply"; f.submit() })(); null`)
	b.sees(".notice", "0 of 1 machines were changed.")
	b.sees("td", "The Kubernetes API does not let you do this")
	b.sees("td", "looker")
	for _, host := range hosts {
		require.False(t, agent(host).Spec.Approved)
	}

	// One is approved on its own page, two that are selected in the list, one of which another user approved meanwhile.
	b = s.open(chromium, t, approver)
	b.visit("/machines/" + id + "/" + hosts[0])
	b.looksFine("machine-unapproved")
	b.press("Approve…")
	b.sees("h1", "Approve 1 machine")
	b.sees(".notice", "The machine can be approved.")
	require.False(t, agent(hosts[0]).Spec.Approved, "a dry run writes nothing")
	b.press("Approve selected machines")
	b.sees(".notice", "1 of 1 machines were changed.")
	require.True(t, agent(hosts[0]).Spec.Approved)
	b.visit("/machines/" + id + "/" + hosts[0])
	b.until(`!document.querySelector(".heading").textContent.includes("Not approved")`)

	b.visit("/machines")
	b.until(`document.querySelectorAll("input[name=host]").length === 3`)
	ask[any](b, `document.querySelector("#all").click(); null`)
	b.press("Approve…")
	b.sees(".notice", "1 of 3 machines cannot be approved.")
	b.sees("td", "The machine is approved already.")
	b.looksFine("approve-plan")
	b.press("Approve selected machines")
	b.sees(".notice", "2 of 2 machines were changed.")
	b.looksFine("approve-outcome")
	for _, host := range hosts {
		require.True(t, agent(host).Spec.Approved)
	}

	raw, err := json.Marshal(agent(hosts[0]).ManagedFields)
	require.NoError(t, err)
	assert.Contains(t, string(raw), "agent-service-console")
}
