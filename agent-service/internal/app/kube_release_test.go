// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/faultinject"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// bind binds the machine of an Agent and waits until it is installed.
func (c *cluster) bind(agent *agentv1.Agent, deployment *hivev1.ClusterDeployment) {
	c.Helper()
	c.bound(agent, deployment)
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
}

// asksForInstructions waits until the installed system of an Agent's machine asks for instructions: one that does not is not asked to restart.
func (c *cluster) asksForInstructions(agent *agentv1.Agent) {
	c.Helper()
	stored, err := store.Open(c.Context(), c.options.Database)
	require.NoError(c, err)
	defer stored.Close() //nolint:errcheck // it is only read
	key := domain.HostKey{InfraEnvID: string(agent.OwnerReferences[0].UID), HostID: agent.Name}
	c.until(agent, "its installed system asks for instructions", func() (asks bool) {
		require.NoError(c, stored.View(c.Context(), func(ctx context.Context, r transaction.Reader) error {
			h, err := r.Host(ctx, key)
			asks = h != nil && h.Resident
			return err
		}))
		return asks
	})
}

// A machine whose installed system asks for instructions comes back without hands: it restarts into the discovery image, is wiped, and is free.
func TestAReleasedMachineComesBackByItself(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	c.reside = true
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) { s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk} }), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	for round := 1; round <= 2; round++ {
		c.bind(agent, deployment)
		c.says(agent, agentv1.ConditionJoined, agentv1.ReasonWaitingForCSR)
		c.asksForInstructions(agent)
		assert.Nil(t, agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased), "it is bound")
		change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
		c.until(agent, "the machine is free", func() bool {
			return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) && agent.Status.DebugInfo.State == "known-unbound"
		})
		assert.Equal(t, round, m.received(api.StepTypeRebootForReclaim))
		assert.Equal(t, round, m.received(api.StepTypeWipeDisk))
		assert.Equal(t, deployment.Name, agent.Status.DeprovisionInfo.ClusterName)
		assert.Equal(t, deployment.Namespace, agent.Status.DeprovisionInfo.ClusterNamespace)
	}
}

// blueWorkers makes a MachinePool that takes one machine for the cluster.
func blueWorkers(c *cluster, deployment *hivev1.ClusterDeployment) *hivev1.MachinePool {
	c.Helper()
	pool := &hivev1.MachinePool{
		ObjectMeta: metav1.ObjectMeta{Namespace: deployment.Namespace, Name: "blue-worker"},
		Spec: hivev1.MachinePoolSpec{
			ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}, Name: "worker", Replicas: new(int64(1)),
			Platform: hivev1.MachinePoolPlatform{AgentBareMetal: &hivev1.AgentBareMetalMachinePool{AgentNamespace: c.namespace}},
		},
	}
	c.create(pool)
	return pool
}

// A pool makes the AgentClusterInstall by which the service learns of the cluster, and binds: that it comes a moment later is no error of the user's,
// and the label of the cluster comes and goes with the binding.
func TestABindOfAPoolIsNoInputError(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	m := c.boot(c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	}), 1, 0)
	agent := c.agent(m)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Approved = true })
	watching, err := client.NewWithWatch(controlplanetest.Start(t), client.Options{Scheme: c.user.Scheme()})
	require.NoError(t, err)
	changes, err := watching.Watch(t.Context(), &agentv1.AgentList{}, client.InNamespace(c.namespace))
	require.NoError(t, err)
	defer changes.Stop()
	leaves := func(a *agentv1.Agent) bool {
		return a.Spec.ClusterDeploymentName == nil && agentv1.FindCondition(a.Status.Conditions, agentv1.ConditionReleased) != nil
	}
	seen := make(chan []*agentv1.Agent, 1)
	go func() {
		var versions []*agentv1.Agent
		for e := range changes.ResultChan() {
			if version, ok := e.Object.(*agentv1.Agent); ok {
				if versions = append(versions, version); leaves(version) {
					break
				}
			}
		}
		seen <- versions
	}()
	deployment, _ := hostedIn(c, c.newNamespace())
	pool := blueWorkers(c, deployment)
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	change(c, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(0)) })
	c.until(agent, "it leaves the cluster", func() bool { return leaves(agent) })
	versions := <-seen
	assert.Greater(t, len(versions), 4)
	for _, version := range versions {
		assert.Equal(t, version.Spec.ClusterDeploymentName != nil, version.Labels[agentv1.ClusterNamespaceLabel] == deployment.Namespace, "%+v", version.ObjectMeta)
		synced := agentv1.FindCondition(version.Status.Conditions, agentv1.ConditionSpecSynced)
		assert.True(t, synced == nil || synced.Status == corev1.ConditionTrue, "%+v", synced)
	}
}

// A machine that a MachinePool bound is wiped before it is free, although its InfraEnv says nothing of that.
func TestAMachineOfAPoolIsWipedBeforeItIsFree(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	c.reside = true
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	}), 1, 0)
	agent := c.agent(m)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Approved = true })
	deployment, _ := c.takesNodes()
	pool := blueWorkers(c, deployment)
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	c.asksForInstructions(agent)
	change(c, pool, func(p *hivev1.MachinePool) { p.Spec.Replicas = new(int64(0)) })
	c.until(agent, "the machine is free", func() bool {
		return agent.Labels[agentv1.MachinePoolLabel] == "" && agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased)
	})
	assert.Equal(t, 1, m.received(api.StepTypeWipeDisk))
	assert.Contains(t, agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased).Message, "its disks are wiped")
}

// A machine whose system does not ask says what its user has to do, and keeps no cluster from being deleted.
func TestAMachineThatCannotComeBackSaysWhatToDo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	require.NoError(t, c.user.Delete(t.Context(), deployment))
	c.gone(deployment)
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbindingPendingUserAction)
}

// A machine whose cluster is deleted while its disk is written still runs the discovery image: it stops, is wiped and is free without its user.
func TestAMachineThatIsWrittenIsFreeWhenItsClusterGoes(t *testing.T) {
	t.Parallel()
	image := system(t, &atomic.Int64{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(make([]byte, 1<<10))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	image.URL = server.URL + "/os.img"
	c := newCluster(t, withImage(t, image))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) { s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk} }), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bound(agent, deployment)
	c.until(agent, "its disk is written", func() bool { return agent.Status.Progress.CurrentStage == "Writing image to disk" })
	require.NoError(t, c.user.Delete(t.Context(), deployment))
	c.gone(deployment)
	c.until(agent, "the machine is free", func() bool { return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) })
	assert.Equal(t, 1, m.received(api.StepTypeWipeDisk))
	c.says(agent, agentv1.ConditionBound, agentv1.ReasonUnbound)
}

// What a cluster knows of a machine is shown, and goes when the machine is released: pods leave as far as they may, the Node is deleted, open certificate requests are denied.
func TestAClusterIsRidOfAReleasedMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	values := m.installed.join(t)
	request := c.asks(values.Token, worker(c.namespace))
	c.decided(request, certificatesv1.CertificateApproved)
	c.until(agent, "the certificate is shown", func() bool {
		approved := agent.Status.CSRStatus.ApprovedCSRs
		return len(approved) == 1 && approved[0].Name == request.Name && approved[0].Type == "client" && agent.Status.CSRStatus.LastApprovalAttempt != nil
	})
	node := c.node(worker(c.namespace), corev1.ConditionFalse)
	c.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeNotReady)
	c.nodeIs(node, corev1.ConditionTrue)
	c.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)

	pod := c.pod(worker(c.namespace))
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "all"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}},
	}
	c.create(budget)
	c.until(budget, "the budget counts", func() bool { return budget.Status.ObservedGeneration > 0 })
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.until(node, "no pod comes any more", func() bool { return node.Spec.Unschedulable })
	c.until(agent, "it waits for its pods", func() bool {
		return agent.Status.DeprovisionInfo != nil && agent.Status.DeprovisionInfo.Message == "The Node is being removed from the cluster"
	})
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonDraining)
	assert.Equal(t, worker(c.namespace), agent.Status.DeprovisionInfo.NodeName)
	require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	assert.Nil(t, pod.DeletionTimestamp, "the budget does not let it go")

	late := c.asks(values.Token, worker(c.namespace))
	require.NoError(t, c.user.Delete(t.Context(), budget))
	c.gone(pod)
	c.gone(node)
	c.decided(late, certificatesv1.CertificateDenied)
	c.until(agent, "nothing is left behind", func() bool { return agent.Status.DeprovisionInfo.Message == "" })
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
}

// A cluster that does not answer keeps no machine: what is left behind is noted.
func TestAClusterThatIsGoneKeepsNoMachine(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	c.reside = true
	bootstrappers(c)
	m := c.boot(c.infraEnv("rack"), 1, 0)
	agent := c.agent(m)
	deployment, secret := c.takesNodes()
	c.bind(agent, deployment)
	c.asksForInstructions(agent)
	require.NoError(t, c.user.Delete(t.Context(), secret))
	require.NoError(t, c.user.Delete(t.Context(), deployment))
	c.gone(deployment)
	c.until(agent, "the machine is free", func() bool { return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) })
	assert.Equal(t, "The cluster is gone", agent.Status.DeprovisionInfo.Message)
}

// A machine that was to be wiped is not free because the service lost its data, or has those of before: the status of its Agent says so.
func TestAMachineThatIsNotWipedIsNotFreeWhenTheDatabaseIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"lost": true, "of before": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			staysUnreleased(t, lost)
		})
	}
}

// So is a machine that is to be wiped because its MachinePool said so, where the pool went with its cluster.
func TestAMachineOfAPoolThatIsGoneIsNotFreeWhenTheDatabaseIsLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AllowedClusters = &agentv1.AllowedClusters{Namespaces: &agentv1.ClusterNamespaces{From: agentv1.FromAll}}
	})
	image := c.token(infraEnv)
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.Approved = true })
	deployment, _ := c.takesNodes()
	pool := blueWorkers(c, deployment)
	c.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	require.NoError(t, c.user.Delete(t.Context(), pool))
	c.gone(pool)
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	assert.Empty(t, agent.Labels[agentv1.MachinePoolLabel])
	m.stop()
	lose(c)
	c.bootWith(string(infraEnv.UID), image, 1, 0)
	c.until(agent, "it says why it is not free", func() bool {
		released := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased)
		return released != nil && released.Reason == agentv1.ReasonWipeFailed && strings.Contains(released.Message, "the disk that was written is not recorded")
	})
}

func staysUnreleased(t *testing.T, lost bool) {
	t.Helper()
	c := newCluster(t, withSystem(t))
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) { s.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk} })
	image := c.token(infraEnv)
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	before := ""
	if !lost {
		before = goBack(c, "")
	}
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	c.says(agent, agentv1.ConditionReleased, agentv1.ReasonWaitingForUser)
	m.stop()

	if before != "" {
		goBack(c, before)
	} else {
		lose(c)
	}
	second := c.bootWith(string(infraEnv.UID), image, 1, 0)
	c.until(agent, "it says why it is not free", func() bool {
		released := agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionReleased)
		return released != nil && released.Reason == agentv1.ReasonWipeFailed && strings.Contains(released.Message, "the disk that was written is not recorded")
	})
	assert.Equal(t, "insufficient-unbound", agent.Status.DebugInfo.State)
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = reference(deployment) })
	c.says(agent, agentv1.ConditionSpecSynced, agentv1.ReasonInputError)
	assert.Contains(t, agentv1.FindCondition(agent.Status.Conditions, agentv1.ConditionSpecSynced).Message, "not released")
	assert.Zero(t, second.received(api.StepTypeWipeDisk)+second.received(api.StepTypeInstall))
}

// node makes a Node, as a kubelet does.
func (c *cluster) node(name string, ready corev1.ConditionStatus) *corev1.Node {
	c.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.create(node)
	c.Cleanup(func() {
		assert.NoError(c, client.IgnoreNotFound(c.user.Delete(context.WithoutCancel(c.Context()), node)))
	})
	c.nodeIs(node, ready)
	return node
}

func (c *cluster) nodeIs(node *corev1.Node, ready corev1.ConditionStatus) {
	c.Helper()
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Test"}}
	require.NoError(c, c.user.Status().Patch(c.Context(), node, client.MergeFrom(before)))
}

// pod runs on a node, and leaves at once when it may.
func (c *cluster) pod(node string) *corev1.Pod {
	c.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.newNamespace(), Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)), Containers: []corev1.Container{{Name: "web", Image: "web"}},
		},
	}
	c.until(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "default"}}, "pods can be made", func() bool { return true })
	c.create(pod)
	before := pod.DeepCopy()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	require.NoError(c, c.user.Status().Patch(c.Context(), pod, client.MergeFrom(before)))
	return pod
}

// TestADeathAtEveryWriteOfARelease kills the service before and after every write to the Kubernetes API, every write to the cluster that the machine joins and leaves, and every commit, from
// the bind of the machine to its second one. Each time another process goes on. The machine joins, the Node goes, the machine is wiped, and each event is recorded once.
func TestADeathAtEveryWriteOfARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("many releases are not made in a short run")
	}
	t.Parallel()
	const period = 6
	var inCluster atomic.Int64
	t.Run("writes", func(t *testing.T) {
		for first := 1; first <= period; first++ {
			t.Run(fmt.Sprintf("from %d", first), func(t *testing.T) {
				t.Parallel()
				w := newCrashEnv(t)
				w.reside = true
				bootstrappers(w.cluster)
				processes := &faultinject.Sequence{First: first, Period: period}
				w.run(func() (*faultinject.Injector, bool) { return processes.Next(), true })
				w.release(worker(w.namespace))
				assert.Positive(t, processes.Crashes())
				inCluster.Add(w.inCluster.Load())
			})
		}
	})
	assert.Positive(t, inCluster.Load(), "processes died at writes to the cluster")
}

// throughInjector makes the node access of a cluster a way on which the process that runs may die.
func (w *crashEnv) throughInjector(secret *corev1.Secret) {
	w.Helper()
	config := rest.CopyConfig(controlplanetest.Start(w.T))
	target, err := url.Parse(config.Host)
	require.NoError(w, err)
	direct, err := rest.TransportFor(config)
	require.NoError(w, err)
	server := httptest.NewServer(&httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization")
		},
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			f := w.current.Load()
			before := f.Err()
			answer, err := f.ClusterTransport(direct).RoundTrip(r)
			if before == nil && errors.Is(err, faultinject.ErrCrashed) {
				w.inCluster.Add(1)
			}
			return answer, err
		}),
	})
	w.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	change(w.cluster, secret, func(s *corev1.Secret) { s.Data[hivev1.SecretKeyKubeconfig] = kubeconfigOf(w.T, server) })
}

// roundTrip is a function as http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// release binds a machine of a name, and frees it.
func (w *crashEnv) release(name string) {
	w.Helper()
	infraEnv, image := w.rack()
	change(w.cluster, infraEnv, func(e *agentv1.InfraEnv) { e.Spec.OnRelease = &agentv1.ReleasePolicy{Wipe: agentv1.WipeInstalledDisk} })
	w.until(infraEnv, "the policy is known", func() bool { return w.policy(infraEnv) == domain.WipeInstalledDisk })
	deployment, secret := w.takesNodesIn(w.namespace)
	w.throughInjector(secret)
	m := w.bootWith(string(infraEnv.UID), image, 1, 0)
	agent := w.agent(m)
	bind := func() {
		change(w.cluster, agent, func(a *agentv1.Agent) {
			a.Spec.ClusterDeploymentName, a.Spec.Approved, a.Spec.Hostname, a.Spec.Role = reference(deployment), true, name, "worker"
		})
		w.until(agent, "the machine is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	}
	bind()
	w.decided(w.asks(m.installed.join(w.T).Token, name), certificatesv1.CertificateApproved)
	node := w.node(name, corev1.ConditionTrue)
	w.says(agent, agentv1.ConditionJoined, agentv1.ReasonNodeReady)
	w.asksForInstructions(agent)
	change(w.cluster, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = nil })
	w.gone(node)
	w.until(agent, "the machine is free", func() bool {
		return agentv1.IsConditionTrue(agent.Status.Conditions, agentv1.ConditionReleased) && agent.Status.DebugInfo.State == "known-unbound"
	})
	assert.Empty(w, agent.Status.DeprovisionInfo.Message)
	counts := map[string]int64{}
	require.NoError(w, w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
		events, err := r.Events(ctx, domain.EventFilter{InfraEnvID: string(infraEnv.UID), Page: domain.Page{Limit: 5000}})
		for _, e := range events.Items {
			counts[e.Name] += e.Count
		}
		return err
	}))
	for _, name := range []string{"host_wiped", "host_released"} {
		assert.Equal(w, int64(1), counts[name], name)
	}
	assert.Zero(w, counts["host_wipe_failed"]+counts["host_node_left_behind"])
	bind()
}

// policy is what the service keeps of an InfraEnv.
func (w *crashEnv) policy(infraEnv *agentv1.InfraEnv) (wipe domain.Wipe) {
	w.Helper()
	require.NoError(w, w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
		e, err := r.InfraEnv(ctx, string(infraEnv.UID))
		if e != nil {
			wipe = e.Wipe
		}
		return err
	}))
	return wipe
}
