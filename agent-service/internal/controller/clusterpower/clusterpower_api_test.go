// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterpower

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/precedence"
	"github.com/muster-io/muster/agent-service/internal/powerplan"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// patience is how long anything may take on a busy machine before it counts as stuck.
const patience = 2 * time.Minute

// site is a namespace of the real API server with machines, and a cluster. The test stands for the operator of hosts, and for the nodes.
type site struct {
	*testing.T
	config    *rest.Config
	user      client.Client
	namespace string
	cluster   *hivev1.ClusterDeployment
	nodes     *nodes
}

// nodes says which nodes are Ready, while the API of the cluster answers.
type nodes struct {
	away    atomic.Bool
	ready   sync.Map
	mu      sync.Mutex
	readers []chan event.GenericEvent
}

func (n *nodes) NodeReady(_ types.NamespacedName, node string) (ready, known bool) {
	_, ready = n.ready.Load(node)
	return ready, !n.away.Load()
}

// changed notifies the replicas.
func (n *nodes) changed(cluster *hivev1.ClusterDeployment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, reader := range n.readers {
		reader <- event.GenericEvent{Object: cluster.DeepCopy()}
	}
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme, metal3v1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return scheme
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{T: t, config: rest.CopyConfig(controlplanetest.Start(t)), nodes: &nodes{}}
	s.config.QPS = -1
	var err error
	s.user, err = client.New(s.config, client.Options{Scheme: newScheme(t)})
	require.NoError(t, err)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "power-"}}
	require.NoError(t, s.user.Create(t.Context(), namespace))
	s.namespace = namespace.Name
	s.cluster = &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "blue"},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: "blue", BaseDomain: "example.org", Installed: true, Platform: hivev1.Platform{Hosted: &hivev1.HostedPlatform{Nodes: &hivev1.HostedNodes{}}},
			ClusterMetadata: &hivev1.ClusterMetadata{
				ClusterID: "c", InfraID: "i", AdminKubeconfigSecretRef: hivev1.LocalObjectReference{Name: "admin"}, NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "nodes"},
			},
		},
	}
	require.NoError(t, s.user.Create(t.Context(), s.cluster))
	return s
}

// machine makes a host that is on, and the Agent of its machine, whose Node is Ready.
func (s *site) machine(name string, change ...func(*metal3v1.BareMetalHost)) (*metal3v1.BareMetalHost, *agentv1.Agent) {
	s.Helper()
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{agentv1.InfraEnvLabel: "rack"}},
		Spec:       metal3v1.BareMetalHostSpec{Online: true, BMC: &metal3v1.BMCDetails{Address: "ipmi://192.0.2.1", CredentialsName: "bmc"}},
	}
	for _, one := range change {
		one(host)
	}
	require.NoError(s, s.user.Create(s.Context(), host))
	agent := &agentv1.Agent{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Labels: map[string]string{agentv1.BareMetalHostLabel: name}},
		Spec:       agentv1.AgentSpec{Approved: true, Hostname: name, ClusterDeploymentName: &agentv1.ClusterReference{Namespace: s.namespace, Name: s.cluster.Name}},
	}
	require.NoError(s, s.user.Create(s.Context(), agent))
	agent.Status.DebugInfo.State = "added-to-existing-cluster"
	require.NoError(s, s.user.Status().Update(s.Context(), agent))
	s.nodes.ready.Store(name, true)
	s.powers(host)
	return host, agent
}

// powers is what the operator of hosts does: it switches the machine as its host says.
func (s *site) powers(host *metal3v1.BareMetalHost) {
	s.Helper()
	require.NoError(s, s.user.Get(s.Context(), client.ObjectKeyFromObject(host), host))
	host.Status.PoweredOn, host.Status.OperationalStatus, host.Status.Provisioning.State = host.Spec.Online, metal3v1.OperationalStatusOK, metal3v1.StateProvisioned
	require.NoError(s, s.user.Status().Update(s.Context(), host))
}

// until reads an object until it is as wanted.
func (s *site) until(object client.Object, what string, wanted func() bool) {
	s.Helper()
	err := wait.PollUntilContextTimeout(s.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		return s.user.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && wanted(), nil
	})
	require.NoError(s, err, "%s: %+v", what, object)
}

// says waits until the cluster has a condition with that reason, and returns its message.
func (s *site) says(kind, reason string) string {
	s.Helper()
	message := ""
	s.until(s.cluster, kind+" is "+reason, func() bool {
		c := hivev1.FindCondition(s.cluster.Status.Conditions, kind)
		if c != nil {
			message = c.Message
		}
		return c != nil && c.Reason == reason
	})
	return message
}

// change patches an object as a user does.
func change[O client.Object](s *site, object O, do func(O)) {
	s.Helper()
	require.NoError(s, s.user.Get(s.Context(), client.ObjectKeyFromObject(object), object))
	before, ok := object.DeepCopyObject().(client.Object)
	require.True(s, ok)
	do(object)
	require.NoError(s, s.user.Patch(s.Context(), object, client.MergeFrom(before)))
}

func (s *site) power(state hivev1.PowerState) {
	s.Helper()
	change(s, s.cluster, func(c *hivev1.ClusterDeployment) { c.Spec.PowerState = state })
}

// node says whether the Node of a machine is Ready.
func (s *site) node(name string, ready bool) {
	s.Helper()
	if ready {
		s.nodes.ready.Store(name, true)
	} else {
		s.nodes.ready.Delete(name)
	}
	s.nodes.changed(s.cluster)
}

// always does each write.
func always(do func() error) error { return do() }

// replica runs a controller with a cache of its own until the test ends, from the end of before on where that is not nil. Each write is handed to write, which does it or not.
func (s *site) replica(before <-chan struct{}, write func(do func() error) error) {
	s.Helper()
	mgr, err := ctrl.NewManager(s.config, ctrl.Options{
		Scheme: newScheme(s.T), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
	})
	require.NoError(s, err)
	for _, index := range []func(context.Context, client.FieldIndexer) error{Index, agentctl.Index} {
		require.NoError(s, index(s.Context(), mgr.GetFieldIndexer()))
	}
	direct, err := client.NewWithWatch(s.config, client.Options{Scheme: mgr.GetScheme(), Cache: &client.CacheOptions{Reader: mgr.GetCache()}})
	require.NoError(s, err)
	faulty := interceptor.NewClient(direct, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			return write(func() error { return c.Patch(ctx, object, patch, options...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, object runtime.ApplyConfiguration, options ...client.SubResourceApplyOption) error {
			return write(func() error { return c.SubResource(sub).Apply(ctx, object, options...) })
		},
	})
	changes := make(chan event.GenericEvent, 64)
	s.nodes.mu.Lock()
	s.nodes.readers = append(s.nodes.readers, changes)
	s.nodes.mu.Unlock()
	require.NoError(s, New(Deps{Client: faulty, Nodes: s.nodes, Service: hosts{}, Order: &precedence.Order{Clock: clock.RealClock{}}, Clock: clock.RealClock{}}).SetupWithManager(mgr, changes))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		if before != nil {
			select {
			case <-before:
			case <-ctx.Done():
			}
		}
		done <- mgr.Start(ctx)
	}()
	s.Cleanup(func() { cancel(); assert.NoError(s, <-done) })
}

// hibernatesAndResumes takes machines through a whole sleep, and states what holds at every step.
func (s *site) hibernatesAndResumes(hosts ...*metal3v1.BareMetalHost) {
	s.Helper()
	s.power(hivev1.PowerStateHibernating)
	for _, host := range hosts {
		s.until(host, "it is to be off", func() bool { return !host.Spec.Online })
		s.powers(host)
	}
	for _, host := range hosts {
		require.NoError(s, s.user.Get(s.Context(), client.ObjectKeyFromObject(s.cluster), s.cluster))
		assert.False(s, hivev1.IsConditionTrue(s.cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesStopped), "the Node %s is not missed yet", host.Name)
		s.node(host.Name, false)
	}
	s.says(hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonMachinesStopped)
	s.nodes.away.Store(true)

	s.power(hivev1.PowerStateRunning)
	s.says(hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonStartingMachines)
	for _, host := range hosts {
		require.NoError(s, s.user.Get(s.Context(), client.ObjectKeyFromObject(host), host))
		assert.False(s, host.Spec.Online, "the control plane is first")
	}
	s.nodes.away.Store(false)
	s.nodes.changed(s.cluster)
	for _, host := range hosts {
		s.until(host, "it is to be on", func() bool { return host.Spec.Online })
		assert.NotContains(s, host.Annotations, agentv1.BMHHibernatesAnnotation)
		s.powers(host)
		s.node(host.Name, true)
	}
	s.says(hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonMachinesRunning)
}

func TestMachinesAreOffWhileTheirClusterHibernates(t *testing.T) {
	s := newSite(t)
	s.replica(nil, always)
	one, _ := s.machine("one")
	two, _ := s.machine("two")
	bare, _ := s.machine("bare", func(h *metal3v1.BareMetalHost) { h.Spec.BMC = nil })
	s.until(s.cluster, "the machine without power control is named", func() bool {
		c := hivev1.FindCondition(s.cluster.Status.Conditions, hivev1.ClusterDeploymentMachinesPowerManaged)
		return c != nil && c.Message == "Not stopped and started with the cluster: bare: BareMetalHost bare names no management controller"
	})
	s.hibernatesAndResumes(one, two)
	require.NoError(t, s.user.Get(t.Context(), client.ObjectKeyFromObject(bare), bare))
	assert.True(t, bare.Spec.Online)
}

// Conditions of other controllers, and the power of a host that another client switches on, are theirs.
func TestOtherWritersKeepWhatIsTheirs(t *testing.T) {
	s := newSite(t)
	s.cluster.Status.Conditions = []hivev1.Condition{{Type: hivev1.ClusterDeploymentReady, Status: corev1.ConditionTrue, Reason: "Running"}}
	require.NoError(t, s.user.Status().Update(t.Context(), s.cluster))
	s.replica(nil, always)
	host, _ := s.machine("one")
	s.power(hivev1.PowerStateHibernating)
	s.until(host, "it is to be off", func() bool { return !host.Spec.Online })
	change(s, host, func(h *metal3v1.BareMetalHost) { h.Spec.Online = true })
	s.says(hivev1.ClusterDeploymentMachinesPowerManaged, hivev1.ReasonMachinesWithoutPowerControl)
	s.says(hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonMachinesStopped)
	require.NoError(t, s.user.Get(t.Context(), client.ObjectKeyFromObject(host), host))
	assert.True(t, host.Spec.Online)
	assert.True(t, hivev1.IsConditionTrue(s.cluster.Status.Conditions, hivev1.ClusterDeploymentReady))
}

// A machine is wiped by itself: it has to run for that.
func TestAMachineThatIsReleasedFromAHibernatingClusterIsSwitchedOn(t *testing.T) {
	s := newSite(t)
	s.replica(nil, always)
	released, agent := s.machine("released")
	deleted, _ := s.machine("deleted")
	s.power(hivev1.PowerStateHibernating)
	for _, host := range []*metal3v1.BareMetalHost{released, deleted} {
		s.until(host, "it is to be off", func() bool { return !host.Spec.Online })
		s.powers(host)
	}
	change(s, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	s.until(released, "it is to be on", func() bool { return released.Spec.Online && len(released.Annotations) == 0 })
	require.NoError(t, s.user.Get(t.Context(), client.ObjectKeyFromObject(deleted), deleted))
	assert.False(t, deleted.Spec.Online)
	require.NoError(t, s.user.Delete(t.Context(), s.cluster))
	s.until(deleted, "it is to be on", func() bool { return deleted.Spec.Online && len(deleted.Annotations) == 0 })
}

// A control plane without machines has nothing to wait for, and one that never had any says nothing of them.
func TestAClusterWithoutMachinesStops(t *testing.T) {
	s := newSite(t)
	s.replica(nil, always)
	_, agent := s.machine("one")
	s.says(hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonMachinesRunning)
	change(s, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	s.power(hivev1.PowerStateHibernating)
	assert.Equal(t, "0 of 0 machines are off", s.says(hivev1.ClusterDeploymentMachinesStopped, hivev1.ReasonMachinesStopped))
	assert.Empty(t, powerplan.Plan(powerplan.Snapshot{Cluster: &hivev1.ClusterDeployment{}}).Conditions)
}

var errDied = errors.New("the process died here")

// A process dies at each of its writes, before it is done and after, and the next one goes on.
func TestAProcessMayDieAtEveryWrite(t *testing.T) {
	const last = 9 // of one machine: what is said, off, what is said again for each thing it waits for, and the same on the way back
	for n := int64(1); n <= last; n++ {
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d, done %t", n, done), func(t *testing.T) {
				s := newSite(t)
				var writes atomic.Int64
				died := make(chan struct{})
				s.replica(nil, func(do func() error) error {
					switch number := writes.Add(1); {
					case number < n:
						return do()
					case number == n:
						defer close(died)
						if done {
							return errors.Join(do(), errDied)
						}
					}
					return errDied
				})
				s.replica(died, always)
				host, _ := s.machine("one")
				s.hibernatesAndResumes(host)
			})
		}
	}
}

// Two replicas that both believe to lead, and whose writes fail now and then, take the same machines through a sleep.
func TestTwoReplicasSwitchTheSameMachines(t *testing.T) {
	s := newSite(t)
	for range 2 {
		var writes atomic.Int64
		s.replica(nil, func(do func() error) error {
			switch writes.Add(1) % 5 {
			case 0:
				return errDied
			case 1:
				return errors.Join(do(), errDied)
			}
			return do()
		})
	}
	var hosts []*metal3v1.BareMetalHost
	for i := range 4 {
		host, _ := s.machine(fmt.Sprintf("node-%d", i))
		hosts = append(hosts, host)
	}
	for range 2 {
		s.hibernatesAndResumes(hosts...)
	}
}

// With the machine off that runs the control plane, no API could say that the others may be switched on.
func TestMachinesStayOnThatRunTheControlPlaneOfTheirCluster(t *testing.T) {
	s := newSite(t)
	s.replica(nil, always)
	host, agent := s.machine("one")
	s.power(hivev1.PowerStateHibernating)
	s.until(host, "it is to be off", func() bool { return !host.Spec.Online })
	agent.Status.Bootstrap = true
	require.NoError(t, s.user.Status().Update(t.Context(), agent))
	s.until(host, "it is to be on", func() bool { return host.Spec.Online && host.Annotations[agentv1.BMHHibernatesAnnotation] == "" })
}
