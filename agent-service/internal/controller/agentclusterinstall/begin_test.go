// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agentclusterinstall

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	agentctl "github.com/muster-io/muster/agent-service/internal/controller/agent"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// installer counts the installations that are begun.
type installer struct {
	Service
	begun int
}

// InstallCluster implements Service.
func (i *installer) InstallCluster(context.Context, domain.Principal, string) (*domain.Cluster, error) {
	i.begun++
	return &domain.Cluster{Status: lifecycle.ClusterPreparing}, nil
}

func TestAnInstallationBeginsWhenItsTimeHasCome(t *testing.T) {
	for name, c := range map[string]struct {
		before domain.Preparation
		begins bool
		waits  bool
	}{
		"no attempt yet":                   {domain.Preparation{}, true, false},
		"the last attempt failed just now": {domain.Preparation{Failures: 1, RetryAt: time.Now().Add(time.Hour)}, false, true},
		"the last attempt is long ago":     {domain.Preparation{Failures: 1, RetryAt: time.Now().Add(-time.Hour)}, true, false},
		"a user cancelled it":              {domain.Preparation{Cancelled: true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &installer{}
			seen := &snapshot{
				install: &hiveextv1.AgentClusterInstall{}, deployment: &hivev1.ClusterDeployment{}, cluster: &domain.Cluster{Status: lifecycle.ClusterReady, Preparation: c.before},
			}
			require.NoError(t, New(Deps{Service: counted}).begin(t.Context(), seen))
			assert.Equal(t, c.begins, counted.begun == 1)
			assert.Equal(t, c.waits, seen.rest > 0)
		})
	}
}

func (i *installer) InstallHost(context.Context, domain.Principal, domain.HostKey) (*domain.Host, error) {
	i.begun++
	return &domain.Host{}, nil
}

// A disk is not written for a cluster that goes. Its ClusterDeployment may have a finalizer of another controller for long, and its AgentClusterInstall goes after it.
func TestNothingIsInstalledForAClusterThatIsBeingDeleted(t *testing.T) {
	for name, given := range map[string]snapshot{
		"the cluster is ready": {cluster: &domain.Cluster{Status: lifecycle.ClusterReady}},
		"a machine is ready":   {cluster: &domain.Cluster{Status: lifecycle.ClusterAddingHosts}, hosts: []domain.Host{{State: lifecycle.Known, DayTwo: true, HostSettings: domain.HostSettings{Approved: true}}}},
	} {
		counted := &installer{}
		given.install, given.deployment = &hiveextv1.AgentClusterInstall{}, &hivev1.ClusterDeployment{}
		objects := fake.NewClientBuilder().WithScheme(agentScheme(t)).WithIndex(&agentv1.Agent{}, agentctl.HostIndex, func(client.Object) []string { return nil }).Build()
		r := New(Deps{Client: objects, Service: counted})
		require.NoError(t, r.begin(t.Context(), new(given)))
		assert.Equal(t, 1, counted.begun, name)
		given.deployment.DeletionTimestamp = new(metav1.Now())
		require.NoError(t, r.begin(t.Context(), new(given)))
		assert.Equal(t, 1, counted.begun, name)
	}
}

// A host that was bound before its cluster hibernates is not written to then: nothing answers that it could join, and its installation would fail.
func TestNoHostIsInstalledForAClusterThatHibernates(t *testing.T) {
	counted := &installer{}
	objects := fake.NewClientBuilder().WithScheme(agentScheme(t)).WithIndex(&agentv1.Agent{}, agentctl.HostIndex, func(client.Object) []string { return nil }).Build()
	seen := &snapshot{
		install: &hiveextv1.AgentClusterInstall{}, deployment: &hivev1.ClusterDeployment{Spec: hivev1.ClusterDeploymentSpec{PowerState: hivev1.PowerStateHibernating}},
		cluster: &domain.Cluster{Status: lifecycle.ClusterAddingHosts}, hosts: []domain.Host{{State: lifecycle.Known, DayTwo: true, HostSettings: domain.HostSettings{Approved: true}}},
	}
	r := New(Deps{Client: objects, Service: counted})
	require.NoError(t, r.begin(t.Context(), seen))
	assert.Zero(t, counted.begun)
	seen.deployment.Spec.PowerState = hivev1.PowerStateRunning
	require.NoError(t, r.begin(t.Context(), seen))
	assert.Equal(t, 1, counted.begun)
	seen.deployment.Spec.PowerState, seen.cluster.Status = hivev1.PowerStateHibernating, lifecycle.ClusterReady
	require.NoError(t, r.begin(t.Context(), seen))
	assert.Equal(t, 2, counted.begun, "a cluster that was never installed is installed, whatever its power")
}

func agentScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	require.NoError(t, agentv1.AddToScheme(scheme))
	return scheme
}
