// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package command_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	"github.com/muster-io/muster/apis/porttest"
	"github.com/muster-io/muster/kubectl-muster/internal/command"
)

// terminal is a user with kubectl, in a namespace of a real API server. No operator runs: the test says what they would say.
type terminal struct {
	*testing.T
	client.Client
	kubeconfig, namespace string
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()
	config := controlplanetest.Start(t)
	scheme, err := command.Scheme()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "plugin-"}}
	require.NoError(t, c.Create(t.Context(), namespace))
	return &terminal{T: t, Client: c, kubeconfig: controlplanetest.Kubeconfig(t), namespace: namespace.Name}
}

// run is a command that the user types.
func (u *terminal) run(args ...string) (out, errors string, err error) {
	u.Helper()
	var stdout, stderr screen
	err = u.execute(&stdout, &stderr, args...)
	return stdout.String(), stderr.String(), err
}

func (u *terminal) execute(stdout, stderr io.Writer, args ...string) error {
	c := command.New(command.Streams{Out: stdout, Err: stderr})
	c.SetArgs(append([]string{"--kubeconfig=" + u.kubeconfig, "--namespace=" + u.namespace}, args...))
	return c.ExecuteContext(u.Context())
}

// screen is what a command wrote, also while it runs.
type screen struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.content.String()
}

func (u *terminal) must(args ...string) string {
	u.Helper()
	out, said, err := u.run(args...)
	require.NoError(u, err, said)
	return out
}

// make creates an object, and writes its status if it has one.
func (u *terminal) make(object client.Object, status func()) {
	u.Helper()
	object.SetNamespace(u.namespace)
	require.NoError(u, u.Create(u.Context(), object))
	if status != nil {
		status()
		require.NoError(u, u.Status().Update(u.Context(), object))
	}
}

func (u *terminal) pool(name string, conditions ...hivev1.Condition) *hivev1.ClusterPool {
	u.Helper()
	pool := &hivev1.ClusterPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pool.Spec.BaseDomain, pool.Spec.ImageSetRef.Name, pool.Spec.Platform.Hosted = "example.com", "v1", &hivev1.HostedPlatform{}
	u.make(pool, func() { pool.Status.Ready, pool.Status.Conditions = 2, conditions })
	return pool
}

func (u *terminal) agent(name, hostname string) *agentv1.Agent {
	u.Helper()
	agent := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: agentv1.AgentSpec{Role: "auto-assign"}}
	u.make(agent, func() {
		agent.Status.Inventory.Hostname, agent.Status.DebugInfo.State = hostname, "known-unbound"
		agent.Status.Inventory.CPU.Count, agent.Status.Inventory.Memory.PhysicalBytes = 8, 17<<30
	})
	return agent
}

func condition(kind string, status corev1.ConditionStatus, reason, message string) hivev1.Condition {
	now := metav1.Now()
	return hivev1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastProbeTime: now, LastTransitionTime: now}
}

func TestPools(t *testing.T) {
	u := newTerminal(t)
	out, said, err := u.run("pools")
	require.NoError(t, err)
	assert.Empty(t, out)
	assert.Contains(t, said, "no pools")
	u.pool("small", condition(hivev1.ClusterPoolReady, corev1.ConditionFalse, hivev1.ReasonBackingOff, "clusters broke:\x1b[2J\nsee why"))
	out = u.must("pools")
	assert.Regexp(t, `(?m)^`+u.namespace+` +small +2 +0 .* BackingOff +clusters broke:\[2J see why *$`, out, "texts of other writers move no cursor")
}

func TestClaim(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	file := filepath.Join(t.TempDir(), "kubeconfig")
	done := make(chan error, 1)
	var stdout, stderr screen
	go func() {
		done <- u.execute(&stdout, &stderr, "claim", "small", "--name=mine", "--lifetime=2h", "--save-kubeconfig="+file)
	}()
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "mine"}}
	require.Eventually(t, func() bool { return u.Get(t.Context(), client.ObjectKeyFromObject(claim), claim) == nil }, 20*time.Second, 50*time.Millisecond)
	assert.Equal(t, []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: claim.Spec.Subjects[0].Name}}, claim.Spec.Subjects)
	assert.NotEmpty(t, claim.Spec.Subjects[0].Name, "the caller gets access")
	assert.Equal(t, 2*time.Hour, claim.Spec.Lifetime.Duration)

	claim.Status.Conditions = []hivev1.Condition{condition(hivev1.ClusterClaimPending, corev1.ConditionTrue, hivev1.ReasonNoClusters, "no cluster is free")}
	claim.Status.QueuePosition = 1
	require.NoError(t, u.Status().Update(t.Context(), claim))
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "number 1 in the queue") }, 20*time.Second, 50*time.Millisecond)
	u.serve(claim)
	require.NoError(t, <-done)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "the kubeconfig", string(content))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode().Perm())

	_, said, err := u.run("claim", "small", "--name=mine", "--save-kubeconfig="+file)
	require.Error(t, err)
	assert.Contains(t, said, "is there already: it is not overwritten")
	assert.Equal(t, "the kubeconfig", u.must("claim", "small", "--name=mine", "--save-kubeconfig=-"), "the same claim again")
	_, said, err = u.run("claim", "large", "--name=mine")
	require.Error(t, err)
	assert.Contains(t, said, "asks the pool small")
}

// TestAKubeconfigThatCannotBeSavedIsRefusedBeforeTheClaim: a shell does not expand ~ behind an equals sign.
func TestAKubeconfigThatCannotBeSavedIsRefusedBeforeTheClaim(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	_, said, err := u.run("claim", "small", "--name=mine", "--timeout=2s", "--save-kubeconfig=~/small.kubeconfig")
	require.Error(t, err)
	assert.Contains(t, said, "~/small.kubeconfig")
	claims := &hivev1.ClusterClaimList{}
	require.NoError(t, u.List(t.Context(), claims, client.InNamespace(u.namespace)))
	assert.Empty(t, claims.Items)
}

// TestAClaimWhoseKubeconfigIsMissingStays, and the user is told how to give it back.
func TestAClaimWhoseKubeconfigIsMissingStays(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	u.make(claim, nil)
	u.serve(claim)
	require.NoError(t, u.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: u.namespace, Name: "admin"}}))
	dir := t.TempDir()
	_, said, err := u.run("claim", "small", "--name=mine", "--save-kubeconfig="+filepath.Join(dir, "kubeconfig"))
	require.Error(t, err)
	assert.Contains(t, said, "kubectl muster release mine -n "+u.namespace)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestAClaimIsWaitedForWhileTheAPIServerIsAway: the user reads that, and what the claim waits for once it is back, as it is then.
func TestAClaimIsWaitedForWhileTheAPIServerIsAway(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	u.make(claim, func() {
		claim.Status.Conditions = []hivev1.Condition{condition(hivev1.ClusterClaimPending, corev1.ConditionTrue, hivev1.ReasonNoClusters, "no cluster is free")}
		claim.Status.QueuePosition = 3
	})
	way := newWay(t, u.server())
	var stdout, stderr screen
	done := make(chan error, 1)
	go func() {
		done <- u.execute(&stdout, &stderr, "--server=https://"+way.address, "claim", "small", "--name=mine", "--wait")
	}()
	says := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Contains(stderr.String(), text) }, 20*time.Second, 50*time.Millisecond, "%s", &stderr)
	}
	says("no cluster is free (number 3 in the queue)")
	way.close()
	says("connection refused")
	claim.Status.Conditions[0].Message, claim.Status.QueuePosition = "the pool is frozen", 0
	require.NoError(t, u.Status().Update(t.Context(), claim))
	way.open()
	says("waiting: the pool is frozen\n")
	u.serve(claim)
	require.NoError(t, <-done, stderr.String())
}

// server is the address of the API server.
func (u *terminal) server() string {
	u.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.kubeconfig)
	require.NoError(u, err)
	return strings.TrimPrefix(config.Host, "https://")
}

// way leads to a server, or is closed.
type way struct {
	*testing.T
	address, server string
	close           func()
}

func newWay(t *testing.T, server string) *way {
	t.Helper()
	w := &way{T: t, address: "127.0.0.1:" + porttest.Free(t), server: server}
	w.open()
	t.Cleanup(func() { w.close() })
	return w
}

func (w *way) open() {
	w.Helper()
	listener, err := (&net.ListenConfig{}).Listen(w.Context(), "tcp", w.address)
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.Context()))
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.server)
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { _, _ = io.Copy(near, far) })
			all.Go(func() { _, _ = io.Copy(far, near) })
			context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
		}
	})
	w.close = func() {
		_ = listener.Close()
		cancel()
		all.Wait()
		w.close = func() {}
	}
}

// TestWarningsOfTheAPIServerAreShown, as kubectl shows them: an older CRD has no field queueTimeout, and says so in a warning alone.
func TestWarningsOfTheAPIServerAreShown(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: u.namespace}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{"hive.openshift.io"}, APIVersions: []string{"*"}, Resources: []string{"clusterclaims"}},
		}}}},
		Validations: []admissionv1.Validation{{Expression: "object.metadata.namespace != '" + u.namespace + "'", Message: "queueTimeout is not known"}},
	}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: u.namespace}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: u.namespace, ValidationActions: []admissionv1.ValidationAction{admissionv1.Warn},
	}}
	for _, object := range []client.Object{policy, binding} {
		require.NoError(t, u.Create(t.Context(), object))
		t.Cleanup(func() { _ = u.Delete(context.WithoutCancel(t.Context()), object) })
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // policies are in force a moment after they were written
		_, said, err := u.run("claim", "small", "--queue-timeout=30m")
		require.NoError(c, err)
		assert.Contains(c, said, "Warning: ")
		assert.Contains(c, said, "queueTimeout is not known")
	}, 20*time.Second, 200*time.Millisecond)
}

// The rights in a cluster are written before its claim says that it runs, but an API server may learn of them later.
func TestRightsThatComeAfterTheClaim(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	u.allow("jane", rbacv1.PolicyRule{APIGroups: []string{"hive.openshift.io"}, Resources: []string{"clusterclaims"}, Verbs: []string{"create", "get"}})
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	u.make(claim, nil)
	u.serve(claim)
	var stdout, stderr screen
	done := make(chan error, 1)
	go func() {
		done <- u.execute(&stdout, &stderr, "--as=jane", "claim", "small", "--name=mine", "--save-kubeconfig=-")
	}()
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), " runs") }, 20*time.Second, 50*time.Millisecond)
	u.allow("jane", rbacv1.PolicyRule{APIGroups: []string{"", "hive.openshift.io"}, Resources: []string{"secrets", "clusterdeployments"}, Verbs: []string{"get"}})
	require.NoError(t, <-done, stderr.String())
	assert.Equal(t, "the kubeconfig", stdout.String())
}

// allow gives a user rights in the namespace.
func (u *terminal) allow(user string, rule rbacv1.PolicyRule) {
	u.Helper()
	name := "of-" + user + "-" + rule.Resources[0]
	u.make(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{rule}}, nil)
	u.make(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}, nil)
}

// serve does for a claim what pool-operator would do.
func (u *terminal) serve(claim *hivev1.ClusterClaim) {
	u.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "admin"}, Data: map[string][]byte{hivev1.SecretKeyKubeconfig: []byte("the kubeconfig")}}
	u.make(secret, nil)
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Name: u.namespace}}
	cluster.Spec.ClusterName, cluster.Spec.BaseDomain, cluster.Spec.Platform.Hosted = "blue", "example.com", &hivev1.HostedPlatform{}
	cluster.Spec.Installed = true
	cluster.Spec.ClusterMetadata = &hivev1.ClusterMetadata{ClusterID: "c", InfraID: "i"}
	cluster.Spec.ClusterMetadata.AdminKubeconfigSecretRef.Name = "admin"
	u.make(cluster, nil)
	claim.Spec.Namespace = u.namespace
	require.NoError(u, u.Update(u.Context(), claim))
	claim.Status.Conditions = []hivev1.Condition{
		condition(hivev1.ClusterClaimPending, corev1.ConditionFalse, hivev1.ReasonClusterClaimed, "claimed"),
		condition(hivev1.ClusterClaimRunning, corev1.ConditionTrue, hivev1.ReasonRunning, "runs"),
	}
	require.NoError(u, u.Status().Update(u.Context(), claim))
}

func TestAClaimThatIsNeverServedEndsTheWait(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	u.make(claim, func() {
		claim.Status.Conditions = []hivev1.Condition{condition(hivev1.ClusterClaimPending, corev1.ConditionTrue, hivev1.ReasonQueueTimedOut, "queueTimeout is over")}
	})
	_, said, err := u.run("claim", "small", "--name=late", "--wait")
	require.ErrorContains(t, err, "queueTimeout is over")
	assert.Contains(t, said, "kubectl muster release late")
	assert.Contains(t, u.must("release", "late", "--wait"), "clusterclaim late released")
	_, _, err = u.run("release", "late")
	require.Error(t, err)
}

// TestAReleaseSaysWhatItWaitsFor: a cluster that is protected stays until its user acts.
func TestAReleaseSaysWhatItWaitsFor(t *testing.T) {
	u := newTerminal(t)
	claim := &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine", Finalizers: []string{"example.com/keeps"}}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	u.make(claim, nil)
	var stdout, stderr screen
	done := make(chan error, 1)
	go func() { done <- u.execute(&stdout, &stderr, "release", "mine", "--wait") }()
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "released") }, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, u.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	claim.Status.Conditions = []hivev1.Condition{condition(hivev1.ClusterClaimRunning, corev1.ConditionFalse, hivev1.ReasonClusterDeleting, "Assigned cluster is protected from deletion")}
	require.NoError(t, u.Status().Update(t.Context(), claim))
	require.Eventually(t, func() bool {
		return strings.Contains(stderr.String(), "clusterclaim mine: Assigned cluster is protected from deletion\n")
	}, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, u.Patch(t.Context(), claim, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	require.NoError(t, <-done)
	assert.Equal(t, 1, strings.Count(stderr.String(), "protected"), "each sentence is printed once")
}

// A tool that keeps manifests applied makes a claim again as soon as it is gone.
func TestAReleaseEndsWhereTheClaimIsMadeAgain(t *testing.T) {
	u := newTerminal(t)
	claim := func() *hivev1.ClusterClaim {
		return &hivev1.ClusterClaim{ObjectMeta: metav1.ObjectMeta{Name: "mine", Finalizers: []string{"example.com/keeps"}}, Spec: hivev1.ClusterClaimSpec{ClusterPoolName: "small"}}
	}
	first := claim()
	u.make(first, nil)
	var stdout, stderr screen
	done := make(chan error, 1)
	go func() { done <- u.execute(&stdout, &stderr, "release", "mine", "--wait") }()
	require.Eventually(t, func() bool { return strings.Contains(stdout.String(), "released") }, 20*time.Second, 50*time.Millisecond)
	require.NoError(t, u.Patch(t.Context(), first, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	second := claim()
	u.make(second, nil)
	select {
	case err := <-done:
		require.NoError(t, err, stderr.String())
	case <-time.After(20 * time.Second):
		t.Fatal("the command waits for the new claim")
	}
	require.NoError(t, u.Get(t.Context(), client.ObjectKeyFromObject(second), second))
	assert.Zero(t, second.DeletionTimestamp)
	require.NoError(t, u.Patch(t.Context(), second, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
}

func TestBind(t *testing.T) {
	u := newTerminal(t)
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Name: "blue"}}
	cluster.Spec.ClusterName, cluster.Spec.BaseDomain, cluster.Spec.Platform.None = "blue", "example.com", &runtime.RawExtension{Raw: []byte("{}")}
	u.make(cluster, nil)
	u.agent("one", "node-1")
	u.agent("two", "node-2")
	u.agent("three", "twin")
	u.agent("four", "twin")
	out := u.must("bind", "node-1", "two", "--cluster=blue", "--role=worker", "--approve")
	assert.Contains(t, out, "machine node-1 is to be bound to "+u.namespace+"/blue")
	for _, name := range []string{"one", "two"} {
		agent := &agentv1.Agent{}
		require.NoError(t, u.Get(t.Context(), client.ObjectKey{Namespace: u.namespace, Name: name}, agent))
		assert.Equal(t, &agentv1.ClusterReference{Namespace: u.namespace, Name: "blue"}, agent.Spec.ClusterDeploymentName)
		assert.True(t, agent.Spec.Approved)
		assert.Equal(t, "worker", agent.Spec.Role)
	}
	_, said, err := u.run("bind", "node-1", "twin", "--cluster=blue")
	require.Error(t, err)
	assert.Contains(t, said, "2 machines have the host name")
	_, said, err = u.run("bind", "node-1", "--cluster=green")
	require.Error(t, err)
	assert.Contains(t, said, "green")
	_, said, err = u.run("unbind", "unknown")
	require.Error(t, err)
	assert.Contains(t, said, `no Agent in namespace `+u.namespace)
	u.must("unbind", "node-1")
	agent := &agentv1.Agent{}
	require.NoError(t, u.Get(t.Context(), client.ObjectKey{Namespace: u.namespace, Name: "one"}, agent))
	assert.Nil(t, agent.Spec.ClusterDeploymentName)
	assert.Regexp(t, u.namespace+` +node-2 +Agent +known-unbound +`+u.namespace+`/blue +8 +17Gi`, u.must("hosts"))
}

func TestIPs(t *testing.T) {
	u := newTerminal(t)
	start, end := ipamv1.IPAddressStr("10.0.0.1"), ipamv1.IPAddressStr("10.0.0.20")
	pool := &ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: ipamv1.IPPoolSpec{NamePrefix: "rack", Prefix: 24, Pools: []ipamv1.Pool{{Start: &start, End: &end}}}}
	total, used := int64(20), int64(2)
	u.make(pool, func() { pool.Status.Total, pool.Status.Used = &total, &used })
	assert.Regexp(t, u.namespace+` +rack +20 +2 +-`, u.must("ips"))
	for _, address := range []string{"10.0.0.10", "10.0.0.9"} {
		u.make(&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "rack-" + strings.ReplaceAll(address, ".", "-")}, Spec: ipamv1.IPAddressSpec{
			Pool: ipamv1.ObjectReference{Name: "rack"}, Claim: ipamv1.ObjectReference{Name: "of-" + address}, Address: ipamv1.IPAddressStr(address), Prefix: 24,
		}}, nil)
	}
	out := u.must("ips", "rack")
	assert.Regexp(t, `(?s)10\.0\.0\.9 .*of-10\.0\.0\.9.*10\.0\.0\.10 .*IPClaim`, out, "in the order of addresses, with their claims")
	_, _, err := u.run("ips", "none")
	require.Error(t, err)

	// Of claims in other namespaces, several may have one name.
	for address, namespace := range map[string]string{"10.0.0.11": "team-a", "10.0.0.12": "team-b", "10.0.0.16": u.namespace} {
		a := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: "rack-" + strings.ReplaceAll(address, ".", "-")}, Spec: ipamv1.IPAddressSpec{
			Pool: ipamv1.ObjectReference{Name: "rack", Namespace: u.namespace}, Claim: ipamv1.ObjectReference{Name: "node-0", Namespace: namespace}, Address: ipamv1.IPAddressStr(address), Prefix: 24,
		}}
		if namespace == u.namespace {
			a.Spec.PrefixLength = 28
		}
		u.make(a, nil)
	}
	out = u.must("ips", "rack")
	assert.Regexp(t, `10\.0\.0\.11 .* team-a/node-0 `, out)
	assert.Regexp(t, `10\.0\.0\.12 .* team-b/node-0 `, out)
	assert.Regexp(t, `10\.0\.0\.16/28 .* node-0 `, out, "a whole prefix")
}

// TestAddressesOfManyPages are all listed, each once: a page does not replace the objects of the one before.
func TestAddressesOfManyPages(t *testing.T) {
	u := newTerminal(t)
	subnet := ipamv1.IPSubnetStr("10.1.0.0/16")
	u.make(&ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "hall"}, Spec: ipamv1.IPPoolSpec{NamePrefix: "hall", Pools: []ipamv1.Pool{{Subnet: &subnet}}}}, nil)
	const addresses = 520
	for i := range addresses {
		u.make(&ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("hall-10-1-%d-%d", i/200, i%200+1)}, Spec: ipamv1.IPAddressSpec{
			Pool: ipamv1.ObjectReference{Name: "hall"}, Claim: ipamv1.ObjectReference{Name: fmt.Sprintf("claim-%d", i)},
			Address: ipamv1.IPAddressStr(fmt.Sprintf("10.1.%d.%d", i/200, i%200+1)), Prefix: 16,
		}}, nil)
	}
	out := u.must("ips", "hall")
	for i := range addresses {
		require.Equal(t, 1, strings.Count(out, fmt.Sprintf("claim-%d ", i)), "claim-%d", i)
	}
}

func TestStatus(t *testing.T) {
	u := newTerminal(t)
	replicas := int32(2)
	labels := map[string]string{"app.kubernetes.io/part-of": "muster", "x": u.namespace}
	u.make(&appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "pool-operator", Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: "pool-operator:v1"}}},
		}},
	}, nil)
	u.pool("slow", condition(hivev1.ClusterPoolReady, corev1.ConditionFalse, hivev1.ReasonPoolFilling, "1 of 2"))
	u.pool("bad", condition(hivev1.ClusterPoolReady, corev1.ConditionFalse, hivev1.ReasonMissing, "no image set"))
	out := u.must("status")
	bad, slow := strings.Index(out, "ClusterPool "+u.namespace+"/bad"), strings.Index(out, "ClusterPool "+u.namespace+"/slow")
	require.NotEqual(t, -1, bad, out)
	require.NotEqual(t, -1, slow, out)
	assert.Less(t, bad, slow, "failures come before waits")
	assert.Regexp(t, `pool-operator +`+u.namespace+` +0/2 +pool-operator:v1`, out)
	assert.Contains(t, out, "0 of 2 replicas are ready")
	var report struct {
		Problems []struct{ Kind, Namespace, Name, Reason string }
	}
	require.NoError(t, json.Unmarshal([]byte(u.must("status", "-o=json")), &report))
	assert.NotEmpty(t, report.Problems)
}

func TestStatusWithTheRightsOfOneNamespace(t *testing.T) {
	u := newTerminal(t)
	u.pool("bad", condition(hivev1.ClusterPoolReady, corev1.ConditionFalse, hivev1.ReasonMissing, "no image set"))
	u.allow("alice", rbacv1.PolicyRule{APIGroups: []string{"hive.openshift.io"}, Resources: []string{"clusterpools"}, Verbs: []string{"list"}})
	require.EventuallyWithT(t, func(c *assert.CollectT) { // rights are there a moment after they were written
		out, said, err := u.run("status", "--as=alice")
		require.NoError(c, err, said)
		assert.Contains(c, out, "ClusterPool "+u.namespace+"/bad")
		assert.Contains(c, said, "left out: Agent: you may not list it")
	}, 20*time.Second, 200*time.Millisecond)
}

func TestMustGather(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	const secret = "SSBhbSBhIHNlY3JldA"
	env := &agentv1.InfraEnv{ObjectMeta: metav1.ObjectMeta{Name: "rack"}}
	env.Spec.PullSecretRef.Name, env.Spec.IgnitionConfigOverride = "pull", `{"x":"`+secret+`"}`
	u.make(env, func() { env.Status.ISODownloadURL = "http://images/full.iso?api_key=" + secret })
	u.make(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull"}, StringData: map[string]string{"x": secret}}, nil)
	u.make(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Kind: "InfraEnv", Namespace: u.namespace, Name: "rack"}, Message: "http://a:" + secret + "@b/",
	}, nil)
	file := filepath.Join(t.TempDir(), "archive.tar.gz")
	assert.Equal(t, file+"\n", u.must("must-gather", "--file="+file))
	files := unpack(t, file)
	names := slices.Sorted(maps.Keys(files))
	assert.Contains(t, names, "muster/objects/clusterpools.hive.openshift.io/"+u.namespace+"/small.yaml")
	assert.Contains(t, names, "muster/objects/infraenvs.agent-install.openshift.io/"+u.namespace+"/rack.yaml")
	assert.Contains(t, files["muster/events/"+u.namespace+".yaml"], "http://b/")
	for name, content := range files {
		assert.NotContains(t, content, secret, name)
	}
	_, _, err := u.run("must-gather", "--file="+file)
	require.Error(t, err, "an archive is not overwritten")
}

// An archive is wanted most where something is broken: a node that is down takes nothing but the logs of its own pods from it.
func TestMustGatherBesideANodeThatIsDown(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "down-"}}
	require.NoError(t, u.Create(t.Context(), node))
	t.Cleanup(func() { _ = u.Delete(context.WithoutCancel(t.Context()), node) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = 1
	require.NoError(t, u.Status().Update(t.Context(), node))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pool-operator-0", Labels: map[string]string{"app.kubernetes.io/part-of": "muster"}},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "manager", Image: "pool-operator:v1"}}},
	}
	u.make(pod, func() { pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}} })
	file := filepath.Join(t.TempDir(), "archive.tar.gz")
	_, said, err := u.run("must-gather", "--file="+file)
	require.NoError(t, err, said)
	files := unpack(t, file)
	assert.Contains(t, files, "muster/objects/clusterpools.hive.openshift.io/"+u.namespace+"/small.yaml")
	assert.Contains(t, files, "muster/events/"+u.namespace+".yaml")
	missing := "log of " + u.namespace + "/pool-operator-0: "
	assert.Contains(t, files["muster/missing.txt"], missing)
	assert.Contains(t, said, "left out: "+missing)
}

func unpack(t *testing.T, file string) map[string]string {
	t.Helper()
	in, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, in.Close()) }()
	zip, err := gzip.NewReader(in)
	require.NoError(t, err)
	files := make(map[string]string)
	for reader := tar.NewReader(zip); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		content, err := io.ReadAll(reader)
		require.NoError(t, err)
		files[header.Name] = string(content)
	}
}

func TestCompletionOffersNames(t *testing.T) {
	u := newTerminal(t)
	u.pool("small")
	u.agent("one", "node-1")
	out := u.must("__complete", "claim", "")
	assert.Contains(t, out, "small\n")
	assert.Contains(t, u.must("__complete", "bind", ""), "node-1\n")
}
