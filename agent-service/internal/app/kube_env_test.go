// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agent"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	kubeletfiles "github.com/muster-io/muster/agent-service/internal/kubelet"
	"github.com/muster-io/muster/agent-service/internal/query"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	"github.com/muster-io/muster/apis/controlplanetest"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
	"github.com/muster-io/muster/apis/porttest"
)

// TestMain makes this program the one that answers queries of AgentClassifications, too.
func TestMain(m *testing.M) {
	if !query.Serve() {
		os.Exit(m.Run())
	}
}

// kubePatience is how long anything may take on a busy machine before it counts as stuck.
const kubePatience = 4 * time.Minute

// account is the service's, with the rights that deploy/base/agent-service gives it.
const account = "system:serviceaccount:muster-agent-service:agent-service"

// cluster is a namespace of the control plane, a user of it, and a service that serves it.
type cluster struct {
	*testing.T
	user      client.Client
	namespace string
	// base is the address of the service.
	base    string
	options Options
	scope   scope
	// changes counts the requests of the service that change something, and writes those in the namespace. away makes its API server unreachable.
	changes, writes atomic.Int64
	away            atomic.Bool
	// reside makes the systems that machines install ask for instructions.
	reside bool
	// bootTime is how long machines take to restart.
	bootTime time.Duration
	// powerOn names the moment at which machines are switched on that boot from now on.
	powerOn string
	// lossy lets every second change be done, and its answer be lost.
	lossy atomic.Bool
	// before is called with each request of the service to the API server; log is the service's, nil for none.
	before func(*http.Request)
	log    *zap.Logger
	stop   func()
}

func newCluster(t *testing.T, change ...func(*Options)) *cluster {
	t.Helper()
	c := unserved(t, change...)
	c.start("127.0.0.1:" + porttest.Free(t))
	return c
}

// unserved is a namespace and a user of it, without a service.
func unserved(t *testing.T, change ...func(*Options)) *cluster {
	t.Helper()
	config := controlplanetest.Start(t)
	quiet()
	scheme, err := newScheme()
	require.NoError(t, err)
	user, err := client.New(config, client.Options{Scheme: scheme})
	require.NoError(t, err)
	c := &cluster{T: t, user: user}
	c.permit()
	c.namespace = c.newNamespace()
	dir := t.TempDir()
	o, err := ParseOptions([]string{
		"--database=" + filepath.Join(dir, "a.db"), "--token-key=" + filepath.Join(dir, "a.key"), "--metrics-bind-address=0", "--kube-api",
		"--live-images=" + imagetest.List(t), "--live-image-cache=" + filepath.Join(dir, "images"),
	})
	require.NoError(t, err)
	for _, one := range change {
		one(&o)
	}
	o.kube = rest.CopyConfig(config)
	o.kube.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:serviceaccounts", "system:authenticated"}}
	o.kube.Wrap(func(next http.RoundTripper) http.RoundTripper { return watched{c, c.scope.transport(next)} })
	c.options = o
	return c
}

var quiet = sync.OnceFunc(func() { ctrl.SetLogger(logr.Discard()) })

// watched counts what the service writes.
type watched struct {
	*cluster
	next http.RoundTripper
}

var (
	errAway = errors.New("the API server is away")
	errLost = errors.New("the answer was lost")
)

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.before != nil {
		w.before(r)
	}
	if w.away.Load() {
		return nil, errAway
	}
	if r.Method == http.MethodGet {
		return w.next.RoundTrip(r)
	}
	if strings.Contains(r.URL.Path, "/namespaces/"+w.namespace+"/") {
		w.writes.Add(1)
	}
	lost := w.changes.Add(1)%2 == 0 && w.lossy.Load()
	answer, err := w.next.RoundTrip(r)
	if lost && err == nil {
		return nil, errors.Join(errLost, answer.Body.Close())
	}
	return answer, err
}

// start runs the service until the test ends or stop is called.
func (c *cluster) start(address string) {
	c.Helper()
	listener, err := (&net.ListenConfig{}).Listen(c.Context(), "tcp", address)
	require.NoError(c, err)
	if c.base == "" { // further replicas, and later lives, are reached as the first
		c.options.BaseURL = "http://" + listener.Addr().String()
	}
	c.base = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- RunWith(ctx, c.options, cmp.Or(c.log, zap.NewNop()), listener) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(c, <-done)
	})
	c.Cleanup(c.stop)
}

// permit gives the account the rights that are deployed, and puts in force what is checked of what users do.
func (c *cluster) permit() {
	c.Helper()
	c.install("role.yaml")
	c.install("admission.yaml")
	require.NoError(c, client.IgnoreAlreadyExists(c.user.Create(c.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-service"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "agent-service"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}},
	})))
}

// install creates the objects without a namespace of a file of deploy/base/agent-service.
func (c *cluster) install(name string) {
	c.Helper()
	file, err := os.Open(filepath.Join("..", "..", "..", "deploy", "base", "agent-service", name))
	require.NoError(c, err)
	defer file.Close() //nolint:errcheck // it is only read
	decoder := yaml.NewYAMLOrJSONDecoder(file, 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(c, err)
		}
		if object.Object != nil && object.GetKind() != "Role" {
			require.NoError(c, client.IgnoreAlreadyExists(c.user.Create(c.Context(), object)))
		}
	}
}

func (c *cluster) newNamespace() string {
	c.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "agents-"}}
	require.NoError(c, c.user.Create(c.Context(), namespace))
	c.scope.add(namespace.Name)
	return namespace.Name
}

func (c *cluster) create(object client.Object) {
	c.Helper()
	require.NoError(c, c.user.Create(c.Context(), object))
}

func (c *cluster) pullSecret(namespace string) {
	c.Helper()
	c.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pull"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)},
	})
}

// infraEnv makes an InfraEnv and waits for its image.
func (c *cluster) infraEnv(name string, change ...func(*agentv1.InfraEnvSpec)) *agentv1.InfraEnv {
	c.Helper()
	if apierrors.IsNotFound(c.user.Get(c.Context(), client.ObjectKey{Namespace: c.namespace, Name: "pull"}, &corev1.Secret{})) {
		c.pullSecret(c.namespace)
	}
	infraEnv := &agentv1.InfraEnv{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name},
		Spec:       agentv1.InfraEnvSpec{PullSecretRef: agentv1.SecretReference{Name: "pull"}, AgentLabels: map[string]string{"rack": name}},
	}
	for _, one := range change {
		one(&infraEnv.Spec)
	}
	c.create(infraEnv)
	c.until(infraEnv, "the image is there", func() bool { return agentv1.IsConditionTrue(infraEnv.Status.Conditions, agentv1.ConditionImageCreated) })
	return infraEnv
}

// deployment makes a ClusterDeployment and its AgentClusterInstall in a namespace of their own.
func (c *cluster) deployment(change ...func(*hiveextv1.AgentClusterInstallSpec)) (*hivev1.ClusterDeployment, *hiveextv1.AgentClusterInstall) {
	c.Helper()
	namespace := c.newNamespace()
	c.pullSecret(namespace)
	deployment := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"},
		Spec: hivev1.ClusterDeploymentSpec{
			ClusterName: "blue", BaseDomain: "example.org", PullSecretRef: &hivev1.LocalObjectReference{Name: "pull"},
			Platform: hivev1.Platform{AgentBareMetal: &hivev1.AgentBareMetalPlatform{}},
			ClusterInstallRef: &hivev1.ClusterInstallLocalReference{
				Group: hiveextv1.GroupVersion.Group, Version: hiveextv1.GroupVersion.Version, Kind: "AgentClusterInstall", Name: "blue",
			},
		},
	}
	c.create(deployment)
	install := &hiveextv1.AgentClusterInstall{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "blue"},
		Spec: hiveextv1.AgentClusterInstallSpec{
			ClusterDeploymentRef: hivev1.LocalObjectReference{Name: "blue"}, ProvisionRequirements: hiveextv1.ProvisionRequirements{ControlPlaneAgents: 1},
			Networking:       hiveextv1.Networking{MachineNetwork: []hiveextv1.MachineNetworkEntry{{CIDR: "10.0.0.0/8"}}, UserManagedNetworking: new(true)},
			HoldInstallation: true,
		},
	}
	for _, one := range change {
		one(&install.Spec)
	}
	c.create(install)
	return deployment, install
}

// until reads an object again and again until it is as it should be.
func (c *cluster) until(object client.Object, what string, ok func() bool) {
	c.Helper()
	err := wait.PollUntilContextTimeout(c.Context(), 100*time.Millisecond, kubePatience, true, func(ctx context.Context) (bool, error) {
		return c.user.Get(ctx, client.ObjectKeyFromObject(object), object) == nil && ok(), nil
	})
	if err != nil {
		object.SetManagedFields(nil)
		content, _ := json.MarshalIndent(object, "", " ")
		c.Fatalf("waiting until %s: %v\n%s", what, err, content)
	}
}

func (c *cluster) gone(object client.Object) {
	c.Helper()
	require.Eventually(c, func() bool {
		return apierrors.IsNotFound(c.user.Get(c.Context(), client.ObjectKeyFromObject(object), object))
	}, kubePatience, 50*time.Millisecond, "%s is still there", object.GetName())
}

// change patches an object as a user does.
func change[O client.Object](c *cluster, object O, do func(O)) {
	c.Helper()
	before, ok := object.DeepCopyObject().(client.Object)
	require.True(c, ok)
	do(object)
	require.NoError(c, c.user.Patch(c.Context(), object, client.MergeFrom(before)))
}

func is(agent *agentv1.Agent, kind, reason string) bool {
	found := agentv1.FindCondition(agent.Status.Conditions, kind)
	return found != nil && found.Reason == reason
}

// says waits for the reason of a condition of an Agent.
func (c *cluster) says(agent *agentv1.Agent, kind, reason string) {
	c.Helper()
	c.until(agent, kind+" is "+reason, func() bool { return is(agent, kind, reason) })
}

// token is what an InfraEnv's image carries.
func (c *cluster) token(infraEnv *agentv1.InfraEnv) string {
	c.Helper()
	_, ignition := call(c.T, http.MethodGet, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID)+"/downloads/files?file_name=discovery.ign", "")
	storage, ok := ignition["storage"].(map[string]any)
	require.True(c, ok, ignition)
	files, ok := storage["files"].([]any)
	require.True(c, ok)
	for _, file := range files {
		entry, ok := file.(map[string]any)
		require.True(c, ok)
		if entry["path"] == "/etc/muster/token" {
			source, ok := entry["contents"].(map[string]any)["source"].(string)
			require.True(c, ok)
			content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(source, "data:;base64,"))
			require.NoError(c, err)
			return string(content)
		}
	}
	c.Fatal("the image has no token")
	return ""
}

// machine is a generated machine and what its agent was told.
type machine struct {
	*agent.Generated
	mu    sync.Mutex
	polls int
	// steps are the ids of the steps that it got, by type.
	steps map[api.StepType]map[string]bool
	// images is the answer about images before an installation, nil for the machine's own.
	images func(ctx context.Context) (any, error)
	// files are those of its installed system; nil for one that says nothing of its kubelet.
	files atomic.Pointer[kubeletfiles.Files]
	// addresses are those of its first card, with prefix length; none for the machine's own.
	addresses []string
	stop      func()

	installed installed
}

// Write implements agent.Machine.
func (m *machine) Write(ctx context.Context, job diskimage.Job, progress func(percent int)) error {
	m.installed.keep(job)
	return m.Generated.Write(ctx, job, progress)
}

// Do implements agent.Machine.
func (m *machine) Do(ctx context.Context, step api.Step) (any, error) {
	m.mu.Lock()
	images := m.images
	m.mu.Unlock()
	if step.StepType == api.StepTypeContainerImageAvailability && images != nil {
		return images(ctx)
	}
	if step.StepType == api.StepTypeInventory && len(m.addresses) > 0 {
		inventory := m.Inventory()
		inventory.Interfaces[0].IPV4Addresses = m.addresses
		return inventory, nil
	}
	reply, err := m.Generated.Do(ctx, step)
	if step.StepType == api.StepTypeWipeDisk && err == nil {
		m.installed.erase()
	}
	return reply, err
}

// answers changes the answer about images.
func (m *machine) answers(images func(ctx context.Context) (any, error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images = images
}

// received is how many different steps of a type the machine got. A service may repeat one until it has the reply.
func (m *machine) received(step api.StepType) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.steps[step])
}

func (m *machine) polled() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.polls
}

// boot runs a generated machine with the image of an InfraEnv until the test ends, or stop is called. An interval of zero holds polls.
func (c *cluster) boot(infraEnv *agentv1.InfraEnv, number int, interval time.Duration, change ...func(*machine)) *machine {
	c.Helper()
	return c.bootWith(string(infraEnv.UID), c.token(infraEnv), number, interval, change...)
}

// bootWith is boot with what the image of an InfraEnv carries.
func (c *cluster) bootWith(infraEnvID, token string, number int, interval time.Duration, change ...func(*machine)) *machine {
	c.Helper()
	transport := &http.Transport{}
	http := &http.Client{Transport: transport}
	connection, err := agent.NewConnection(c.base, uuid.MustParse(infraEnvID), token, http)
	require.NoError(c, err)
	m := &machine{Generated: &agent.Generated{Seed: c.namespace, Number: number, Client: http, Connection: connection, PowerOn: c.powerOn, BootTime: c.bootTime, Reside: c.reside}, steps: map[api.StepType]map[string]bool{}}
	for _, one := range change {
		one(m)
	}
	onInstructions := func(_ uuid.UUID, steps []api.Step, _ time.Duration) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.polls++
		for _, step := range steps {
			if m.steps[step.StepType] == nil {
				m.steps[step.StepType] = map[string]bool{}
			}
			m.steps[step.StepType][step.StepID] = true
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- agent.New(agent.Options{Connection: connection, Machine: m, Version: "test", Interval: interval, OnInstructions: onInstructions, Log: zap.NewNop()}).Run(ctx)
	}()
	m.stop = sync.OnceFunc(func() {
		cancel()
		require.ErrorIs(c, cmp.Or(<-done, context.Canceled), context.Canceled)
		transport.CloseIdleConnections()
	})
	c.Cleanup(m.stop)
	return m
}

// worker is a hostname that no other test gives to a machine: the clusters that nodes join are one.
func worker(namespace string) string { return "worker-" + namespace }

// agent waits for the Agent of a machine.
func (c *cluster) agent(m *machine) *agentv1.Agent {
	c.Helper()
	found := &agentv1.Agent{ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: m.HostID().String()}}
	c.until(found, "the Agent has conditions", func() bool { return len(found.Status.Conditions) > 0 })
	return found
}

// system serves a small image of an operating system, and counts who gets it.
func system(t *testing.T, downloads *atomic.Int64) agentproto.OSImage {
	t.Helper()
	content := make([]byte, 64<<10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		downloads.Add(1)
		_, _ = w.Write(content)
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(content)
	return agentproto.OSImage{Version: "4.20", CPUArchitecture: "x86_64", URL: server.URL + "/os.img", SHA256: hex.EncodeToString(sum[:])}
}

// withSystem configures an image that is installed.
func withSystem(t *testing.T) func(*Options) {
	t.Helper()
	return withCountedSystem(t, &atomic.Int64{})
}

func withCountedSystem(t *testing.T, downloads *atomic.Int64) func(*Options) {
	t.Helper()
	return withImage(t, system(t, downloads))
}

func withImage(t *testing.T, image agentproto.OSImage) func(*Options) {
	t.Helper()
	list, err := json.Marshal([]agentproto.OSImage{image})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "os.json")
	require.NoError(t, os.WriteFile(path, list, 0o600))
	return func(o *Options) { o.OSImages = path }
}
