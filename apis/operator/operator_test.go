// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/muster-io/muster/apis/buildinfo"
	"github.com/muster-io/muster/apis/operator"
)

func silent(flags *flag.FlagSet) { flags.SetOutput(io.Discard) }

func TestSettingsComeFromFlags(t *testing.T) {
	var s operator.Settings
	require.NoError(t, operator.ParseFlags("test", nil, silent, s.Bind))
	assert.Equal(t, operator.Settings{MetricsBindAddress: ":8443", HealthProbeBindAddress: ":8081", LogLevel: "info"}, s)
	require.NoError(t, s.Validate())

	require.NoError(t, operator.ParseFlags("test", []string{"--leader-elect", "--leader-election-namespace=here", "--log-level=loud"}, silent, s.Bind))
	assert.True(t, s.LeaderElect)
	assert.Equal(t, "here", s.LeaderElectionNamespace)
	require.EqualError(t, s.Validate(), "--log-level=loud: write debug, info or error")
}

func TestOtherArgumentsAreRefused(t *testing.T) {
	for argument, want := range map[string]string{
		"start":     `unexpected argument "start": all settings are flags`,
		"--unknown": "flag provided but not defined: -unknown",
		"--help":    flag.ErrHelp.Error(),
	} {
		var s operator.Settings
		require.EqualError(t, operator.ParseFlags("test", []string{argument}, silent, s.Bind), want, argument)
	}
}

// A client sends what it does not limit itself, under the program's name, through the wrappers.
func TestTheClientNamesItsProgram(t *testing.T) {
	requests := make(chan http.Header, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { requests <- r.Header }))
	defer server.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := api.NewConfig()
	kubeconfig.Clusters["c"], kubeconfig.Contexts["c"], kubeconfig.CurrentContext = &api.Cluster{Server: server.URL, InsecureSkipTLSVerify: true}, &api.Context{Cluster: "c"}, "c"
	require.NoError(t, clientcmd.WriteToFile(*kubeconfig, path))

	wrapped := 0
	count := func(next http.RoundTripper) http.RoundTripper { wrapped++; return next }
	config, err := operator.ClientConfig("test", path, count, count)
	require.NoError(t, err)
	assert.Less(t, config.QPS, float32(0))
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	header := <-requests
	assert.Equal(t, buildinfo.UserAgent("test"), header.Get("User-Agent"))
	assert.Empty(t, header.Get("Accept-Encoding"), "events of a watch are not packed one by one")
	assert.Equal(t, 2, wrapped)

	t.Setenv(clientcmd.RecommendedConfigPathEnvVar, path)
	config, err = operator.ClientConfig("test", "")
	require.NoError(t, err)
	assert.Equal(t, server.URL, config.Host)

	require.NoError(t, os.WriteFile(path, []byte("no kubeconfig"), 0o600))
	_, err = operator.ClientConfig("test", path)
	require.ErrorContains(t, err, "reading the kubeconfig: ")
}

func TestTheManagerFollowsTheSettings(t *testing.T) {
	s := operator.Settings{LeaderElect: true, LeaderElectionNamespace: "here", MetricsBindAddress: ":1", HealthProbeBindAddress: ":2"}
	options := s.ManagerOptions("lease", func(*rest.Config, *http.Client) (metricsserver.Filter, error) { return nil, nil })
	assert.True(t, options.LeaderElection)
	assert.Equal(t, "lease", options.LeaderElectionID)
	assert.Equal(t, "here", options.LeaderElectionNamespace)
	assert.True(t, options.LeaderElectionReleaseOnCancel, "another replica need not wait until the lease ends")
	assert.Equal(t, ":2", options.HealthProbeBindAddress)
	assert.Equal(t, ":1", options.Metrics.BindAddress)
	assert.True(t, options.Metrics.SecureServing)
	assert.NotNil(t, options.Metrics.FilterProvider, "metrics are for those who may get them")
	assert.Equal(t, operator.ShutdownTimeout, *options.GracefulShutdownTimeout)
}
