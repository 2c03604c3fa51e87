// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/workload"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
)

// service answers with pages, as the real one does.
type service struct {
	Service
	hosts []domain.Host
	// plane is the control plane that a host runs, with the kubeconfig of its node manager.
	plane       *domain.ControlPlane
	nodeManager string
}

func (s *service) ControlPlane(context.Context, domain.Principal, string) (*domain.ControlPlane, string, error) {
	return s.plane, s.nodeManager, nil
}

func (s *service) ListHosts(_ context.Context, _ domain.Principal, filter domain.HostFilter) (domain.List[domain.Host], error) {
	page := s.hosts[min(filter.Offset, len(s.hosts)):]
	return domain.List[domain.Host]{Items: page[:min(len(page), cmp.Or(filter.Limit, 1000))], Total: len(s.hosts)}, nil
}

// A host that the Watcher is not told of gets no certificate.
func TestAllHostsOfALargeClusterAreLookedAfter(t *testing.T) {
	const number = 1500
	known := &service{}
	for i := range number {
		h := domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: fmt.Sprintf("host-%d", i)}, ClusterID: "c", State: lifecycle.AddedToExistingCluster}
		known.hosts = append(known.hosts, h)
	}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	r := New(t.Context(), Deps{Service: known, Tokens: tokens})
	machines, hosts, err := r.machines(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "c"}})
	require.NoError(t, err)
	assert.Equal(t, []int{number, number}, []int{len(machines), len(hosts)})
}

// install makes a control plane as an installation does, at an address of its own. It returns what is sent to when the control plane is asked.
func (s *service) install(t *testing.T) <-chan struct{} {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	asked := make(chan struct{}, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			_ = connection.Close()
			select {
			case asked <- struct{}{}:
			default:
			}
		}
	}()
	s.plane = &domain.ControlPlane{Host: s.hosts[0].HostKey, Server: "https://" + listener.Addr().String(), Version: "v1.37.2",
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}}
	ca, secrets, err := controlplane.New(time.Now(), "blue", s.plane.Server)
	require.NoError(t, err)
	s.plane.CA, s.nodeManager = ca, secrets.NodeManager
	return asked
}

// A user who cancels an installation and resets the cluster has another control plane a moment later.
func TestTheControlPlaneOfARepeatedInstallationIsWatched(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, hivev1.AddToScheme(scheme))
	cluster := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue", UID: "c"}}
	known := &service{hosts: []domain.Host{{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c", State: lifecycle.Installing}}}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster).Build()
	r := New(t.Context(), Deps{Client: api, Live: api, Service: known, Tokens: tokens})
	for n := range 2 {
		asked := known.install(t)
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		require.NoError(t, err)
		select {
		case <-asked:
		case <-time.After(time.Minute):
			require.Fail(t, "the control plane is not asked", "installation %d", n+1)
		}
	}
}

// A cluster whose administrator fills it costs the others nothing, and its ClusterDeployment says why its machines do not become nodes.
func TestAClusterThatIsNotWatchedSaysSo(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, hivev1.AddToScheme(scheme))
	require.NoError(t, corev1.AddToScheme(scheme))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			w.WriteHeader(http.StatusUnprocessableEntity) // it streams no lists
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"metadata":{"resourceVersion":"1"},"items":[{}%s]}`, strings.Repeat(",{}", 1<<18))
	}))
	t.Cleanup(server.Close)
	cluster := &hivev1.ClusterDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "blue", UID: "c"},
		Spec:       hivev1.ClusterDeploymentSpec{ClusterMetadata: &hivev1.ClusterMetadata{NodeAccessSecretRef: &hivev1.LocalObjectReference{Name: "access"}}},
	}
	access := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "access"}, Type: hivev1.SecretTypeNodeAccess, Data: map[string][]byte{
		hivev1.NodeAccessKeyServer: []byte("https://192.0.2.1:6443"), hivev1.NodeAccessKeyKubernetesVersion: []byte("v1.37.2"),
		hivev1.NodeAccessKeyCA: []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"),
		hivev1.SecretKeyKubeconfig: []byte(`{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
			"users":[{"name":"u","user":{"token":"t"}}],"clusters":[{"name":"c","cluster":{"server":"` + server.URL + `"}}]}`),
	}}
	known := &service{hosts: []domain.Host{{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c", State: lifecycle.AddedToExistingCluster}}}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, access).Build()
	recorder := events.NewFakeRecorder(100)
	r := New(t.Context(), Deps{Client: api, Live: api, Service: known, Tokens: tokens, Recorder: recorder})
	said := ""
	require.Eventually(t, func() bool {
		_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(cluster)})
		require.NoError(t, err)
		select {
		case said = <-recorder.Events:
			return true
		default:
			return false
		}
	}, time.Minute, 50*time.Millisecond)
	assert.Contains(t, said, "Warning ClusterNotWatched The nodes of the cluster are not looked after: ")
	assert.Contains(t, said, "has more than 16 MiB or 262144 fields")
	_, seen := r.NodeReady(client.ObjectKeyFromObject(cluster), "h")
	assert.False(t, seen)
}

// A disk that was written has a token that must be good whenever the machine boots from it.
func TestTokensAreMadeForMachinesThatAreBeingInstalled(t *testing.T) {
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	known := &service{}
	wanted := map[lifecycle.State]bool{
		lifecycle.Installing: true, lifecycle.InstallingInProgress: true, lifecycle.InstallingPendingUserAction: true, lifecycle.Installed: false, lifecycle.AddedToExistingCluster: false,
	}
	for state := range wanted {
		known.hosts = append(known.hosts, domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: string(state)}, ClusterID: "c", State: state, StateUpdatedAt: begin})
	}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	r := New(t.Context(), Deps{Service: known, Tokens: tokens})
	machines, hosts, err := r.machines(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "c"}})
	require.NoError(t, err)
	r.ofPlane(machines, hosts, nil, begin)
	for i, machine := range machines {
		assert.Equal(t, wanted[hosts[i].State], machine.MakeToken != nil, "%s", hosts[i].State)
		if machine.MakeToken != nil {
			assert.Equal(t, begin, machine.TokenMadeAt, "it was made with the first-boot data")
		}
	}
}

// GetHost implements Service.
func (s *service) GetHost(_ context.Context, _ domain.Principal, key domain.HostKey) (*domain.Host, error) {
	for i := range s.hosts {
		if s.hosts[i].HostKey == key {
			return &s.hosts[i], nil
		}
	}
	return nil, domain.RefuseUnknown("Host", key.HostID)
}

// The token of an installation ends with it: a machine that was a node gets none because it booted the discovery image, and one that was released gets none again.
func TestNoTokenIsMadeOfAnInstallationThatEnded(t *testing.T) {
	host := domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c", State: lifecycle.InstallingPendingUserAction}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	deployment := &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "c"}}
	known := &service{hosts: []domain.Host{host}}
	r := New(t.Context(), Deps{Service: known, Tokens: tokens})
	seen := func() workload.Machine {
		machines, hosts, err := r.machines(t.Context(), deployment)
		require.NoError(t, err)
		r.ofPlane(machines, hosts, nil, time.Now())
		return machines[0]
	}
	known.hosts[0].Node = domain.Node{Name: "h", WasReady: true}
	assert.Nil(t, seen().MakeToken, "its kubelet has a certificate")
	known.hosts[0].Node = domain.Node{Name: "h"}
	for why, change := range map[string]func(*domain.Host){
		"":                        func(*domain.Host) {},
		"it was released":         func(h *domain.Host) { h.Leave(time.Now()) },
		"its tokens were revoked": func(h *domain.Host) { h.Stamps.Binding = "other" },
		"it was deleted":          func(h *domain.Host) { h.HostID = "other" },
	} {
		known.hosts[0] = host
		machine, cluster := seen(), kubernetesfake.NewClientset()
		change(&known.hosts[0])
		require.NoError(t, machine.MakeToken(t.Context(), cluster))
		assert.Equal(t, why == "", len(cluster.Actions()) > 0, why)
	}
}

// A node that asks for a certificate gets a token, for as long as it asks.
func TestATokenIsMadeForANodeThatLostItsCertificate(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	lost := domain.Node{Name: "h", Seen: true, Rejoin: domain.Rejoin{Stamp: "s", AskedAt: now.Add(-time.Minute)}}
	tokens, err := workload.NewTokens([]byte("secret"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*domain.Node)
		want   bool
	}{
		"it asks":                    {change: func(*domain.Node) {}, want: true},
		"its Node is Ready":          {change: func(n *domain.Node) { n.Ready = true }},
		"its Node was deleted":       {change: func(n *domain.Node) { n.Seen = false }},
		"it has a certificate again": {change: func(n *domain.Node) { n.Rejoin.AskedAt = time.Time{} }},
		"it is off since yesterday":  {change: func(n *domain.Node) { n.Rejoin.AskedAt = now.Add(-24 * time.Hour) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := domain.Host{HostKey: domain.HostKey{InfraEnvID: "e", HostID: "h"}, ClusterID: "c", State: lifecycle.AddedToExistingCluster, Node: lost}
			c.change(&h.Node)
			r := New(t.Context(), Deps{Service: &service{hosts: []domain.Host{h}}, Tokens: tokens})
			machines, hosts, err := r.machines(t.Context(), &hivev1.ClusterDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "c"}})
			require.NoError(t, err)
			r.ofPlane(machines, hosts, nil, now)
			assert.Equal(t, c.want, machines[0].MakeToken != nil)
			assert.True(t, machines[0].TokenMadeAt.IsZero(), "it is made at once")
			assert.True(t, machines[0].Rejoins)
		})
	}
}
