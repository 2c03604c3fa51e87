// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package alerts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/e2e/environment"
)

const (
	patience = 2 * time.Minute
	interval = 100 * time.Millisecond
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Prometheus scrapes two replicas of ipam-operator with the rights that its overlay gives to scrapers: each alert is there once and names the
// pool, although both replicas report it.
func TestPrometheusSeesOneAlertOfTwoReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	program, err := exec.LookPath("prometheus")
	needtest.Part(t, err == nil, "prometheus is not installed: install the package prometheus of Debian")
	first, second := environment.IPAMOperator(), environment.IPAMOperator()
	first.Replica, second.Replica = "a", "b"
	elected := func(string) []string {
		return []string{"--leader-elect", "--leader-election-namespace=muster-ipam-operator"}
	}
	first.Args, second.Args = elected, elected
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Operators: []environment.Operator{first, second}, UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	exhaust(t, local)

	p := scrape(t, program, local, first.ID(), second.ID())
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Len(c, p.query(c, `ipam_addresses{state="free"}`), 2, "both replicas report the pool")
		assert.Len(c, p.query(c, "muster_build_info"), 2)
		alerts := p.query(c, `ALERTS{alertstate="firing"}`)
		found := map[string]map[string]string{}
		for _, a := range alerts {
			found[a["alertname"]] = a
		}
		assert.Len(c, alerts, 2, "%v", alerts)
		assert.Equal(c, "default/p", found["IPAMPoolExhausted"]["ippool_namespace"]+"/"+found["IPAMPoolExhausted"]["ippool_name"])
		assert.Contains(c, found, "IPAMClaimsWaiting")
	}, patience, interval)
	assert.Empty(t, p.query(t, `{__name__=~".+",exported_namespace!=""}`), "no label is the scraper's")
}

// exhaust has one claim take the only address of a pool, and another wait for it.
func exhaust(t *testing.T, local *environment.Local) {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, ipamv1.AddToScheme(scheme))
	require.NoError(t, clientgoscheme.AddToScheme(scheme))
	config, err := environment.Config(local)
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	require.NoError(t, c.Create(t.Context(), &ipamv1.IPPool{ObjectMeta: meta("p"), Spec: ipamv1.IPPoolSpec{NamePrefix: "p", Prefix: 24, Pools: []ipamv1.Pool{{
		Start: new(ipamv1.IPAddressStr("192.0.2.10")), End: new(ipamv1.IPAddressStr("192.0.2.10")),
	}}}}))
	for _, name := range []string{"one", "two"} {
		claim := &ipamv1.IPClaim{ObjectMeta: meta(name)}
		claim.Spec.Pool.Name = "p"
		require.EventuallyWithT(t, func(collect *assert.CollectT) {
			require.NoError(collect, client.IgnoreAlreadyExists(c.Create(t.Context(), claim.DeepCopy())), "policies need a moment to know the kind")
		}, patience, interval)
	}
	require.NoError(t, c.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta("prometheus")}))
	require.NoError(t, c.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "prometheus"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ipam-operator-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "prometheus"}},
	}))
}

// server is a running Prometheus.
type server struct{ url string }

// scrape starts Prometheus over replicas of ipam-operator, with its rules and without the time that they wait.
func scrape(t *testing.T, program string, local *environment.Local, replicas ...string) server {
	t.Helper()
	dir := t.TempDir()
	groups := rules(t, "ipam-operator")
	for i := range groups {
		for j := range groups[i].Rules {
			groups[i].Rules[j].For = ""
		}
	}
	write(t, dir, "rules.yaml", map[string]any{"groups": groups})
	token, err := local.Token(t.Context(), "default", "prometheus")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "token"), []byte(token), 0o600))
	var targets []map[string]any
	for _, replica := range replicas {
		address, err := local.MetricsAddress(replica)
		require.NoError(t, err)
		targets = append(targets, map[string]any{"targets": []string{address}, "labels": map[string]string{"namespace": "muster-ipam-operator", "pod": replica}})
	}
	write(t, dir, "prometheus.yaml", map[string]any{
		"global":     map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []map[string]any{{
			"job_name": "ipam-operator-metrics", "scheme": "https", "authorization": map[string]string{"credentials_file": "token"},
			"tls_config": map[string]bool{"insecure_skip_verify": true}, "static_configs": targets,
		}},
	})
	port, err := porttest.Find()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:"+port)
	out := &logFile{t: t, path: filepath.Join(dir, "log")}
	cmd.Stdout, cmd.Stderr = out.open(), out.open()
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		out.show()
	})
	return server{"http://127.0.0.1:" + port}
}

// logFile is shown when the test failed.
type logFile struct {
	t    *testing.T
	path string
}

func (l *logFile) open() *os.File {
	file, err := os.OpenFile(l.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { _ = file.Close() })
	return file
}

func (l *logFile) show() {
	if text, err := os.ReadFile(l.path); err == nil && l.t.Failed() {
		l.t.Logf("%s", text)
	}
}

// query returns the labels of the series of an expression.
func (s server) query(t require.TestingT, expression string) []map[string]string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/query?"+url.Values{"query": {expression}}.Encode(), http.NoBody)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Data struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
			} `json:"result"`
		} `json:"data"`
	}{}
	require.Equal(t, http.StatusOK, response.StatusCode, fmt.Sprint(expression))
	require.NoError(t, json.NewDecoder(response.Body).Decode(&answer))
	var out []map[string]string
	for _, r := range answer.Data.Result {
		out = append(out, r.Metric)
	}
	return out
}
