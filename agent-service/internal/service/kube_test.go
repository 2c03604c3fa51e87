// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
)

func TestADesiredHostIsAppliedWholeOrNotAtAll(t *testing.T) {
	w := newTestEnv(t)
	kube := func() *domain.Cluster {
		c, err := w.CreateCluster(t.Context(), admin, domain.NewCluster{
			ID: uuid.NewString(), Name: "c", Kube: domain.KubeRef{Namespace: "n", Name: "c"},
			ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1, MachineNetworks: []string{"192.0.2.0/24"}},
		})
		require.NoError(t, err)
		return c
	}
	first, second := kube(), kube()
	key := w.register(w.infraEnv(alice), "n1")
	grant := func(clusterID string, settings domain.HostSettings) (*domain.Host, error) {
		return w.ApplyDesired(t.Context(), domain.Kubernetes, key, service.DesiredHost{ClusterID: clusterID, HostSettings: settings})
	}
	_, err := grant(first.ID, domain.HostSettings{Role: "king"})
	require.Equal(t, domain.Invalid, domain.KindOf(err))
	h, err := w.GetHost(t.Context(), admin, key)
	require.NoError(t, err)
	assert.Empty(t, h.ClusterID, "a role that cannot be is no reason to bind")

	wanted := domain.HostSettings{Role: "master", RequestedHostname: "node", NodeLabels: map[string]string{"a": "b"}}
	for _, c := range []*domain.Cluster{first, second} {
		h, err = grant(c.ID, wanted)
		require.NoError(t, err)
		assert.Equal(t, c.ID, h.ClusterID)
		assert.Equal(t, wanted, h.HostSettings, "a move keeps what is desired")
	}
	again, err := grant(second.ID, wanted)
	require.NoError(t, err)
	assert.Equal(t, h.Revision, again.Revision, "an equal state is not written")
	_, err = grant(uuid.NewString(), wanted)
	assert.Equal(t, "ClusterNotFound", domain.ReasonOf(err))

	wanted.Approved, wanted.Role = true, "auto-assign"
	_, err = grant(second.ID, wanted)
	require.NoError(t, err)
	_, err = w.InstallCluster(t.Context(), domain.Kubernetes, second.ID)
	require.NoError(t, err)
	h, err = grant(second.ID, wanted)
	require.NoError(t, err)
	assert.Equal(t, "master", h.Role, "the role that the installation chose stays")
	_, err = grant("", wanted)
	assert.Equal(t, "HostInstalling", domain.ReasonOf(err))
	_, err = grant(first.ID, wanted)
	assert.Equal(t, "HostInstalling", domain.ReasonOf(err))
}

// The cache of another replica may show an Agent as it was before: what is out of date neither frees nor binds a host.
func TestAFormerSpecIsNotApplied(t *testing.T) {
	w := newTestEnv(t)
	c, err := w.CreateCluster(t.Context(), admin, domain.NewCluster{
		ID: uuid.NewString(), Name: "c", Kube: domain.KubeRef{Namespace: "n", Name: "c"}, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1},
	})
	require.NoError(t, err)
	key := w.register(w.infraEnv(alice), "n1")
	state := func(clusterID, agent string, generation int64, current bool) error {
		_, err := w.ApplyDesired(t.Context(), domain.Kubernetes, key, service.DesiredHost{
			ClusterID: clusterID, Spec: domain.SpecVersion{UID: agent, Generation: generation}, Current: current,
		})
		return err
	}
	is := func(want string) {
		t.Helper()
		h, err := w.GetHost(t.Context(), domain.Kubernetes, key)
		require.NoError(t, err)
		assert.Equal(t, want, h.ClusterID)
	}
	require.NoError(t, state("", "a", 1, false))
	require.NoError(t, state(c.ID, "a", 2, false))
	require.Equal(t, "SpecOutdated", domain.ReasonOf(state("", "a", 1, false)))
	is(c.ID)
	require.NoError(t, state("", "a", 3, false))
	require.Equal(t, "SpecOutdated", domain.ReasonOf(state(c.ID, "a", 2, false)))
	is("")
	require.NoError(t, state("", "a", 2, false), "it changes nothing")
	require.NoError(t, state(c.ID, "a", 2, true), "the API server has no later one")
	is(c.ID)
	require.NoError(t, state("", "a", 3, false))
	require.NoError(t, state(c.ID, "b", 1, false), "the Agent was made again")
	is(c.ID)
}

func TestADesiredHostKeepsBindingsOfREST(t *testing.T) {
	w := newTestEnv(t)
	c := w.cluster(alice)
	key := w.register(w.infraEnv(alice), "n1")
	_, err := w.BindHost(t.Context(), alice, key, c.ID, false)
	require.NoError(t, err)
	h, err := w.ApplyDesired(t.Context(), domain.Kubernetes, key, service.DesiredHost{HostSettings: domain.HostSettings{RequestedHostname: "node"}})
	require.NoError(t, err)
	assert.Equal(t, c.ID, h.ClusterID)
	assert.Equal(t, "node", h.RequestedHostname)
	assert.False(t, lifecycle.Unbound(h.State))
}

func TestAHostThatIsAsDesiredCostsNoStatement(t *testing.T) {
	w := newTestEnv(t)
	c, err := w.CreateCluster(t.Context(), admin, domain.NewCluster{
		ID: uuid.NewString(), Name: "c", Kube: domain.KubeRef{Namespace: "n", Name: "c"}, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1},
	})
	require.NoError(t, err)
	key := w.register(w.infraEnv(alice), "n1")
	desired := service.DesiredHost{ClusterID: c.ID, HostSettings: domain.HostSettings{RequestedHostname: "node", Wipe: domain.WipeInstalledDisk}}
	h, err := w.ApplyDesired(t.Context(), domain.Kubernetes, key, desired)
	require.NoError(t, err)
	before := w.store.Statements.Load()
	again, err := w.ApplyDesired(t.Context(), domain.Kubernetes, key, desired)
	require.NoError(t, err)
	read, err := w.GetHost(t.Context(), domain.Kubernetes, key)
	require.NoError(t, err)
	assert.Equal(t, h, again)
	assert.Equal(t, h, read)
	desired.Wipe = ""
	_, err = w.ApplyDesired(t.Context(), domain.Kubernetes, key, desired)
	require.NoError(t, err)
	assert.Equal(t, before, w.store.Statements.Load(), "what is wiped does not become less while the host is bound, and nothing else is desired")

	for name, change := range map[string]func(*service.DesiredHost){
		"a name": func(d *service.DesiredHost) { d.RequestedHostname = "other" }, "labels": func(d *service.DesiredHost) { d.NodeLabels = map[string]string{"a": "b"} },
		"more is wiped": func(d *service.DesiredHost) { d.Wipe = domain.WipeAllDisks }, "no cluster": func(d *service.DesiredHost) { d.ClusterID = "" },
	} {
		changed := desired
		change(&changed)
		h, err := w.ApplyDesired(t.Context(), domain.Kubernetes, key, changed)
		require.NoError(t, err, name)
		assert.Greater(t, h.Revision, again.Revision, name)
		_, err = w.ApplyDesired(t.Context(), domain.Kubernetes, key, desired)
		require.NoError(t, err, name)
	}
}
