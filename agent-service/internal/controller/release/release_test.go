// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/controller/release"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/workload"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// service knows one host that leaves.
type service struct {
	release.Service
	host    domain.Host
	members []domain.Host
	notes   []string
	// failure is what the database answers.
	failure error
}

func (s *service) GetHost(context.Context, domain.Principal, domain.HostKey) (*domain.Host, error) {
	return &s.host, nil
}

func (s *service) ListHosts(_ context.Context, _ domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error) {
	page := s.members[:min(len(s.members), cmp.Or(filter.Limit, 1000))] // as the real one
	return domain.List[domain.Host]{Items: page, Total: len(s.members)}, s.failure
}

func (s *service) LeaveCluster(_ context.Context, _ domain.HostKey, _ time.Time, note string) error {
	s.notes = append(s.notes, note)
	s.host.Release.LeftAt = time.Now()
	return nil
}

// authority is a certificate that nothing was signed by.
const authority = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"

// at is a kubeconfig of a server.
func at(server string) []byte {
	return []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","clusters":[{"name":"c","cluster":{"server":"` + server + `"}}],
	"users":[{"name":"u","user":{"token":"t"}}],"contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}]}`)
}

// unreachable is an address at which nothing listens.
const unreachable = "https://127.0.0.1:1"

// hanging is an API server that accepts requests and answers none. It counts them.
func hanging(t *testing.T) (url string, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL, asked
}

// flooding is an API server that answers more than anybody takes in.
func flooding(t *testing.T) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		for range 64 {
			if _, err := w.Write(bytes.Repeat([]byte{' '}, 1<<20)); err != nil {
				return
			}
		}
		_, _ = w.Write([]byte(`{"kind":"Node","apiVersion":"v1"}`))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// taker is a cluster that takes nodes, and the Secret of its node access.
func taker(server string) (*hivev1.ClusterDeployment, *corev1.Secret) {
	return &hivev1.ClusterDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue", UID: "1"},
			Spec:       hivev1.ClusterDeploymentSpec{ClusterMetadata: &hivev1.ClusterMetadata{NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "access"}}},
		}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "access"}, Type: hivev1.SecretTypeNodeAccess, Data: map[string][]byte{
			hivev1.SecretKeyKubeconfig: at(server), hivev1.NodeAccessKeyServer: []byte(unreachable), hivev1.NodeAccessKeyCA: []byte(authority), hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"),
		}}
}

// builder makes an API server that no controller writes to.
func builder(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, agentv1.AddToScheme, hivev1.AddToScheme} {
		require.NoError(t, add(scheme))
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithIndex(&agentv1.Agent{}, agent.HostIndex, func(client.Object) []string { return nil })
}

func TestAClusterThatIsAwayIsNotWaitedFor(t *testing.T) {
	deployment, secret := taker(unreachable)
	silent, _ := hanging(t)
	_, hangs := taker(silent)
	_, floods := taker(flooding(t))
	for name, c := range map[string]struct {
		objects []client.Object
		members []domain.Host
		waits   time.Duration
		asks    time.Duration // less than the time of a request to a cluster
		says    string
	}{
		"its API does not answer":       {objects: []client.Object{deployment, secret}, waits: release.AnswerTimeout, says: "did not answer for 2m0s: its Node worker-1 may still be there"},
		"its API takes requests only":   {objects: []client.Object{deployment, hangs}, waits: release.AnswerTimeout, asks: 200 * time.Millisecond, says: "did not answer for 2m0s: its Node worker-1 may still be there"},
		"its API answers too much":      {objects: []client.Object{deployment, floods}, waits: release.AnswerTimeout, says: "answered more than agent-service takes in for 2m0s: its Node worker-1 may still be there"},
		"its node access is gone":       {objects: []client.Object{deployment}, waits: release.AnswerTimeout, says: "could not be asked (the Secret team/access, which spec.clusterMetadata.nodeAccessSecretRef names, is not there) for 2m0s: its Node worker-1 may still be there"},
		"it is gone":                    {says: "The cluster is gone"},
		"another has its name by now":   {objects: []client.Object{&hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "blue", UID: "2"}}}, says: "The cluster is gone"},
		"another host is this Node now": {objects: []client.Object{deployment, secret}, members: []domain.Host{{HostKey: domain.HostKey{HostID: "h2"}, Node: domain.Node{Name: "worker-1"}}}, says: "it is host h2 by now"},
		"it takes no nodes any more":    {objects: []client.Object{&hivev1.ClusterDeployment{ObjectMeta: deployment.ObjectMeta}}, says: "no node access any more"},
		"another one of many hosts": {objects: []client.Object{deployment, secret}, says: "it is host h2 by now",
			members: append(make([]domain.Host, 1000), domain.Host{HostKey: domain.HostKey{HostID: "h2"}, Node: domain.Node{Name: "worker-1"}})},
		"a member that is another's Node": {objects: []client.Object{deployment, secret}, members: []domain.Host{{HostKey: domain.HostKey{HostID: "h3"}, Node: domain.Node{Name: "worker-3"}}}, waits: release.AnswerTimeout, says: "did not answer"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := make([]client.Object, 0, len(c.objects))
			for _, o := range c.objects {
				copied, ok := o.DeepCopyObject().(client.Object)
				require.True(t, ok)
				objects = append(objects, copied)
			}
			api := builder(t).WithObjects(objects...).Build()
			clock := testingclock.NewFakePassiveClock(time.Now())
			tokens, err := workload.NewTokens([]byte("key"))
			require.NoError(t, err)
			s := &service{members: c.members, host: domain.Host{
				HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h1"}, State: lifecycle.Reclaiming,
				Release: domain.Release{ClusterID: "1", Cluster: domain.KubeRef{Namespace: "team", Name: "blue"}, NodeName: "worker-1", StartedAt: clock.Now().Add(-time.Hour)},
			}}
			r := release.New(release.Deps{Client: api, Live: api, Service: s, Tokens: tokens, Clock: clock})
			reconcile := func() (ctrl.Result, error) {
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.asks, time.Minute))
				defer cancel()
				return r.Reconcile(ctx, s.host.HostKey)
			}
			for waited := time.Duration(0); waited < c.waits; waited += 30 * time.Second {
				result, err := reconcile()
				require.NoError(t, err)
				assert.Positive(t, result.RequeueAfter, "it is tried again after %s", waited)
				assert.Empty(t, s.notes)
				clock.SetTime(clock.Now().Add(30 * time.Second))
			}
			for range 2 {
				result, err := reconcile()
				require.NoError(t, err)
				assert.Zero(t, result)
			}
			require.Len(t, s.notes, 1)
			assert.Contains(t, s.notes[0], c.says)
		})
	}
}

// While the management cluster or the database is away, nothing is known of the cluster: the machine keeps its Node until it has been asked.
func TestAManagementClusterThatIsAwayGivesUpNoNode(t *testing.T) {
	deployment, _ := taker(unreachable)
	away := errors.New("connection refused")
	var secrets error
	api := builder(t).WithObjects(deployment).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, isSecret := object.(*corev1.Secret); isSecret && secrets != nil {
				return secrets
			}
			return c.Get(ctx, key, object, options...)
		}}).Build()
	clock := testingclock.NewFakePassiveClock(time.Now())
	tokens, err := workload.NewTokens([]byte("key"))
	require.NoError(t, err)
	s := &service{host: domain.Host{
		HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h1"}, State: lifecycle.Reclaiming,
		Release: domain.Release{ClusterID: "1", Cluster: domain.KubeRef{Namespace: "team", Name: "blue"}, NodeName: "worker-1", StartedAt: clock.Now()},
	}}
	r := release.New(release.Deps{Client: api, Live: api, Service: s, Tokens: tokens, Clock: clock})
	for _, fault := range []struct{ members, secrets error }{{away, nil}, {nil, away}} {
		s.failure, secrets = fault.members, fault.secrets
		for range 4 {
			_, err := r.Reconcile(t.Context(), s.host.HostKey)
			require.ErrorIs(t, err, away)
			clock.SetTime(clock.Now().Add(release.AnswerTimeout))
		}
	}
	s.failure, secrets = nil, nil
	result, err := r.Reconcile(t.Context(), s.host.HostKey)
	require.NoError(t, err)
	assert.Positive(t, result.RequeueAfter, "the wait for the cluster begins now")
	assert.Empty(t, s.notes)
}

// rack knows many hosts that leave the same cluster.
type rack struct {
	release.Service
	host domain.Host
	mu   sync.Mutex
	left map[domain.HostKey]string
}

func (s *rack) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.host
	h.HostKey = key
	if _, left := s.left[key]; left {
		h.Release.LeftAt = time.Now()
	}
	return &h, nil
}

func (s *rack) ListHosts(context.Context, domain.Principal, domain.HostFilter) (domain.List[domain.Host], error) {
	return domain.List[domain.Host]{}, nil
}

func (s *rack) LeaveCluster(_ context.Context, key domain.HostKey, _ time.Time, note string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[key] = note
	return nil
}

// A cluster that accepts requests and answers none occupies one worker, however many hosts leave it: the hosts of other clusters do not wait for it. All of its hosts are free in time.
func TestAClusterThatHangsIsAskedByOneHostAtATime(t *testing.T) {
	url, asked := hanging(t)
	deployment, secret := taker(url)
	api := builder(t).WithObjects(deployment, secret).Build()
	clock := testingclock.NewFakePassiveClock(time.Now())
	tokens, err := workload.NewTokens([]byte("key"))
	require.NoError(t, err)
	s := &rack{left: map[domain.HostKey]string{}, host: domain.Host{State: lifecycle.Reclaiming, Release: domain.Release{
		ClusterID: "1", Cluster: domain.KubeRef{Namespace: "team", Name: "blue"}, NodeName: "worker-1", StartedAt: clock.Now().Add(-time.Hour),
	}}}
	r := release.New(release.Deps{Client: api, Live: api, Service: s, Tokens: tokens, Clock: clock})
	key := func(n int) domain.HostKey { return domain.HostKey{InfraEnvID: "e", HostID: strconv.Itoa(n)} }
	brief := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		_, err := r.Reconcile(ctx, key(n))
		require.NoError(t, err)
	}
	const hosts = 12
	brief(0)
	require.Equal(t, int64(1), asked.Load())

	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan error, 1)
	go func() {
		_, err := r.Reconcile(ctx, key(1))
		waits <- err
	}()
	require.Eventually(t, func() bool { return asked.Load() == 2 }, time.Minute, time.Millisecond)
	for n := range hosts {
		if n == 1 {
			continue
		}
		result, err := r.Reconcile(t.Context(), key(n))
		require.NoError(t, err)
		assert.Positive(t, result.RequeueAfter)
	}
	assert.Equal(t, int64(2), asked.Load(), "one of them waits for an answer")
	cancel()
	require.NoError(t, <-waits)
	brief(2)
	assert.Equal(t, int64(3), asked.Load(), "the next one may ask")

	clock.SetTime(clock.Now().Add(release.AnswerTimeout))
	for n := range hosts {
		brief(n)
		assert.Contains(t, s.left[key(n)], "did not answer for 2m0s")
	}
}

// crowded is an API server with the Node worker-1, on which a pod is that a PodDisruptionBudget keeps. It counts what is asked of the pod, and how often the Node is deleted.
func crowded(t *testing.T) (url string, evictions, deletions *atomic.Int64) {
	t.Helper()
	evictions, deletions = &atomic.Int64{}, &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"kind":"Status","apiVersion":"v1","status":"Success"}`
		switch resource := path.Base(r.URL.Path); {
		case resource == "worker-1" && r.Method == http.MethodDelete:
			deletions.Add(1)
		case resource == "worker-1":
			answer = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker-1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`
		case resource == "eviction":
			evictions.Add(1)
			w.WriteHeader(http.StatusTooManyRequests)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`
		case resource == "pods":
			answer = `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"namespace":"shop","name":"database"},"status":{"phase":"Running"}}]}`
		case resource == "certificatesigningrequests":
			answer = `{"kind":"CertificateSigningRequestList","apiVersion":"certificates.k8s.io/v1","items":[]}`
		}
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return server.URL, evictions, deletions
}

// Pods have their time to leave also where the service was away when, or since, the release began.
func TestPodsHaveTheirTimeToLeaveWhereTheServiceWasAway(t *testing.T) {
	url, evictions, deletions := crowded(t)
	deployment, secret := taker(url)
	api := builder(t).WithObjects(deployment, secret).Build()
	clock := testingclock.NewFakePassiveClock(time.Now())
	tokens, err := workload.NewTokens([]byte("key"))
	require.NoError(t, err)
	s := &service{host: domain.Host{
		HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h1"}, State: lifecycle.Reclaiming,
		Release: domain.Release{ClusterID: "1", Cluster: domain.KubeRef{Namespace: "team", Name: "blue"}, NodeName: "worker-1", StartedAt: clock.Now().Add(-time.Hour)},
	}}
	r := release.New(release.Deps{Client: api, Live: api, Service: s, Tokens: tokens, Clock: clock})
	for asked := range int64(2) {
		result, err := r.Reconcile(t.Context(), s.host.HostKey)
		require.NoError(t, err)
		assert.Positive(t, result.RequeueAfter)
		assert.Equal(t, asked+1, evictions.Load())
		assert.Zero(t, deletions.Load(), "the budget of the pod is respected")
		clock.SetTime(clock.Now().Add(release.DrainTimeout - time.Second))
	}
	result, err := r.Reconcile(t.Context(), s.host.HostKey)
	require.NoError(t, err)
	assert.Zero(t, result)
	assert.Equal(t, int64(1), deletions.Load())
	require.Len(t, s.notes, 1)
	assert.Contains(t, s.notes[0], "shop/database")
}
