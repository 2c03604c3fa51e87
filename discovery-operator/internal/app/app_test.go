// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/apis/controlplanetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
)

// atOnce is how many tests run at a time whatever the number of processors, unless -parallel says otherwise: they wait much of their
// time, but the Ironics that some of them start do not.
const atOnce = "4"

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", atOnce)
	}
	os.Exit(m.Run())
}

// testEnv is a namespace of a real API server with operators in it.
type testEnv struct {
	testing.TB
	client.Client
	config *rest.Config
	ns     string
	// system holds the reservations of the operators of this test.
	system string
	rack   *demo.Rack
	// wrap stands between operators and the API server.
	wrap []transport.WrapperFunc
}

// newTestEnv makes a namespace, and lets the test run beside others: its operators see no hosts but its own.
func newTestEnv(t testing.TB) *testEnv {
	t.Helper()
	if test, ok := t.(*testing.T); ok {
		test.Parallel()
	}
	return newSerialTestEnv(t)
}

// newSerialTestEnv is newTestEnv for a part of a test that runs beside others, whose parts follow each other.
func newSerialTestEnv(t testing.TB) *testEnv {
	t.Helper()
	return newTestEnvAt(t, controlplanetest.Start(t))
}

// newTestEnvAt is newSerialTestEnv at an API server.
func newTestEnvAt(t testing.TB, config *rest.Config) *testEnv {
	t.Helper()
	scheme, err := newScheme()
	require.NoError(t, err)
	c, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "rack-"}}
	require.NoError(t, c.Create(t.Context(), ns))
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name + "-system"}}
	require.NoError(t, c.Create(t.Context(), system))
	w := &testEnv{TB: t, Client: c, config: config, ns: ns.Name, system: system.Name, rack: demo.New()}
	w.grant()
	t.Cleanup(func() { w.clear() })
	return w
}

// account is the user that an operator of this test is: its service account, with the rights of the deployment and no others.
func (w *testEnv) account() string {
	return "system:serviceaccount:" + w.system + ":discovery-operator"
}

// grant gives the account the roles that the deployment gives it.
func (w *testEnv) grant() {
	w.Helper()
	deploy := filepath.Join("..", "..", "..", "deploy")
	data, err := os.ReadFile(filepath.Join(deploy, "base", "discovery-operator", "role.yaml"))
	require.NoError(w, err)
	managing, err := os.ReadFile(filepath.Join(deploy, "components", "manage-hosts", "role.yaml"))
	require.NoError(w, err)
	subject := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.system, Name: "discovery-operator"}}
	for document := range strings.SplitSeq(string(data)+"\n---\n"+string(managing), "\n---\n") {
		switch {
		case strings.Contains(document, "kind: ClusterRole"):
			role := &rbacv1.ClusterRole{}
			require.NoError(w, yaml.UnmarshalStrict([]byte(document), role))
			role.Name = strings.Replace(role.Name, "discovery-operator", w.system, 1)
			require.NoError(w, w.Create(w.Context(), role))
			require.NoError(w, w.Create(w.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: role.Name}, Subjects: subject,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			}))
		case strings.Contains(document, "kind: Role"):
			role := &rbacv1.Role{}
			require.NoError(w, yaml.UnmarshalStrict([]byte(document), role))
			role.Namespace = w.system
			require.NoError(w, w.Create(w.Context(), role))
			require.NoError(w, w.Create(w.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.system, Name: role.Name}, Subjects: subject,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			}))
		}
	}
}

// clear deletes what the test made, so that informers do not watch more and more objects.
func (w *testEnv) clear() {
	ctx := context.Background()
	var discoveries metal3v1.BareMetalHostDiscoveryList
	require.NoError(w, w.List(ctx, &discoveries, client.InNamespace(w.ns)))
	for i := range discoveries.Items {
		_ = w.Delete(ctx, &discoveries.Items[i])
	}
	var hosts metal3v1.BareMetalHostList
	require.NoError(w, w.List(ctx, &hosts, client.InNamespace(w.ns)))
	for i := range hosts.Items {
		h := &hosts.Items[i]
		_ = w.Patch(ctx, h, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = w.Delete(ctx, h)
	}
}

// operate runs an operator until the function that it returns is called, or the test ends. One that ends by itself fails the test.
func (w *testEnv) operate(change ...func(*setup)) (stop func()) {
	w.Helper()
	o, err := Parse([]string{"--provisioner=demo", "--metrics-bind-address=0", "--health-probe-bind-address=0", "--namespace=" + w.system},
		func(string) string { return "" })
	require.NoError(w, err)
	s := setup{Options: o, only: []string{w.ns}}
	for _, c := range change {
		c(&s)
	}
	require.NoError(w, s.Validate())
	p, err := s.parts(w.rack)
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = w.account()
	for _, wrap := range w.wrap {
		config.Wrap(wrap)
	}
	go func() {
		err := p.run(ctx, config)
		if ctx.Err() == nil {
			w.Errorf("an operator ended by itself: %v", err)
		}
		done <- err
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			require.NoError(w, <-done)
		}
	}
	w.Cleanup(stop)
	return stop
}

// discover makes a resource that polls fast.
func (w *testEnv) discover(name string, change ...func(*metal3v1.BareMetalHostDiscovery)) *metal3v1.BareMetalHostDiscovery {
	w.Helper()
	d := &metal3v1.BareMetalHostDiscovery{}
	d.Namespace, d.Name = w.ns, name
	d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{HardwareDetails: metal3v1.DetailHostname}
	d.Spec.Interval = &metav1.Duration{Duration: time.Second}
	d.Spec.ResyncInterval = &metav1.Duration{Duration: 10 * time.Second}
	for _, c := range change {
		c(d)
	}
	require.NoError(w, w.Create(w.Context(), d))
	return d
}

func (w *testEnv) enrol(i int, change ...func(map[string]any)) string {
	w.Helper()
	uuid, err := w.rack.Enrol(demo.Machine(i, change...))
	require.NoError(w, err)
	return uuid
}

func (w *testEnv) eventually(what string, condition func() bool) {
	w.Helper()
	require.True(w, waitFor(patience, condition), what)
}

// waitFor asks until the answer is yes, and reports whether it was in time. Unlike testify it asks in the goroutine of the test, which
// may print what the condition last read.
func waitFor(limit time.Duration, condition func() bool) bool {
	return waitEvery(beat, limit, condition)
}

// waitEvery is waitFor that asks at other intervals.
func waitEvery(interval, limit time.Duration, condition func() bool) bool {
	return wait.PollUntilContextTimeout(context.Background(), interval, limit, true, func(context.Context) (bool, error) { return condition(), nil }) == nil
}

// stays checks for a while that something stays as it is.
func (w *testEnv) stays(what string, condition func() bool, long time.Duration) {
	w.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-ticker.C {
		require.True(w, condition(), what)
	}
}

func (w *testEnv) hosts() []metal3v1.BareMetalHost {
	var list metal3v1.BareMetalHostList
	assert.NoError(w, w.List(w.Context(), &list, client.InNamespace(w.ns)))
	return list.Items
}

// host waits for a host with a status.
func (w *testEnv) host(name string) *metal3v1.BareMetalHost {
	w.Helper()
	var h metal3v1.BareMetalHost
	w.eventually("host "+name+" appears", func() bool {
		return w.Get(w.Context(), types.NamespacedName{Namespace: w.ns, Name: name}, &h) == nil && h.HasStatus()
	})
	return &h
}

// status waits until the resource says what the test wants.
func (w *testEnv) status(d *metal3v1.BareMetalHostDiscovery, what string, want func(*metal3v1.BareMetalHostDiscoveryStatus) bool) {
	w.Helper()
	var last metal3v1.BareMetalHostDiscoveryStatus
	ok := waitFor(patience, func() bool {
		err := w.Get(w.Context(), client.ObjectKeyFromObject(d), d)
		last = d.Status
		return err == nil && want(&d.Status)
	})
	require.True(w, ok, "%s: %+v", what, last)
}

// hasEvent waits for an event about a host.
func (w *testEnv) hasEvent(h *metal3v1.BareMetalHost, reason, note string) {
	w.Helper()
	w.eventually("an event says "+reason, func() bool {
		var events eventsv1.EventList
		return w.List(w.Context(), &events, client.InNamespace(h.Namespace)) == nil && slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == h.Name && e.Reason == reason && strings.Contains(e.Note, note)
		})
	})
}

func ready(reason string) func(*metal3v1.BareMetalHostDiscoveryStatus) bool {
	return func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		c := meta.FindStatusCondition(s.Conditions, metal3v1.ConditionReady)
		return c != nil && c.Reason == reason
	}
}

func TestAnUnknownMachineBecomesAHost(t *testing.T) {
	w := newTestEnv(t)
	uuid := w.enrol(1)
	w.operate()
	d := w.discover("all")
	h := w.host("node-00001")

	assert.Equal(t, demo.MAC(1, 0), h.Spec.BootMACAddress)
	assert.Nil(t, h.Spec.BMC)
	assert.True(t, h.Spec.Online)
	assert.Equal(t, "x86_64", h.Spec.Architecture)
	assert.Equal(t, metal3v1.DiscoveryPausedValue, h.Annotations[metal3v1.PausedAnnotation])
	assert.Equal(t, []string{metal3v1.DiscoveryFinalizer}, h.Finalizers)
	assert.Equal(t, metal3v1.OperationalStatusDiscovered, h.Status.OperationalStatus)
	assert.Equal(t, metal3v1.StateUnmanaged, h.Status.Provisioning.State)
	assert.Equal(t, uuid, h.Status.Provisioning.ID)
	assert.Equal(t, "SN00000001", h.Status.HardwareDetails.SystemVendor.SerialNumber)
	assert.Len(t, h.Status.HardwareDetails.NIC, 2)
	assert.Len(t, h.Status.HardwareDetails.Storage, 2)
	c := meta.FindStatusCondition(h.Status.Conditions, metal3v1.ConditionHandedOver)
	require.NotNil(t, c)
	assert.Equal(t, metal3v1.ReasonWaitingForCredentials, c.Reason)

	w.status(d, "the status counts it", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool {
		return s.Counts == metal3v1.DiscoveryCounts{Nodes: 1, Read: 1, Known: 1, Hosts: 1} && ready(metal3v1.ReasonDiscovering)(s)
	})
	w.enrol(2)
	w.host("node-00002")
}

func TestAChangeOfAResourceTouchesNoHost(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	d := w.discover("all")
	before := w.host("node-00001")
	w.patch(d, `{"spec":{"resourceNameTemplate":{"prefix":"new-"},"hostTemplate":{"labels":{"rack":"r1"}},"approval":"Manual","selector":"bootMAC != '`+
		before.Spec.BootMACAddress+`'","nodeDeletion":"Keep","rediscover":"Ignore"}}`)
	w.status(d, "the change is seen", func(s *metal3v1.BareMetalHostDiscoveryStatus) bool { return s.ObservedGeneration == d.Generation })
	w.enrol(2)
	next := w.host("new-node-00002")
	assert.Equal(t, "r1", next.Labels["rack"])
	assert.Equal(t, "pending", next.Labels[metal3v1.ApprovalLabel])
	after := w.host("node-00001")
	assert.Equal(t, before.Spec, after.Spec)
	assert.Equal(t, before.Labels, after.Labels)
	assert.Equal(t, before.Annotations, after.Annotations)
	assert.Len(t, w.hosts(), 2)
	w.credentials(after, redfish, true)
	w.released(after)
}

func TestAStatusIsAnUnmanagedHostToOthers(t *testing.T) {
	w := newTestEnv(t)
	w.enrol(1)
	w.operate()
	w.discover("all")
	h := w.host("node-00001")
	for _, state := range []metal3v1.ProvisioningState{metal3v1.StateDiscovered, metal3v1.StateImporting} {
		assert.NotEqual(t, state, h.Status.Provisioning.State, "no other operator knows this state")
	}
	assert.False(t, h.Status.PoweredOn)
	assert.Empty(t, h.Status.ErrorMessage)
	assert.NotNil(t, h.Status.LastUpdated)
	assert.NotContains(t, h.Annotations[metal3v1.NodeAnnotation], "~")
}
