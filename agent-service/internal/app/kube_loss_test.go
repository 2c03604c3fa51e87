// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	agentv1 "github.com/muster-io/muster/apis/agentinstall/v1beta1"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	hiveextv1 "github.com/muster-io/muster/apis/hiveextensions/v1beta1"
)

// lose starts the service again with an empty database.
func lose(c *cluster) {
	c.Helper()
	c.stop()
	if strings.HasPrefix(c.options.Database, "postgres") {
		db, err := pgx.Connect(c.Context(), c.options.Database)
		require.NoError(c, err)
		_, err = db.Exec(c.Context(), "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
		require.NoError(c, errors.Join(err, db.Close(c.Context())))
	} else {
		c.options.Database = filepath.Join(c.TempDir(), "lost.db")
	}
	c.start(strings.TrimPrefix(c.base, "http://"))
}

func (c *cluster) eventsOf(infraEnv *agentv1.InfraEnv) string {
	_, content := get(c.T, c.base+"/api/assisted-install/v2/events?infra_env_id="+string(infraEnv.UID))
	return string(content)
}

// TestAnInstalledClusterStaysInstalledWhenTheDatabaseIsLost whether its machine is booted from the discovery image before or after the service knows it again. A machine that asks what to
// boot is never sent to the image.
func TestAnInstalledClusterStaysInstalledWhenTheDatabaseIsLost(t *testing.T) {
	t.Parallel()
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		staysInstalled(t)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Start(t)
		staysInstalled(t, func(o *Options) { o.Database = server.URL })
	})
}

func staysInstalled(t *testing.T, database ...func(*Options)) {
	t.Helper()
	c := newCluster(t, append(database, withSystem(t))...)
	infraEnv := c.infraEnv("rack", func(s *agentv1.InfraEnvSpec) {
		s.AgentApproval, s.IPXEScriptType = &agentv1.AgentApproval{AutoApprove: true}, "BootOrderControl"
	})
	image := c.token(infraEnv)
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	deployment, install := c.deployment(func(spec *hiveextv1.AgentClusterInstallSpec) { spec.HoldInstallation = false })
	change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName, a.Spec.Approved = reference(deployment), true })
	completed := func() bool { return hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted) }
	c.until(install, "it is installed", completed)
	cluster := c.base + "/api/assisted-install/v2/clusters/" + string(deployment.UID)
	code, answer := call(t, http.MethodPost, cluster+"/actions/complete-installation", `{"is_success":true,"data":{"kubeconfig":"apiVersion: v1"}}`)
	require.Equal(t, http.StatusAccepted, code, answer)
	c.until(install, "the kubeconfig is kept", func() bool {
		return !strings.Contains(hivev1.FindCondition(install.Status.Conditions, hivev1.ClusterInstallCompleted).Message, "kubeconfig")
	})
	c.says(agent, agentv1.ConditionInstalled, agentv1.ReasonInstallationCompleted)
	before := agent.DeepCopy()
	m.stop()
	order := infraEnv.Status.BootArtifacts.IpxeScriptURL + "?mac=" + agent.Status.Inventory.Interfaces[0].MacAddress
	restored := func() bool {
		answer, script := get(t, order)
		if answer.StatusCode != http.StatusServiceUnavailable {
			assert.Equal(t, bootDisk, string(script), "the machine is sent to its disk, or not at all")
		}
		return answer.StatusCode == http.StatusOK && strings.Contains(c.eventsOf(infraEnv), "host_restored")
	}
	require.False(t, restored())

	lose(c)
	second := c.bootWith(string(infraEnv.UID), image, 1, 0)
	require.Eventually(t, restored, kubePatience, 50*time.Millisecond, "the host is installed again, and was not written to")
	c.until(agent, "the host is installed", func() bool {
		return agent.Status.DebugInfo.State == "installed" && is(agent, agentv1.ConditionSpecSynced, agentv1.ReasonSyncOK)
	})
	assert.True(t, is(agent, agentv1.ConditionInstalled, agentv1.ReasonInstallationCompleted))
	assert.True(t, is(agent, agentv1.ConditionBound, agentv1.ReasonBound))
	assert.Equal(t, before.Status.Role, agent.Status.Role)
	assert.Equal(t, before.Status.Progress.CurrentStage, agent.Status.Progress.CurrentStage)
	assert.Equal(t, before.Status.Inventory.Hostname, agent.Status.Inventory.Hostname)
	c.until(install, "it is installed", completed)
	assert.Equal(t, "installed", install.Status.DebugInfo.State)
	_, kubeconfig := get(t, cluster+"/downloads/credentials?file_name=kubeconfig")
	assert.Equal(t, "apiVersion: v1", string(kubeconfig))
	assert.Zero(t, second.received(api.StepTypeInstall))
	require.Eventually(t, func() bool {
		return strings.Contains(c.eventsOf(infraEnv), "boot it from its disk") || second.polled() > 0
	}, kubePatience, 50*time.Millisecond, "the machine is connected")

	// Once more, with a machine that comes when all is there again, and a cluster that is not there for a while.
	second.stop()
	lose(c)
	require.Eventually(t, restored, kubePatience, 50*time.Millisecond, "the service knows the host again; the status of its Agent said so all the time")
	third := c.bootWith(string(infraEnv.UID), image, 1, 0)
	require.Eventually(t, func() bool {
		return strings.Contains(c.eventsOf(infraEnv), "boot it from its disk")
	}, kubePatience, 50*time.Millisecond, "its registration is refused")
	assert.Zero(t, third.received(api.StepTypeInstall))
	assert.True(t, completed())
}

// staysAsItIs boots the machine of an installed Agent from the discovery image again: it is known as installed, and its disk is not written.
func staysAsItIs(c *cluster, agent *agentv1.Agent, infraEnv *agentv1.InfraEnv, image, state string) {
	c.Helper()
	m := c.bootWith(string(infraEnv.UID), image, 1, 0)
	c.until(agent, "it is "+state, func() bool {
		return agent.Status.DebugInfo.State == state && strings.Contains(c.eventsOf(infraEnv), "host_restored") && is(agent, agentv1.ConditionSpecSynced, agentv1.ReasonSyncOK) ||
			m.received(api.StepTypeInstall) > 0
	})
	assert.Zero(c, m.received(api.StepTypeInstall), "its disk is not written again")
	assert.Equal(c, "Done", agent.Status.Progress.CurrentStage)
	m.stop()
}

// A cluster that a machine joined need not have been installed by this service, so that its AgentClusterInstall says nothing of an installation.
func TestAMachineThatJoinedAClusterIsNotInstalledAgainWhenTheDatabaseIsLost(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]string{"its Agent is of this service": "", "its Agent is of assisted-service, which was there before": "https://assisted.example.com/api/assisted-install/v2/events?host_id="} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, withSystem(t))
			infraEnv := c.infraEnv("rack")
			image := c.token(infraEnv)
			m := c.boot(infraEnv, 1, 0)
			agent := c.agent(m)
			deployment, _ := c.takesNodes()
			c.bind(agent, deployment)
			m.stop()
			c.stop()
			if events != "" {
				require.NoError(t, c.user.Get(t.Context(), client.ObjectKeyFromObject(agent), agent))
				before := agent.DeepCopy()
				agent.Status.DebugInfo.EventsURL = events + agent.Name
				require.NoError(t, c.user.Status().Patch(t.Context(), agent, client.MergeFrom(before)))
			}
			lose(c)
			staysAsItIs(c, agent, infraEnv, image, "added-to-existing-cluster")
		})
	}
}

// goBack stops the service, and starts it again with its database or, with one of before, with that. It returns a copy of the database as it was.
func goBack(c *cluster, before string) (kept string) {
	c.Helper()
	c.stop()
	kept = filepath.Join(c.TempDir(), "kept.db")
	content, err := os.ReadFile(c.options.Database)
	require.NoError(c, err)
	require.NoError(c, os.WriteFile(kept, content, 0o600))
	if before != "" {
		c.options.Database = before
	}
	c.start(strings.TrimPrefix(c.base, "http://"))
	return kept
}

// A database that is restored from a backup says less than Agents do of machines that were installed since.
func TestMachinesAreNotInstalledAgainByADatabaseFromBefore(t *testing.T) {
	t.Parallel()
	t.Run("with its cluster, to which it was bound", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, withSystem(t))
		infraEnv := c.infraEnv("rack")
		image := c.token(infraEnv)
		m := c.boot(infraEnv, 1, 0)
		agent := c.agent(m)
		deployment, install := c.deployment()
		change(c, agent, func(a *agentv1.Agent) { a.Spec.ClusterDeploymentName, a.Spec.Approved = reference(deployment), true })
		c.until(agent, "it is bound", func() bool { return agent.Status.DebugInfo.State == "known" })
		before := goBack(c, "")
		change(c, install, func(a *hiveextv1.AgentClusterInstall) { a.Spec.HoldInstallation = false })
		c.until(agent, "it is installed", func() bool { return agent.Status.DebugInfo.State == "installed" })
		c.until(install, "it is installed", func() bool {
			return hivev1.IsConditionTrue(install.Status.Conditions, hivev1.ClusterInstallCompleted) && install.Spec.ClusterMetadata != nil
		})
		m.stop()
		goBack(c, before)
		staysAsItIs(c, agent, infraEnv, image, "installed")
	})
	for name, known := range map[string]bool{"in a cluster that was there": true, "in a cluster that was there, new to the service": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, withSystem(t))
			infraEnv := c.infraEnv("rack")
			image := c.token(infraEnv)
			deployment, _ := c.takesNodes()
			require.Eventually(t, func() bool {
				answer, _ := get(t, c.base+"/api/assisted-install/v2/clusters/"+string(deployment.UID))
				return answer.StatusCode == http.StatusOK
			}, kubePatience, 50*time.Millisecond, "the service knows the cluster")
			var m *machine
			if known {
				m = c.boot(infraEnv, 1, 0)
				c.agent(m)
			}
			before := goBack(c, "")
			if !known {
				m = c.boot(infraEnv, 1, 0)
			}
			agent := c.agent(m)
			c.bind(agent, deployment)
			m.stop()
			goBack(c, before)
			staysAsItIs(c, agent, infraEnv, image, "added-to-existing-cluster")
		})
	}
}

// A machine that is deregistered over REST comes back with what its Agent says.
func TestAMachineThatWasDeregisteredIsInstalledAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, withSystem(t))
	infraEnv := c.infraEnv("rack")
	m := c.boot(infraEnv, 1, 0)
	agent := c.agent(m)
	deployment, _ := c.takesNodes()
	c.bind(agent, deployment)
	m.stop()
	code, answer := call(t, http.MethodDelete, c.base+"/api/assisted-install/v2/infra-envs/"+string(infraEnv.UID)+"/hosts/"+m.HostID().String(), "")
	require.Equal(t, http.StatusNoContent, code, answer)
	c.says(agent, agentv1.ConditionConnected, agentv1.ReasonNotAvailable)
	again := c.boot(infraEnv, 1, 0)
	c.until(agent, "it is installed", func() bool { return agent.Status.DebugInfo.State == "added-to-existing-cluster" })
	assert.Equal(t, 1, again.received(api.StepTypeInstall))
}
