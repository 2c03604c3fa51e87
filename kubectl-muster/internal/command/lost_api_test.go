// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// TestAWaitGoesOnWithNewCredentials: a program that states no expiry is asked for new ones where the API server does not accept the old ones any more.
func TestAWaitGoesOnWithNewCredentials(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	u.make(claim, func() {
		claim.Status.Conditions = []hivev1.Condition{condition(hivev1.ClusterClaimPending, corev1.ConditionTrue, hivev1.ReasonNoClusters, "no cluster is free")}
	})
	token := filepath.Join(t.TempDir(), "token")
	says := func(of string) {
		t.Helper()
		content, err := json.Marshal(map[string]any{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": map[string]string{"token": of}})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(token, content, 0o600))
	}
	says("first")
	var accepted atomic.Value
	accepted.Store("Bearer first")
	server := u.behind(func(r *http.Response) error {
		if r.Request.Header.Get(callers) != accepted.Load() {
			r.StatusCode, r.Status = http.StatusUnauthorized, "401 Unauthorized"
		}
		return nil
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: strings.TrimPrefix(server[1], "--server="), InsecureSkipTLSVerify: true}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Exec: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: "cat", Args: []string{token}, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}}
	config.Contexts["x"], config.CurrentContext = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}, "x"
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, kubeconfig))

	own := *u
	own.kubeconfig = kubeconfig
	var stdout, stderr screen
	done := make(chan error, 1)
	go func() { done <- own.execute(&stdout, &stderr, "claim", "small", "--name=mine", "--wait") }()
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "no cluster is free") }, 20*time.Second, 50*time.Millisecond, "%s", &stderr)
	says("second")
	accepted.Store("Bearer second")
	claim.Status.Conditions[0].Message = "the pool is frozen"
	require.NoError(t, u.Status().Update(t.Context(), claim))
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "the pool is frozen") || len(done) > 0 }, 20*time.Second, 50*time.Millisecond, "%s", &stderr)
	require.Contains(t, stderr.String(), "the pool is frozen")
	accepted.Store("Bearer of nobody")
	require.ErrorContains(t, <-done, "provide credentials", "new credentials that are refused, too, end the wait")
}

func TestATimeoutWithoutAWaitIsRefusedBeforeTheClaim(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	_, said, err := u.run("claim", "small", "--name=mine", "--timeout=10m")
	require.Error(t, err)
	assert.Contains(t, said, "--wait")
	list := &hivev1.ClusterClaimList{}
	require.NoError(t, u.List(t.Context(), list, client.InNamespace(u.namespace)))
	assert.Empty(t, list.Items)
}

// TestAReportOfNothingHasLists, which scripts go through.
func TestAReportOfNothingHasLists(t *testing.T) {
	u := newTerminal(t)
	assert.NotContains(t, u.must("status", "--as=nobody", "-o=json"), "null")
}
