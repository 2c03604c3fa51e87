// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"

	"github.com/muster-io/muster/apis/controlplanetest"
	"github.com/muster-io/muster/apis/operator"
)

// get asks for the metrics page with a token, as the operator with that configuration serves it.
func get(t *testing.T, config *rest.Config, token string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	filter, err := operator.MetricsServer("", filters.WithAuthenticationAndAuthorization).FilterProvider(config, client)
	require.NoError(t, err)
	handler, err := filter(logr.Discard(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Code
}

// Prometheus and people tell by the status whether their token is wrong, their rights are missing, or the operator has a problem.
func TestTokensAtTheMetricsPort(t *testing.T) {
	config := controlplanetest.Start(t)
	clients := kubernetes.NewForConfigOrDie(config)
	namespace, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	account := func(name string) string {
		_, err := clients.CoreV1().ServiceAccounts(namespace.Name).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		require.NoError(t, err)
		issued, err := clients.CoreV1().ServiceAccounts(namespace.Name).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		return issued.Status.Token
	}
	scraper, stranger := account("scraper"), account("stranger")
	role, err := clients.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"}, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = clients.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace.Name, Name: "scraper"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return get(t, config, scraper) == http.StatusOK }, time.Minute, 50*time.Millisecond, "rights come into force in their own time")
	assert.Equal(t, http.StatusForbidden, get(t, config, stranger), "known, without rights")
	assert.Equal(t, http.StatusUnauthorized, get(t, config, ""), "no token")
	assert.Equal(t, http.StatusUnauthorized, get(t, config, "nonsense"))
	assert.Equal(t, http.StatusUnauthorized, get(t, config, "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJuby1vbmUifQ.c2lnbmF0dXJl"), "a token of another issuer")

	powerless := rest.AnonymousClientConfig(config)
	assert.Equal(t, http.StatusInternalServerError, get(t, powerless, scraper), "the operator itself may not review tokens")
}
