// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/faultinject"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/store"
	"github.com/muster-io/muster/agent-service/internal/token"
	"github.com/muster-io/muster/agent-service/internal/transaction"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// sharedListener is the address of a service over all its processes. Connections wait while there is none.
type sharedListener struct {
	net.Listener
	arrived chan net.Conn
}

func newSharedListener(t *testing.T) *sharedListener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &sharedListener{Listener: listener, arrived: make(chan net.Conn)}
	closed := make(chan struct{})
	t.Cleanup(func() {
		close(closed)
		_ = listener.Close()
	})
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			select {
			case d.arrived <- connection:
			case <-closed:
				_ = connection.Close()
			}
		}
	}()
	return d
}

// processListener is the shared listener for one process.
type processListener struct {
	*sharedListener
	mu      sync.Mutex
	open    []net.Conn
	crashed bool
	closed  chan struct{}
	close   func()
}

func (d *sharedListener) process() *processListener {
	w := &processListener{sharedListener: d, closed: make(chan struct{})}
	w.close = sync.OnceFunc(func() { close(w.closed) })
	return w
}

// Accept implements net.Listener.
func (w *processListener) Accept() (net.Conn, error) {
	select {
	case <-w.closed:
		return nil, net.ErrClosed
	case connection := <-w.arrived:
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.crashed {
			_ = connection.Close()
		}
		w.open = append(w.open, connection)
		return connection, nil
	}
}

// Close implements net.Listener.
func (w *processListener) Close() error {
	w.close()
	return nil
}

// cut ends all connections, as a death does: no answer leaves the process any more.
func (w *processListener) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crashed = true
	for _, connection := range w.open {
		_ = connection.Close()
	}
}

// crashEnv is a namespace whose service crashes, and is started again.
type crashEnv struct {
	*cluster
	shared *sharedListener
	// stored is what all processes share.
	stored *store.Store
	// downloads counts how often a machine got the image of its system.
	downloads atomic.Int64
	authority *token.Authority
	// current is the injector of the process that was started last, and inCluster counts the crashes at its writes to the cluster of throughInjector.
	current   atomic.Pointer[faultinject.Injector]
	inCluster atomic.Int64
}

func newCrashEnv(t *testing.T, changes ...func(*Options)) *crashEnv {
	t.Helper()
	w := &crashEnv{shared: newSharedListener(t)}
	w.cluster = unserved(t, append(changes, withCountedSystem(t, &w.downloads))...)
	w.base = "http://" + w.shared.Addr().String()
	w.options.BaseURL = w.base
	var err error
	w.stored, err = store.Open(t.Context(), w.options.Database)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			w.say()
		}
		assert.NoError(t, w.stored.Close())
	})
	key, err := token.Key(w.options.TokenKey)
	require.NoError(t, err)
	w.authority, err = token.New(token.Options{Key: key, Generations: service.New(w.stored, service.Options{})})
	require.NoError(t, err)

	return w
}

// say logs what the service knows of its hosts and clusters, and what it told of them.
func (w *crashEnv) say() {
	w.Helper()
	var lines strings.Builder
	err := w.stored.View(context.WithoutCancel(w.Context()), func(ctx context.Context, r transaction.Reader) error {
		all := domain.Scope{Principal: domain.Kubernetes}
		hosts, err := r.Hosts(ctx, all, domain.HostFilter{})
		if err != nil {
			return err
		}
		for _, h := range hosts.Items {
			fmt.Fprintf(&lines, "host %s in cluster %q: %s, %s: %q\n", h.HostID, h.ClusterID, h.State, h.Progress.Stage, h.StateInfo)
		}
		clusters, err := r.Clusters(ctx, all, domain.ClusterFilter{})
		if err != nil {
			return err
		}
		for _, c := range clusters.Items {
			fmt.Fprintf(&lines, "cluster %s %s: %s: %q\n", c.ID, c.Name, c.Status, c.StatusInfo)
		}
		events, err := r.Events(ctx, domain.EventFilter{Page: domain.Page{Limit: 5000}})
		for _, e := range events.Items {
			fmt.Fprintf(&lines, "%s %d × %s\n", e.At.Format(time.StampMilli), e.Count, e.Message)
		}
		return err
	})
	w.Log(lines.String(), err)
}

// run runs processes, one after the other, until the test ends. There are no more where next is false.
func (w *crashEnv) run(next func() (f *faultinject.Injector, ok bool)) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for ctx.Err() == nil {
			f, ok := next()
			if !ok {
				return
			}
			w.process(ctx, f)
		}
	}()
	w.Cleanup(func() {
		cancel()
		<-over
	})
}

// replica runs one process until the test ends, or it crashes.
func (w *crashEnv) replica(f *faultinject.Injector) {
	w.run(func() (*faultinject.Injector, bool) {
		defer func() { f = nil }()
		return f, f != nil
	})
}

// process runs the service until it dies or ctx ends.
func (w *crashEnv) process(ctx context.Context, f *faultinject.Injector) {
	way := w.shared.process()
	f.End = way.cut
	w.current.Store(f)
	o := w.options
	o.kube = rest.CopyConfig(o.kube)
	o.kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return f.Transport(next) })
	o.through = f.Store
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-f.Crashed():
			cancel()
		case <-life.Done():
		}
	}()
	_ = RunWith(life, o, zap.NewNop(), way) // how it ends is no matter of a life that goes on
	way.cut()
}

// try asks once. There is no answer where the code is 0.
func (w *crashEnv) try(method, path, body string) (code int, answer map[string]any) {
	request, err := http.NewRequestWithContext(w.Context(), method, w.base+"/api/assisted-install/v2"+path, strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close() //nolint:errcheck // it is only read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil
	}
	_ = json.Unmarshal(content, &answer)
	return response.StatusCode, answer
}

// ask asks until there is an answer, and again where the service says that it could not.
func (w *crashEnv) ask(method, path, body string) (code int, answer map[string]any) {
	w.Helper()
	require.Eventually(w, func() bool {
		code, answer = w.try(method, path, body)
		return code != 0 && code < http.StatusInternalServerError
	}, kubePatience, 50*time.Millisecond, "%s %s", method, path)
	return code, answer
}

// restCluster makes a cluster as a client of REST does that looks whether it is there before trying again.
func (w *crashEnv) restCluster(name string) (id string) {
	w.Helper()
	require.Eventually(w, func() bool {
		err := w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
			clusters, err := r.Clusters(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.ClusterFilter{})
			for _, c := range clusters.Items {
				if c.Name == name {
					id = c.ID
				}
			}
			return err
		})
		if err == nil && id == "" {
			_, _ = w.try(http.MethodPost, "/clusters", fmt.Sprintf(`{"name":%q,"openshift_version":"4.20","pull_secret":"{\"auths\":{}}"}`, name))
		}
		return id != ""
	}, kubePatience, 50*time.Millisecond, "cluster %s", name)
	return id
}

// place brings a host into a cluster, or out of any, as a client of REST does that looks whether it has to.
func (w *crashEnv) place(host, verb, clusterID string) {
	w.Helper()
	in := func() string {
		_, shown := w.ask(http.MethodGet, host, "")
		id, _ := shown["cluster_id"].(string)
		return id
	}
	for in() != clusterID {
		code, answer := w.ask(http.MethodPost, host+"/actions/"+verb, fmt.Sprintf(`{"cluster_id":%q}`, clusterID))
		require.Contains(w, []int{http.StatusOK, http.StatusConflict}, code, answer)
	}
}

// own makes a ClusterDeployment and its AgentClusterInstall in the namespace.
func (w *crashEnv) own(name string) (*hivev1.ClusterDeployment, *hiveextv1.AgentClusterInstall) {
	w.Helper()
	deployment := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: name, BaseDomain: "example.org", PullSecretRef: &hivev1.LocalObjectReference{Name: "pull"},
			Platform: hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
			ClusterInstallRef: &hivev1.ClusterInstallLocalReference{
				Group: hiveextv1.GroupVersion.Group, Version: hiveextv1.GroupVersion.Version, Kind: "AgentClusterInstall", Name: name,
			},
		},
	}
	w.create(deployment)
	install := &hiveextv1.AgentClusterInstall{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: hiveextv1.AgentClusterInstallSpec{
			ClusterDeploymentRef: hivev1.LocalObjectReference{Name: name}, ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1},
			Networking:       hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: "10.0.0.0/8"}}, UserManagedNetworking: new(true)},
			HoldInstallation: true,
		},
	}
	w.create(install)
	return deployment, install
}

// TestADeathAtEveryWriteOfALife kills the service before and after every write to the Kubernetes API and every commit in the life of two machines. One is bound,
// moved, freed and installed by its Agent, the other is bound, moved and freed over REST. Each time another process goes on. No machine may be lost, or be
// there twice, or in two clusters, or installed twice, and what is told is told once.
func TestADeathAtEveryWriteOfALife(t *testing.T) {
	if testing.Short() {
		t.Skip("many lives are not lived in a short run")
	}
	t.Parallel()
	const period = 8
	var lives sync.WaitGroup
	defer lives.Wait()
	for first := 1; first <= period; first++ {
		lives.Go(func() {
			t.Run(fmt.Sprintf("from act %d", first), func(t *testing.T) {
				w := newCrashEnv(t)
				processes := &faultinject.Sequence{First: first, Period: period}
				w.run(func() (*faultinject.Injector, bool) { return processes.Next(), true })
				w.live()
				t.Logf("%d processes died", processes.Crashes())
				assert.Positive(t, processes.Crashes())
			})
		})
	}
}

// rack makes an InfraEnv and tells what its image carries.
func (w *crashEnv) rack() (infraEnv *agentv1.InfraEnv, image string) {
	w.Helper()
	w.pullSecret(w.namespace)
	infraEnv = &agentv1.InfraEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "rack"}, Spec: agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}},
	}
	w.create(infraEnv)
	w.until(infraEnv, "the image is there", func() bool { return agentv1.IsConditionTrue(infraEnv.Status.Conditions, agentv1.ConditionImageCreated) })
	image, err := w.authority.ForImage(string(infraEnv.UID), domain.Generations{ImageGeneration: 1, HostGeneration: 1})
	require.NoError(w, err)
	return infraEnv, image
}

func (w *crashEnv) live() {
	infraEnv, image := w.rack()
	blue, _ := w.own("blue")
	green, install := w.own("green")
	env := string(infraEnv.UID)
	one, two := w.bootWith(env, image, 1, 0), w.bootWith(env, image, 2, 0)
	first, second := w.agent(one), w.agent(two)
	for _, agent := range []*agentv1.Agent{first, second} {
		w.says(agent, agentv1.ConditionValidated, agentv1.ReasonValidationsPassing)
	}
	host := "/infra-envs/" + env + "/hosts/" + two.HostID().String()

	// Settings by an Agent and requests over REST.
	red := w.restCluster("red")
	black := w.restCluster("black")
	change(w.cluster, first, func(a *agentv1.Agent) {
		a.Spec.ClusterDeploymentName, a.Spec.Approved = &agentv1.ClusterReference{Name: blue.Name}, true
	})
	w.place(host, "bind", red)
	w.in(first, blue)
	change(w.cluster, first, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: green.Name} })
	w.place(host, "move", black)
	w.in(first, green)
	w.place(host, "unbind", "")

	change(w.cluster, install, func(i *hiveextv1.AgentClusterInstall) { i.Spec.HoldInstallation = false })
	w.until(install, "the cluster is installed", func() bool {
		return hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted) && install.Spec.ClusterMetadata != nil
	})
	metadata := install.Spec.ClusterMetadata
	code, answer := w.ask(http.MethodPost, "/clusters/"+string(green.UID)+"/actions/complete-installation", `{"is_success":true,"data":{"kubeconfig":"apiVersion: v1"}}`)
	require.Equal(w, http.StatusAccepted, code, answer)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: metadata.AdminKubeconfigSecretRef.Name}}
	w.until(secret, "the kubeconfig is there", func() bool { return string(secret.Data[hivev1.SecretKeyKubeconfig]) == "apiVersion: v1" })
	w.says(first, agentv1.ConditionInstalled, agentv1.ReasonInstallationCompleted)
	w.says(second, agentv1.ConditionBound, agentv1.ReasonUnbound)
	require.NoError(w, w.user.Get(w.Context(), client.ObjectKeyFromObject(install), install))
	assert.Equal(w, metadata, install.Spec.ClusterMetadata, "how to get into the cluster stays as it was said")
	w.consistent(env, map[string]string{one.HostID().String(): string(green.UID), two.HostID().String(): ""}, 4)
	w.requireEventsOnce(env, map[string]string{one.HostID().String(): "one", two.HostID().String(): "two", string(blue.UID): "blue", string(green.UID): "green", red: "red", black: "black"})
	assert.Equal(w, int64(1), w.downloads.Load(), "one installation")
	w.end(infraEnv, install, two, first, second)
}

// in waits until an Agent is in a cluster.
func (w *crashEnv) in(agent *agentv1.Agent, deployment *hivev1.ClusterDeployment) {
	w.Helper()
	w.until(agent, "the Agent is in cluster "+deployment.Name, func() bool {
		return is(agent, agentv1.ConditionBound, agentv1.ReasonBound) && strings.Contains(agent.Status.DebugInfo.EventsURL, "cluster_id="+string(deployment.UID))
	})
}

// consistent says that there are exactly these hosts, each with one Agent and in its cluster.
func (w *crashEnv) consistent(env string, want map[string]string, count int) {
	w.Helper()
	found := map[string]string{}
	members := map[string]int{}
	require.NoError(w, w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
		hosts, err := r.Hosts(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.HostFilter{})
		require.NoError(w, err)
		for _, h := range hosts.Items {
			assert.Equal(w, env, h.InfraEnvID)
			found[h.HostID] = h.ClusterID
			members[h.ClusterID]++
		}
		assert.Equal(w, len(want), hosts.Total)
		clusters, err := r.Clusters(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.ClusterFilter{})
		require.NoError(w, err)
		for _, c := range clusters.Items {
			assert.Equal(w, members[c.ID], c.HostCount, c.Name)
		}
		assert.Equal(w, count, clusters.Total)
		return nil
	}))
	assert.Equal(w, want, found)
	var agents agentv1.AgentList
	require.NoError(w, w.user.List(w.Context(), &agents, client.InNamespace(w.namespace)))
	var names []string
	for i := range agents.Items {
		names = append(names, agents.Items[i].Name)
		require.Len(w, agents.Items[i].OwnerReferences, 1)
		assert.Equal(w, env, string(agents.Items[i].OwnerReferences[0].UID))
	}
	assert.ElementsMatch(w, slices.Collect(maps.Keys(want)), names, "each machine has its Agent")
}

// requireEventsOnce says that what happened is told, and told once.
func (w *crashEnv) requireEventsOnce(env string, names map[string]string) {
	w.Helper()
	want := []string{
		"infra_env_registered   1",
		"cluster_registration_succeeded  blue 1", "cluster_registration_succeeded  green 1", "cluster_registration_succeeded  red 1", "cluster_registration_succeeded  black 1",
		"host_bind_succeeded one blue 1", "host_unbind_succeeded one blue 1", "host_bind_succeeded one green 1",
		"host_bind_succeeded two red 1", "host_unbind_succeeded two red 1", "host_bind_succeeded two black 1", "host_unbind_succeeded two black 1",
	}
	for _, step := range []string{"from insufficient to ready", "from ready to preparing-for-installation", "from preparing-for-installation to installing", "from installing to installed"} {
		want = append(want, "cluster_status_updated  green "+step+" 1")
	}
	for _, stage := range []string{"Starting installation", "Installing", "Writing image to disk", "Rebooting", "Configuring", "Joined", "Done"} {
		want = append(want, "host_install_progress_updated one green "+stage+" 1")
	}
	once := []string{"infra_env_registered", "cluster_registration_succeeded", "host_bind_succeeded", "host_unbind_succeeded", "host_install_progress_updated", "cluster_status_updated"}
	sums := map[string]int64{}
	require.NoError(w, w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
		events, err := r.Events(ctx, domain.EventFilter{Page: domain.Page{Limit: 5000}})
		require.NoError(w, err)
		for _, e := range events.Items {
			if !slices.Contains(once, e.Name) || e.Name == "cluster_status_updated" && names[e.ClusterID] != "green" {
				continue
			}
			line := strings.Join([]string{e.Name, names[e.HostID], names[e.ClusterID]}, " ")
			if _, stage, is := strings.Cut(e.Message, "reached installation stage "); is {
				line += " " + stage
			}
			if _, step, is := strings.Cut(e.Message, "Updated status of the cluster "); is {
				step, _, _ = strings.Cut(step, ":")
				line += " " + step
			}
			sums[line] += e.Count
		}
		return nil
	}))
	var lines []string
	for line, sum := range sums {
		lines = append(lines, fmt.Sprint(line, " ", sum))
	}
	assert.ElementsMatch(w, want, lines, "infra env "+env)
}

// end deletes everything.
func (w *crashEnv) end(infraEnv *agentv1.InfraEnv, install *hiveextv1.AgentClusterInstall, running *machine, agents ...*agentv1.Agent) {
	w.Helper()
	require.NoError(w, w.user.Delete(w.Context(), install))
	w.gone(install)
	w.until(agents[0], "the Agent is free", func() bool { return agents[0].Spec.ClusterDeploymentName == nil })
	running.stop()
	for _, agent := range agents {
		require.NoError(w, w.user.Delete(w.Context(), agent))
		w.gone(agent)
	}
	require.NoError(w, w.user.Delete(w.Context(), infraEnv))
	w.gone(infraEnv)
	w.consistentAtTheEnd()
}

func (w *crashEnv) consistentAtTheEnd() {
	w.Helper()
	require.NoError(w, w.stored.View(w.Context(), func(ctx context.Context, r transaction.Reader) error {
		hosts, err := r.Hosts(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.HostFilter{})
		require.NoError(w, err)
		assert.Empty(w, hosts.Items)
		infraEnvs, err := r.InfraEnvs(ctx, domain.Scope{Principal: domain.Kubernetes}, domain.InfraEnvFilter{})
		require.NoError(w, err)
		assert.Empty(w, infraEnvs.Items)
		return nil
	}))
}

// TestAReplicaThatIsKilledLeavesItsWorkToTheOther kills the one of two replicas that serves custom resources, while it binds hosts.
func TestAReplicaThatIsKilledLeavesItsWorkToTheOther(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	w := newCrashEnv(t, func(o *Options) { o.Database, o.LeaderElect = server.URL, true })
	w.options.LeaderElectionNamespace = w.namespace
	w.create(&rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "leases"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "create", "update"}}},
	})
	w.grant(account, w.namespace, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "leases"})
	leader := faultinject.Never()
	w.replica(leader)
	infraEnv, image := w.rack()
	w.replica(faultinject.Never())
	blue, _ := w.own("blue")
	const machines = 6
	booted := make([]*machine, 0, machines)
	for i := range machines {
		booted = append(booted, w.bootWith(string(infraEnv.UID), image, i, 0))
	}
	agents := make([]*agentv1.Agent, 0, machines)
	for _, m := range booted {
		agents = append(agents, w.agent(m))
	}
	for i, agent := range agents {
		if i == machines/2 {
			w.says(agents[0], agentv1.ConditionBound, agentv1.ReasonBound)
			leader.Crash()
		}
		change(w.cluster, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName = &agentv1.ClusterReference{Name: blue.Name} })
	}
	want := map[string]string{}
	for i, agent := range agents {
		w.says(agent, agentv1.ConditionRequirementsMet, agentv1.ReasonAgentIsNotApproved)
		w.in(agent, blue)
		want[booted[i].HostID().String()] = string(blue.UID)
		require.Eventually(t, func() bool { return booted[i].received(api.StepTypeDomainResolution) > 0 }, kubePatience, 50*time.Millisecond, "the agent is told by the other replica")
	}
	w.consistent(string(infraEnv.UID), want, 1)
}

// unlisted is an API server that goes away before anything is listed.
type unlisted struct {
	next    http.RoundTripper
	refused *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (u unlisted) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Count(r.URL.Path, "/") == 4 { // /apis/group/version/kind
		u.refused.Add(1)
		return nil, errAway
	}
	return u.next.RoundTrip(r)
}

func TestTheServiceEndsWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	c := unserved(t)
	var refused atomic.Int64
	c.options.kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return unlisted{next, &refused} })
	c.start("127.0.0.1:0")
	require.Eventually(t, func() bool { return refused.Load() > 0 }, kubePatience, 20*time.Millisecond)
	c.stop()
}

func TestTheServiceEndsWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	o, err := ParseOptions([]string{"--database=postgres://muster@127.0.0.1:1/none", "--token-key=" + filepath.Join(t.TempDir(), "a.key"), "--metrics-bind-address=0"})
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, RunWith(ctx, o, zap.NewNop(), listener))
}
