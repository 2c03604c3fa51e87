// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// callers is the header in which a proxy keeps how the caller signed in.
const callers = "Test-Authorization"

// behind are the flags that lead through a proxy to the API server. It hands each answer to change before it passes it on.
func (u *terminal) behind(change func(*http.Response) error) []string {
	u.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.kubeconfig)
	require.NoError(u, err)
	transport, err := rest.TransportFor(config)
	require.NoError(u, err)
	target, err := url.Parse(config.Host)
	require.NoError(u, err)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set(callers, r.In.Header.Get("Authorization"))
			r.Out.Header.Del("Authorization") // the proxy is the administrator
		},
		Transport: transport, ModifyResponse: change,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewTLSServer(proxy) // no credentials are sent without TLS
	u.Cleanup(server.Close)
	return []string{"--insecure-skip-tls-verify", "--server=" + server.URL}
}

// TestAClaimWhoseAnswerIsLostIsFound: the API server has made it, and the connection ends before it says so.
func TestAClaimWhoseAnswerIsLostIsFound(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	var lost, away atomic.Bool
	server := u.behind(func(r *http.Response) error {
		if r.Request.Method == http.MethodPost && r.Request.URL.Path == "/apis/hive.openshift.io/v1/namespaces/"+u.namespace+"/clusterclaims" {
			lost.Store(true)
		}
		if r.Request.Method == http.MethodPost && lost.Load() || away.Load() && lost.Load() {
			return context.Canceled
		}
		return nil
	})
	claims := func() []hivev1.ClusterClaim {
		t.Helper()
		list := &hivev1.ClusterClaimList{}
		require.NoError(t, u.List(t.Context(), list, client.InNamespace(u.namespace)))
		return list.Items
	}
	_, said, err := u.run(append(server, "claim", "small")...)
	require.NoError(t, err, said)
	require.True(t, lost.Load())
	require.Len(t, claims(), 1)
	assert.Contains(t, said, "clusterclaim "+claims()[0].Name+" created")
	u.must("release", claims()[0].Name)

	lost.Store(false)
	away.Store(true)
	_, said, err = u.run(append(server, "claim", "small")...)
	require.Error(t, err)
	require.Len(t, claims(), 1)
	assert.Contains(t, said, "kubectl muster release "+claims()[0].Name+" -n "+u.namespace)
}
