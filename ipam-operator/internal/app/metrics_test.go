// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/tls"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMetricsAnswerBadTokensWith401(t *testing.T) {
	w := newTestEnv(t)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "metrics-"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: account}},
	}
	require.NoError(t, w.user.Create(t.Context(), binding))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	options := testOptions(w.namespace)
	options.MetricsBindAddress = address
	w.operatorWith(options, nil)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	get := func(authorization string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", http.NoBody)
		require.NoError(t, err)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		response, err := client.Do(request)
		if err != nil {
			return 0
		}
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	w.eventually("metrics are not served", func() bool { return get("") != 0 })
	assert.Equal(t, http.StatusUnauthorized, get(""))
	assert.Equal(t, http.StatusUnauthorized, get("Bearer nonsense"))
	assert.Equal(t, http.StatusUnauthorized, get("Bearer eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJuby1vbmUifQ.c2lnbmF0dXJl"))
}
