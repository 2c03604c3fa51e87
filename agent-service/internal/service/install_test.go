// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/service"
	"github.com/muster-io/muster/agent-service/internal/validate"
)

// ready makes a cluster with as many bound, valid hosts as it wants.
func (w *testEnv) ready(hosts int) (*domain.Cluster, []domain.HostKey) {
	w.t.Helper()
	e := w.infraEnv(alice)
	c := w.cluster(alice, func(s *domain.ClusterSettings) {
		s.ControlPlaneCount, s.WorkerCount, s.MachineNetworks = 1, hosts-1, []string{"192.0.2.0/24"}
	})
	var keys []domain.HostKey
	for i := range hosts {
		key := w.register(e, "n"+string(rune('a'+i)))
		_, err := w.BindHost(w.t.Context(), alice, key, c.ID, false)
		require.NoError(w.t, err)
		keys = append(keys, key)
	}
	return c, keys
}

func (w *testEnv) reply(key domain.HostKey, t agentproto.StepType, code int, output string) {
	w.t.Helper()
	require.NoError(w.t, w.ReportStep(w.t.Context(), key, agentproto.StepReply{Type: t, ExitCode: code, Output: output}))
}

// install brings hosts to the instruction to write the image.
func (w *testEnv) install(c *domain.Cluster, keys []domain.HostKey) {
	w.t.Helper()
	_, err := w.InstallCluster(w.t.Context(), alice, c.ID)
	require.NoError(w.t, err)
	for _, key := range keys {
		assert.ElementsMatch(w.t, []agentproto.StepType{agentproto.StepDiskSpeed, agentproto.StepImageAvailability}, w.steps(key))
		w.reply(key, agentproto.StepDiskSpeed, 0, `{"io_sync_duration":3}`)
		w.reply(key, agentproto.StepImageAvailability, 0, `{"images":[{"name":"x","result":"success"}]}`)
	}
}

func (w *testEnv) progress(key domain.HostKey, stages ...lifecycle.Stage) {
	w.t.Helper()
	for _, s := range stages {
		_, err := w.ReportProgress(w.t.Context(), key, domain.ProgressReport{Stage: s})
		require.NoError(w.t, err)
	}
}

func (w *testEnv) clusterState(id string) lifecycle.ClusterState {
	w.t.Helper()
	c, err := w.GetCluster(w.t.Context(), admin, id)
	require.NoError(w.t, err)
	return c.Status
}

func TestAClusterIsInstalled(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(2)
	require.Equal(t, lifecycle.ClusterReady, w.clusterState(c.ID))
	_, _, err := w.FirstBoot(t.Context(), keys[0])
	assert.Equal(t, "HostNotInstalling", domain.ReasonOf(err), "no credential of the cluster before it installs")
	w.install(c, keys)
	assert.Equal(t, lifecycle.ClusterInstalling, w.clusterState(c.ID))

	got, err := w.NextInstructions(t.Context(), keys[0], 0)
	require.NoError(t, err)
	require.Len(t, got.Steps, 1)
	require.Equal(t, agentproto.StepInstall, got.Steps[0].Type)
	var args agentproto.InstallArgs
	require.NoError(t, json.Unmarshal([]byte(got.Steps[0].Args[0]), &args))
	assert.Equal(t, "/dev/sda", args.Device)
	assert.Equal(t, "https://images.example.com/disk.raw.gz", args.Image.URL)
	assert.Equal(t, "na", args.Hostname)
	data, contentType, err := w.FirstBoot(t.Context(), keys[0])
	require.NoError(t, err)
	assert.Equal(t, "application/vnd.coreos.ignition+json", contentType)
	assert.True(t, json.Valid(data), string(data))

	_, err = w.UnbindHost(t.Context(), alice, keys[0])
	assert.Equal(t, "HostInstalling", domain.ReasonOf(err))
	_, err = w.UpdateHost(t.Context(), alice, keys[0], func(s *domain.HostSettings) error { s.RequestedHostname = "other"; return nil })
	assert.Equal(t, "HostInstalling", domain.ReasonOf(err))
	require.Equal(t, domain.Conflict, domain.KindOf(w.DeleteCluster(t.Context(), alice, c.ID, false)))

	for _, key := range keys {
		w.progress(key, lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting, lifecycle.StageRebooting)
	}
	w.pass(10 * time.Minute) // the agent is gone on purpose
	assert.Equal(t, lifecycle.InstallingInProgress, w.state(keys[0]))
	w.progress(keys[0], lifecycle.StageConfiguring, lifecycle.StageDone)
	assert.Equal(t, lifecycle.Installed, w.state(keys[0]))
	assert.Equal(t, lifecycle.ClusterFinalizing, w.clusterState(c.ID))
	w.progress(keys[1], lifecycle.StageDone)
	assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))

	_, err = w.RegisterHost(t.Context(), keys[0].InfraEnvID, domain.NewHost{HostID: keys[0].HostID})
	assert.Equal(t, "HostInstalled", domain.ReasonOf(err))
	h, err := w.UnbindHost(t.Context(), alice, keys[0])
	require.NoError(t, err)
	assert.Equal(t, lifecycle.UnbindingPendingUserAction, h.State, "it must boot the discovery image again")
	_, err = w.RegisterHost(t.Context(), keys[0].InfraEnvID, domain.NewHost{HostID: keys[0].HostID})
	require.NoError(t, err)
	assert.Equal(t, lifecycle.DiscoveringUnbound, w.state(keys[0]))

	// A host that joins later installs by itself.
	late := w.register(w.infraEnv(alice), "late")
	_, err = w.BindHost(t.Context(), alice, late, c.ID, false)
	require.NoError(t, err)
	h, err = w.InstallHost(t.Context(), alice, late)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Installing, h.State)
	w.progress(late, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	assert.Equal(t, lifecycle.AddedToExistingCluster, w.state(late))
	assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))
}

func TestAFailedInstallationIsResetAndRepeated(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.ready(2)
	w.install(c, keys)
	w.steps(keys[0])
	w.reply(keys[0], agentproto.StepInstall, 1, "no space left")
	assert.Equal(t, lifecycle.Failed, w.state(keys[0]))
	assert.Equal(t, lifecycle.Failed, w.state(keys[1]), "the others stop with it")
	assert.Equal(t, lifecycle.ClusterFailed, w.clusterState(c.ID))
	assert.Contains(t, w.steps(keys[1]), agentproto.StepStopInstallation)
	_, err := w.ResetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	for _, key := range keys {
		assert.Equal(t, lifecycle.ResettingPendingUserAction, w.state(key))
		_, err := w.RegisterHost(t.Context(), key.InfraEnvID, domain.NewHost{HostID: key.HostID, BootID: "2"})
		require.NoError(t, err)
	}
	for i, key := range keys {
		w.reply(key, agentproto.StepInventory, 0, machine("n"+string(rune('a'+i))))
	}
	assert.Equal(t, lifecycle.ClusterReady, w.clusterState(c.ID))
	w.install(c, keys)
	assert.Equal(t, lifecycle.ClusterInstalling, w.clusterState(c.ID))
}

func TestTheRegistryIsAskedOfBoundHostsToo(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	const image = "quay.io/x/y:1"
	w.RegistryImages = []string{image}
	c := w.cluster(alice, func(s *domain.ClusterSettings) { s.MachineNetworks = []string{"192.0.2.0/24"} })
	e, err := w.CreateInfraEnv(t.Context(), alice, domain.NewInfraEnv{Name: "bound", InfraEnvSettings: domain.InfraEnvSettings{PullSecret: `{"auths":{}}`, ClusterID: c.ID}})
	require.NoError(t, err)
	key := w.register(e, "n1")
	asked := func() agentproto.Step {
		t.Helper()
		got, err := w.NextInstructions(t.Context(), key, 0)
		require.NoError(t, err)
		i := slices.IndexFunc(got.Steps, func(s agentproto.Step) bool { return s.Type == agentproto.StepImageAvailability })
		require.GreaterOrEqual(t, i, 0, "%s: %v", w.state(key), got.Steps)
		return got.Steps[i]
	}
	answer := func(step agentproto.Step, result string) {
		t.Helper()
		require.NoError(t, w.ReportStep(t.Context(), key, agentproto.StepReply{Type: step.Type, ID: step.ID, Output: `{"images":[{"name":"` + image + `","result":"` + result + `"}]}`}))
	}
	step := asked()
	assert.Contains(t, step.Args[0], image)
	w.jump(time.Second)
	answer(step, "failure")
	require.Equal(t, lifecycle.Insufficient, w.state(key))
	w.jump(time.Second)
	answer(asked(), "success")
	require.Equal(t, lifecycle.Known, w.state(key))
	slow := asked()

	// The check of registries does not cover the image of the installation.
	w.jump(time.Second)
	_, err = w.InstallCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	step = asked()
	assert.NotContains(t, step.Args[0], image)
	answer(slow, "failure")
	require.Equal(t, lifecycle.PreparingForInstallation, w.state(key))
	again := asked()
	assert.Equal(t, step, again, "an agent does one step of a type at a time, so it is told once more")
	answer(again, "success")
	w.reply(key, agentproto.StepDiskSpeed, 0, `{"io_sync_duration":3}`)
	assert.Equal(t, lifecycle.Installing, w.state(key))
}

func TestWhyAnInstallationFailedIsSaidOfTheHostAndOfTheCluster(t *testing.T) {
	t.Parallel()
	const reason = "downloading the image: Get \"https://alice:secret@images.example.com/disk.raw.gz?signature=secret\": connection refused"
	for name, c := range map[string]struct {
		stage lifecycle.Stage
		fails func(w *testEnv, key domain.HostKey)
		says  []string
	}{
		"the agent gives up": {lifecycle.StageWriting, func(w *testEnv, key domain.HostKey) {
			require.NoError(w.t, w.ReportStep(w.t.Context(), key, agentproto.StepReply{Type: agentproto.StepInstall, ExitCode: 1, Error: reason}))
		}, []string{`"https://images.example.com/disk.raw.gz": connection refused`, "(stage Writing image to disk)"}},
		"the installed system says so": {lifecycle.StageConfiguring, func(w *testEnv, key domain.HostKey) {
			_, err := w.ReportProgress(w.t.Context(), key, domain.ProgressReport{Stage: lifecycle.StageFailed, Info: reason})
			require.NoError(w.t, err)
		}, []string{`"https://images.example.com/disk.raw.gz": connection refused`, "(stage Configuring)"}},
		"no report arrives": {lifecycle.StageWriting, func(w *testEnv, _ domain.HostKey) { w.pass(4 * time.Minute) },
			[]string{"it stopped communicating", "(stage Writing image to disk)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			made, keys := w.ready(2)
			w.install(made, keys)
			w.progress(keys[0], c.stage)
			w.progress(keys[1], lifecycle.StageRebooting)
			c.fails(w, keys[0])
			h, err := w.GetHost(t.Context(), admin, keys[0])
			require.NoError(t, err)
			assert.Equal(t, lifecycle.Failed, h.State)
			cluster, err := w.GetCluster(t.Context(), admin, made.ID)
			require.NoError(t, err)
			assert.Equal(t, lifecycle.ClusterFailed, cluster.Status)
			assert.Contains(t, cluster.StatusInfo, "host na: ")
			assert.NotContains(t, cluster.StatusInfo, "host nb: ")
			for _, part := range c.says {
				assert.Contains(t, h.StateInfo, part)
				assert.Contains(t, cluster.StatusInfo, part)
			}
			found, err := w.ListEvents(t.Context(), admin, domain.EventFilter{ClusterID: made.ID})
			require.NoError(t, err)
			for _, e := range found.Items {
				assert.NotContains(t, e.Message, "secret")
			}
		})
	}
}

func TestTheEndOfAnInstallationEndsTheWriting(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *testEnv, c *domain.Cluster) error{
		"reset": func(w *testEnv, c *domain.Cluster) error {
			_, err := w.ResetCluster(w.t.Context(), alice, c.ID)
			return err
		},
		"cancel": func(w *testEnv, c *domain.Cluster) error {
			_, err := w.CancelCluster(w.t.Context(), alice, c.ID)
			return err
		},
		"delete": func(w *testEnv, c *domain.Cluster) error { return w.DeleteCluster(w.t.Context(), alice, c.ID, true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			c, keys := w.ready(1)
			w.install(c, keys)
			require.Contains(t, w.steps(keys[0]), agentproto.StepInstall)
			w.progress(keys[0], lifecycle.StageWriting)
			require.NoError(t, end(w, c))
			assert.Contains(t, w.steps(keys[0]), agentproto.StepStopInstallation)
		})
	}
}

// written is a machine whose disk is being written, and what it booted from.
func (w *testEnv) written(wipe domain.Wipe) (*server, *domain.InfraEnv, *domain.Cluster) {
	w.t.Helper()
	e := w.infraEnv(alice)
	_, err := w.UpdateInfraEnv(w.t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.Wipe = wipe; return nil })
	require.NoError(w.t, err)
	c := w.cluster(alice)
	s := &server{testEnv: w, key: domain.HostKey{HostID: uuid.NewString()}}
	s.boot(e)
	_, err = w.BindHost(w.t.Context(), alice, s.key, c.ID, false)
	require.NoError(w.t, err)
	w.install(c, []domain.HostKey{s.key})
	w.progress(s.key, lifecycle.StageWriting)
	return s, e, c
}

// A machine that is being written when its cluster is deleted still runs the discovery image. Its agent may be away, and still write: the machine is another cluster's, and is wiped, only after
// it has registered again.
func TestAMachineThatIsWrittenIsFreeWhenItsClusterIsDeleted(t *testing.T) {
	t.Parallel()
	for _, wipe := range []domain.Wipe{domain.WipeNone, domain.WipeInstalledDisk} {
		t.Run(string(wipe), func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, w *testEnv) {
				s, e, c := w.written(wipe)
				require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, true))
				require.Equal(t, lifecycle.InsufficientUnbound, w.state(s.key))
				assert.Contains(t, s.host().StateInfo, "stops the installation")
				next := w.cluster(alice)
				s.bindRefused(next)
				step, _ := s.asked()
				assert.Nil(t, step, "it may still write")
				w.Service = w.restart()
				s.bindRefused(next)

				_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: s.key.HostID, AgentVersion: "test", Fingerprint: "f", BootID: s.host().BootID})
				require.NoError(t, err)
				if wipe != domain.WipeNone {
					s.bindRefused(next)
					step, args := s.asked()
					s.wiped(step, args)
				}
				assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
				_, err = w.BindHost(t.Context(), alice, s.key, next.ID, false)
				require.NoError(t, err)
			})
		})
	}
}

// A machine that may have restarted from its disk, and one whose agent does not end an installation for this service, boot the discovery image before they are free.
func TestAMachineThatMayHaveLeftTheDiscoveryImageMustBoot(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(s *server){
		"it restarts": func(s *server) { s.progress(s.key, lifecycle.StageRebooting) },
		"it is silent": func(s *server) {
			_, err := s.CancelCluster(s.t.Context(), alice, s.host().ClusterID)
			require.NoError(s.t, err)
			s.pass(4 * time.Minute)
		},
		"its installed system failed": func(s *server) {
			s.progress(s.key, lifecycle.StageRebooting, lifecycle.StageFailed)
			_, err := s.CancelCluster(s.t.Context(), alice, s.host().ClusterID)
			require.NoError(s.t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s, e, c := w.written(domain.WipeNone)
			do(s)
			require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, true))
			require.Equal(t, lifecycle.UnbindingPendingUserAction, w.state(s.key))
			s.bindMustBoot(w.cluster(alice))
			s.boot(e)
			assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
		})
	}
}

// Nothing is written yet while the checks before an installation run.
func TestAMachineThatIsCheckedIsFreeWhenItsClusterIsDeleted(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	_, err := w.InstallCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	require.Equal(t, lifecycle.PreparingForInstallation, w.state(keys[0]))
	require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, true))
	assert.Equal(t, lifecycle.KnownUnbound, w.state(keys[0]))
}

func TestACheckBeforeTheInstallationStopsIt(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.ready(2)
	_, err := w.InstallCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	w.reply(keys[0], agentproto.StepImageAvailability, 0, `{"images":[{"name":"disk","result":"failure"}]}`)
	assert.Equal(t, lifecycle.Known, w.state(keys[1]))
	assert.Contains(t, []lifecycle.ClusterState{lifecycle.ClusterReady, lifecycle.ClusterInsufficient}, w.clusterState(c.ID))
}

func TestAnImageThatCannotBeDownloadedIsNamedAndNotTriedAtOnceAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	attempt := func() *domain.Cluster {
		t.Helper()
		w.jump(time.Second)
		_, err := w.InstallCluster(t.Context(), alice, c.ID)
		require.NoError(t, err)
		w.steps(keys[0])
		w.reply(keys[0], agentproto.StepImageAvailability, 0, `{"images":[{"name":"https://alice:secret@images.example.com/disk.raw.gz?signature=secret","result":"failure"}]}`)
		after, err := w.GetCluster(t.Context(), alice, c.ID)
		require.NoError(t, err)
		require.Equal(t, lifecycle.ClusterReady, after.Status)
		return after
	}
	rest := time.Duration(0)
	for range 12 {
		after := attempt()
		assert.Contains(t, after.Preparation.Why, "host na:")
		assert.Contains(t, after.Preparation.Why, "https://images.example.com/disk.raw.gz")
		assert.NotContains(t, after.Preparation.Why, "secret")
		assert.Contains(t, after.StatusInfo, after.Preparation.Why)
		longer := after.Preparation.RetryAt.Sub(w.clock())
		assert.GreaterOrEqual(t, longer, rest)
		rest = longer
	}
	assert.Equal(t, 10*time.Minute, rest)
	found, err := w.ListEvents(t.Context(), alice, domain.EventFilter{ClusterID: c.ID, Message: "to preparing-failed (A check before the installation failed: the image cannot be downloaded: https://images.example.com/disk.raw.gz)"})
	require.NoError(t, err)
	assert.NotEmpty(t, found.Items)

	changed, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.SSHPublicKey = "key"; return nil })
	require.NoError(t, err)
	assert.Empty(t, changed.Preparation, "the obstacle may be removed")
	attempt()
	w.jump(time.Second)
	w.install(c, keys)
	installing, err := w.GetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.ClusterInstalling, installing.Status)
	assert.Empty(t, installing.Preparation)
}

func TestACancelledPreparationWaitsForTheUser(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	cancelled := func() *domain.Cluster {
		t.Helper()
		w.jump(time.Second)
		_, err := w.InstallCluster(t.Context(), alice, c.ID)
		require.NoError(t, err)
		_, err = w.CancelCluster(t.Context(), alice, c.ID)
		require.NoError(t, err)
		after, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.SSHPublicKey += "x"; return nil })
		require.NoError(t, err)
		return after
	}
	assert.Equal(t, domain.Preparation{Cancelled: true}, cancelled().Preparation, "another key does not ask for the installation")
	for _, hold := range []bool{true, false} {
		after, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.HoldInstallation = hold; return nil })
		require.NoError(t, err)
		assert.Empty(t, after.Preparation)
	}
	require.True(t, cancelled().Preparation.Cancelled)
	w.jump(time.Second)
	w.install(c, keys)
	assert.Equal(t, lifecycle.ClusterInstalling, w.clusterState(c.ID))
}

func TestAHostThatIsReadyAfterAnAutomaticInstallation(t *testing.T) {
	t.Parallel()
	for name, complete := range map[string]func(w *testEnv, c *domain.Cluster, keys []domain.HostKey){
		"all hosts are done": func(w *testEnv, _ *domain.Cluster, keys []domain.HostKey) {
			w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
		},
		"the installed cluster says so": func(w *testEnv, c *domain.Cluster, keys []domain.HostKey) {
			w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting)
			_, err := w.CompleteCluster(w.t.Context(), alice, c.ID, "kubeconfig")
			require.NoError(w.t, err)
			w.progress(keys[0], lifecycle.StageDone)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			c, keys := w.ready(1)
			late := w.register(w.infraEnv(alice), "late")
			approve := func(yes bool) {
				_, err := w.UpdateHost(t.Context(), alice, late, func(s *domain.HostSettings) error { s.Approved = yes; return nil })
				require.NoError(t, err)
			}
			approve(false)
			_, err := w.BindHost(t.Context(), alice, late, c.ID, false)
			require.NoError(t, err)
			w.install(c, keys)
			complete(w, c, keys)
			require.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))
			approve(true)
			joins := func(key domain.HostKey) {
				t.Helper()
				h, err := w.InstallHost(t.Context(), alice, key)
				require.NoError(t, err)
				assert.True(t, h.DayTwo)
				w.progress(key, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
				assert.Equal(t, lifecycle.AddedToExistingCluster, w.state(key))
			}
			joins(late)

			// So is one of the cluster's own hosts that is reset.
			_, err = w.ResetHost(t.Context(), alice, keys[0])
			require.NoError(t, err)
			_, err = w.RegisterHost(t.Context(), keys[0].InfraEnvID, domain.NewHost{HostID: keys[0].HostID, AgentVersion: "test", BootID: "2"})
			require.NoError(t, err)
			w.reply(keys[0], agentproto.StepInventory, 0, machine("na"))
			joins(keys[0])
			assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))
		})
	}
}

func TestAnotherDiskIsNotAsSlowAsTheOneBefore(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.reply(keys[0], agentproto.StepInventory, 0, machine("na", func(i *hardware.Inventory) {
		i.Disks = append(i.Disks, hardware.Disk{Name: "sdb", ID: "/dev/disk/by-id/2", Path: "/dev/sdb", SizeBytes: 300e9, InstallationEligibility: hardware.Eligibility{Eligible: true}})
	}))
	_, err := w.InstallCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	w.reply(keys[0], agentproto.StepDiskSpeed, 0, `{"io_sync_duration":300}`)
	require.Equal(t, lifecycle.Insufficient, w.state(keys[0]))
	choose := func(do func(*domain.HostSettings)) lifecycle.State {
		h, err := w.UpdateHost(t.Context(), alice, keys[0], func(s *domain.HostSettings) error { do(s); return nil })
		require.NoError(t, err)
		return h.State
	}
	assert.Equal(t, lifecycle.Insufficient, choose(func(s *domain.HostSettings) { s.RequestedHostname = "other" }))
	assert.Equal(t, lifecycle.Insufficient, choose(func(s *domain.HostSettings) { s.InstallationDiskPath = "/dev/sda" }), "it is the same")
	assert.Equal(t, lifecycle.Known, choose(func(s *domain.HostSettings) { s.InstallationDiskPath = "/dev/sdb" }))
}

func TestHostsOfOneIDAreTwoHostsOfACluster(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	e := w.infraEnv(alice)
	twin := domain.HostKey{InfraEnvID: e.ID, HostID: keys[0].HostID}
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: twin.HostID, AgentVersion: "test", BootID: "2"})
	require.NoError(t, err)
	w.reply(twin, agentproto.StepInventory, 0, machine("na", func(i *hardware.Inventory) { i.Interfaces[0].MACAddress = "52:54:00:00:00:02" }))
	h, err := w.BindHost(t.Context(), alice, twin, c.ID, false)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Insufficient, h.State)
	assert.Contains(t, h.StateInfo, "Hostname na is not unique in cluster")
	assert.Contains(t, h.StateInfo, "has an address that this host has, too")
}

func TestADayTwoHostNeedsTheHardwareOfAWorker(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.Minimums = maps.Clone(validate.DefaultMinimums)
	w.Minimums["worker"] = validate.Minimum{CPUs: 4, MemoryGiB: 8, DiskGB: 500}
	c, keys := w.ready(1)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	late := w.register(w.infraEnv(alice), "late")
	h, err := w.BindHost(t.Context(), alice, late, c.ID, false)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Insufficient, h.State)
	assert.Contains(t, h.StateInfo, "one of at least 500 GB is needed")
	_, err = w.InstallHost(t.Context(), alice, late)
	assert.Equal(t, "HostNotReady", domain.ReasonOf(err))
}

func TestADiskThatIsTooSmallIsNotInstalledTo(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.reply(keys[0], agentproto.StepInventory, 0, machine("na", func(i *hardware.Inventory) {
		i.Disks = append(i.Disks, hardware.Disk{
			Name: "sdb", ID: "/dev/disk/by-id/2", Path: "/dev/sdb", DriveType: "SSD", SizeBytes: 4e9, InstallationEligibility: hardware.Eligibility{Eligible: true},
		})
		i.Disks[0].DriveType = "HDD"
	}))
	choose := func(path string) *domain.Host {
		h, err := w.UpdateHost(t.Context(), alice, keys[0], func(s *domain.HostSettings) error { s.InstallationDiskPath = path; return nil })
		require.NoError(t, err)
		return h
	}
	chosen := choose("/dev/sdb")
	assert.Equal(t, lifecycle.Insufficient, chosen.State)
	assert.Contains(t, chosen.StateInfo, "has 4 GB, but at least 100 GB are needed")
	choose("")
	w.install(c, keys)
	got, err := w.NextInstructions(t.Context(), keys[0], 0)
	require.NoError(t, err)
	require.Len(t, got.Steps, 1)
	var args agentproto.InstallArgs
	require.NoError(t, json.Unmarshal([]byte(got.Steps[0].Args[0]), &args))
	assert.Equal(t, "/dev/sda", args.Device)
}

func TestOnlyHostsWithEnoughHardwareBecomeMasters(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(3)
	small := func(i *hardware.Inventory) { i.CPU.Count, i.Memory.PhysicalBytes = 2, 8<<30 }
	slices.SortFunc(keys, func(a, b domain.HostKey) int { return strings.Compare(a.HostID, b.HostID) })
	for i, key := range keys[:2] {
		w.reply(key, agentproto.StepInventory, 0, machine("small-"+string(rune('a'+i)), small))
	}
	w.install(c, keys)
	for i, role := range []string{"worker", "worker", "master"} {
		h, err := w.GetHost(t.Context(), admin, keys[i])
		require.NoError(t, err)
		assert.Equal(t, role, h.Role)
		assert.Equal(t, role == "master", h.Bootstrap)
		assert.Equal(t, lifecycle.Installing, h.State)
		assert.True(t, validate.Sufficient(h.Validations, true))
	}

	c, keys = w.ready(1)
	w.reply(keys[0], agentproto.StepInventory, 0, machine("small", small))
	require.Equal(t, lifecycle.ClusterReady, w.clusterState(c.ID))
	_, err := w.InstallCluster(t.Context(), alice, c.ID)
	assert.Equal(t, "TooFewMasters", domain.ReasonOf(err))
	require.ErrorContains(t, err, "at least 4 CPU cores, 16 GiB of memory and a disk of 100 GB")
	h, err := w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	assert.Equal(t, "auto-assign", h.Role)
}

func TestCancelBeforeAndAfterTheStart(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.ready(1)
	_, err := w.InstallCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	_, err = w.CancelCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Known, w.state(keys[0]))
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting)
	_, err = w.CancelCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Cancelled, w.state(keys[0]))
	assert.Equal(t, lifecycle.ClusterCancelled, w.clusterState(c.ID))
	_, err = w.ReportProgress(t.Context(), keys[0], domain.ProgressReport{Stage: lifecycle.StageDone})
	assert.Equal(t, "StageNotExpected", domain.ReasonOf(err))
}

func TestAnInstallationThatHangsTimesOut(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting)
	w.pass(61 * time.Minute)
	assert.Equal(t, lifecycle.InstallingPendingUserAction, w.state(keys[0]))
	w.progress(keys[0], lifecycle.StageDone)
	assert.Equal(t, lifecycle.Installed, w.state(keys[0]), "it came up after all")
}

func TestAMachineThatDiesWhileItWritesFails(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting)
	w.pass(4 * time.Minute)
	assert.Equal(t, lifecycle.Failed, w.state(keys[0]))
	assert.Equal(t, lifecycle.ClusterFailed, w.clusterState(c.ID))
}

func TestAnAgentThatIsStartedAgainInstallsAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(2)
	w.install(c, keys)
	again := func(key domain.HostKey, boot string) {
		t.Helper()
		_, err := w.RegisterHost(t.Context(), key.InfraEnvID, domain.NewHost{HostID: key.HostID, BootID: boot})
		require.NoError(t, err)
	}
	before, err := w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	for range 2 { // it does not matter how often
		assert.Contains(t, w.steps(keys[0]), agentproto.StepInstall)
		w.progress(keys[0], lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting)
		again(keys[0], "1")
		after, err := w.GetHost(t.Context(), admin, keys[0])
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Installing, after.State)
		assert.Empty(t, after.Progress)
		assert.Equal(t, before.Bootstrap, after.Bootstrap, "it has its part in the cluster still")
		assert.Equal(t, lifecycle.ClusterInstalling, w.clusterState(c.ID))
	}
	again(keys[0], "1")
	assert.Contains(t, w.steps(keys[0]), agentproto.StepInstall, "also before it began")
	_, _, err = w.FirstBoot(t.Context(), keys[0])
	require.NoError(t, err)
	w.progress(keys[0], lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting, lifecycle.StageRebooting)
	again(keys[0], "1")
	assert.Equal(t, lifecycle.InstallingPendingUserAction, w.state(keys[0]), "the disk is written: only the restart is missing")
	w.progress(keys[0], lifecycle.StageDone)
	assert.Equal(t, lifecycle.Installed, w.state(keys[0]))

	w.progress(keys[1], lifecycle.StageStarting)
	again(keys[1], "2")
	assert.Equal(t, lifecycle.Failed, w.state(keys[1]), "the machine was booted: what it wrote is not known")
}

func TestAgentsOfAssistedServiceThatStartAgainFailAsAlways(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageStarting)
	_, err := w.RegisterHost(t.Context(), keys[0].InfraEnvID, domain.NewHost{HostID: keys[0].HostID})
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Failed, w.state(keys[0]))
}

func TestAMoveChecksTheDestinationFirst(t *testing.T) {
	w := newTestEnv(t)
	c, keys := w.ready(1)
	busy, busyKeys := w.ready(1)
	w.install(busy, busyKeys)
	_, err := w.MoveHost(t.Context(), alice, keys[0], busy.ID)
	assert.Equal(t, "ClusterNotAccepting", domain.ReasonOf(err))
	h, err := w.GetHost(t.Context(), alice, keys[0])
	require.NoError(t, err)
	assert.Equal(t, c.ID, h.ClusterID, "the source is unchanged")
	_, err = w.MoveHost(t.Context(), alice, busyKeys[0], c.ID)
	assert.Equal(t, "HostInstalling", domain.ReasonOf(err))
	w.progress(busyKeys[0], lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	_, err = w.MoveHost(t.Context(), alice, keys[0], busy.ID)
	assert.Equal(t, "ClusterInstalled", domain.ReasonOf(err))
	require.ErrorContains(t, err, "unbind the host, then bind it")
	answer, err := w.CheckBind(t.Context(), alice, keys[0], busy.ID)
	require.NoError(t, err)
	assert.Equal(t, "ClusterInstalled", answer.Reason)
	_, err = w.ApplyDesired(t.Context(), domain.Kubernetes, keys[0], service.DesiredHost{ClusterID: busy.ID, HostSettings: domain.HostSettings{Approved: true, RequestedHostname: "moved"}})
	require.NoError(t, err)
	h, err = w.InstallHost(t.Context(), alice, keys[0])
	require.NoError(t, err)
	assert.True(t, h.DayTwo, "a custom resource frees and binds it at once")
	_, keys = w.ready(1)
	arm := w.cluster(alice, func(s *domain.ClusterSettings) { s.CPUArchitecture = "aarch64" })
	_, err = w.MoveHost(t.Context(), alice, keys[0], arm.ID)
	assert.Equal(t, domain.Invalid, domain.KindOf(err))
}

func TestMachinesOfAnotherArchitectureFindTheirClusterAndTheirImage(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	w.OSImages = nil
	for _, architecture := range []string{"x86_64", "arm64"} {
		w.OSImages = append(w.OSImages, agentproto.OSImage{Version: "4.18", CPUArchitecture: architecture, URL: "https://images.example.com/" + architecture, SHA256: strings.Repeat("0", 64)})
	}
	e, err := w.CreateInfraEnv(t.Context(), alice, domain.NewInfraEnv{Name: "arm", InfraEnvSettings: domain.InfraEnvSettings{CPUArchitecture: "arm64"}})
	require.NoError(t, err)
	assert.Equal(t, "aarch64", e.CPUArchitecture)
	for _, reported := range []string{"aarch64", "arm64"} {
		for _, architecture := range []string{"arm64", "aarch64", "multi"} {
			key := domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}
			_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, AgentVersion: "test", BootID: "1"})
			require.NoError(t, err)
			w.reply(key, agentproto.StepInventory, 0, strings.Replace(machine("arm"), "x86_64", reported, 1))
			_, err = w.UpdateHost(t.Context(), alice, key, func(s *domain.HostSettings) error { s.Approved = true; return nil })
			require.NoError(t, err)
			c := w.cluster(alice, func(s *domain.ClusterSettings) { s.CPUArchitecture = architecture })
			h, err := w.BindHost(t.Context(), alice, key, c.ID, false)
			require.NoError(t, err)
			assert.Equal(t, lifecycle.Known, h.State, h.StateInfo)
			w.install(c, []domain.HostKey{key})
			w.jump(time.Minute)
			got, err := w.NextInstructions(t.Context(), key, 0)
			require.NoError(t, err)
			require.Len(t, got.Steps, 1)
			assert.Contains(t, got.Steps[0].Args[0], "https://images.example.com/arm64", architecture)
		}
	}
	c := w.cluster(alice, func(s *domain.ClusterSettings) { s.CPUArchitecture = "arm64" })
	_, err = w.BindHost(t.Context(), alice, w.register(w.infraEnv(alice), "n1"), c.ID, false)
	assert.Equal(t, "ArchitectureMismatch", domain.ReasonOf(err))
	_, err = w.UpdateInfraEnv(t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.CPUArchitecture = "arm64"; return nil })
	require.NoError(t, err, "it is the same one")

	// A cluster of one architecture may come to take all, also with hosts in it, and not the other way round.
	one, _ := w.ready(1)
	for architecture, reason := range map[string]string{"aarch64": "CPUArchitectureInUse", "multi": ""} {
		_, err = w.UpdateCluster(t.Context(), alice, one.ID, func(s *domain.ClusterSettings) error { s.CPUArchitecture = architecture; return nil })
		assert.Equal(t, reason, domain.ReasonOf(err))
	}
}

func TestAClusterKeepsItsHostsWhileItInstalls(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(2)
	other := w.cluster(alice)
	idle := w.register(w.infraEnv(alice), "idle")
	_, err := w.UpdateHost(t.Context(), alice, idle, func(s *domain.HostSettings) error { s.Approved = false; return nil })
	require.NoError(t, err)
	_, err = w.BindHost(t.Context(), alice, idle, c.ID, false)
	require.NoError(t, err)
	w.install(c, keys)
	w.progress(keys[0], lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	require.Equal(t, lifecycle.ClusterFinalizing, w.clusterState(c.ID))
	for _, key := range []domain.HostKey{idle, keys[0]} {
		_, err = w.UnbindHost(t.Context(), alice, key)
		assert.Equal(t, "ClusterInstalling", domain.ReasonOf(err))
		_, err = w.ReclaimHost(t.Context(), alice, key)
		assert.Equal(t, "ClusterInstalling", domain.ReasonOf(err))
		_, err = w.MoveHost(t.Context(), alice, key, other.ID)
		assert.Equal(t, "ClusterInstalling", domain.ReasonOf(err))
		_, err = w.ApplyDesired(t.Context(), domain.Kubernetes, key, service.DesiredHost{ClusterID: other.ID})
		assert.Equal(t, "ClusterInstalling", domain.ReasonOf(err))
	}
	w.progress(keys[1], lifecycle.StageDone)
	done, err := w.GetCluster(t.Context(), admin, c.ID)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.ClusterInstalled, done.Status)
	assert.Equal(t, 2, done.InstalledHostCount)
	_, err = w.MoveHost(t.Context(), alice, idle, other.ID)
	require.NoError(t, err)
	_, err = w.UnbindHost(t.Context(), alice, keys[0])
	require.NoError(t, err)

	// A cancellation releases the hosts.
	c, keys = w.ready(1)
	w.install(c, keys)
	_, err = w.CancelCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	_, err = w.UnbindHost(t.Context(), alice, keys[0])
	require.NoError(t, err)
}

func TestADryRunAnswersAndWritesNothing(t *testing.T) {
	w := newTestEnv(t)
	key := w.register(w.infraEnv(alice), "n1")
	good := w.cluster(alice)
	elsewhere := w.cluster(alice, func(s *domain.ClusterSettings) { s.MachineNetworks = []string{"198.51.100.0/24"} })
	before, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	refusals := w.Refusals.Load()
	answer, err := w.CheckBind(t.Context(), alice, key, good.ID)
	require.NoError(t, err)
	assert.True(t, answer.Valid)
	answer, err = w.CheckBind(t.Context(), alice, key, elsewhere.ID)
	require.NoError(t, err)
	assert.False(t, answer.Valid)
	assert.Equal(t, lifecycle.Insufficient, answer.State)
	after, err := w.GetHost(t.Context(), alice, key)
	require.NoError(t, err)
	assert.Equal(t, before.Revision, after.Revision)
	assert.Equal(t, refusals, w.Refusals.Load(), "an answer is no refusal")
	_, err = w.CheckBind(t.Context(), bob, key, good.ID)
	assert.Equal(t, domain.NotFound, domain.KindOf(err))
}

func TestAnInstalledSystemGetsTrustBundleAndProxy(t *testing.T) {
	t.Parallel()
	for kind, finds := range map[string][]string{
		"ignition": {`/etc/pki/ca-trust/source/anchors/muster.pem`, `Environment=\"https_proxy=http://proxy.example.com/100%%25\"`}, "cloud-init": {"ca_certs: {trusted: [", `"https_proxy=http://proxy.example.com/100%25", sh, -c`},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			w.Authorities, w.OSImages[0].FirstBoot = "the service's\n", kind
			rack := certificate(t)
			c, keys := w.ready(1)
			_, err := w.UpdateInfraEnv(t.Context(), alice, keys[0].InfraEnvID, func(s *domain.InfraEnvSettings) error {
				s.AdditionalTrustBundle, s.AdditionalNTPSources = rack, "time.example.com,192.0.2.1"
				return nil
			})
			require.NoError(t, err)
			_, err = w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error {
				s.Proxy.HTTPS, s.AdditionalNTPSources = "http://proxy.example.com/100%25", "time.of.the.cluster"
				return nil
			})
			require.NoError(t, err)
			w.install(c, keys)
			data, _, err := w.FirstBoot(t.Context(), keys[0])
			require.NoError(t, err)
			for _, find := range finds {
				assert.Contains(t, string(data), find)
			}
			trusted := "the service's\n" + rack
			if kind == "cloud-init" {
				assert.Contains(t, string(data), strings.ReplaceAll(trusted, "\n", `\n`))
				return
			}
			assert.Contains(t, string(data), base64.StdEncoding.EncodeToString([]byte(trusted)))
			host, err := base64.StdEncoding.DecodeString(regexp.MustCompile(`host.json".*?base64,([^"]*)`).FindStringSubmatch(string(data))[1])
			require.NoError(t, err)
			var facts map[string]string
			require.NoError(t, json.Unmarshal(host, &facts))
			assert.Equal(t, trusted, facts["ca"])
			assert.Equal(t, "http://proxy.example.com/100%25", facts["https_proxy"])
			assert.NotContains(t, facts, "http_proxy", "unset fields are absent")
			assert.Equal(t, "time.example.com,192.0.2.1,time.of.the.cluster", facts["ntp_sources"])
		})
	}
}

func TestOnlyAnInstalledSystemHasThePullSecretOfItsCluster(t *testing.T) {
	t.Parallel()
	const secret = `{"auths":{"registry.example.com":{"auth":"dGVuYW50OnBhc3M="}}}`
	for kind, find := range map[string]string{
		"ignition":   `{"path": "/var/lib/kubelet/config.json", "mode": 384, "overwrite": true, "contents": {"source": "data:;base64,` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"}}`,
		"cloud-init": `- {path: "/var/lib/kubelet/config.json", permissions: "0600", content: ` + strconv.Quote(secret) + `}`,
	} {
		w := newTestEnv(t)
		w.OSImages[0].FirstBoot = kind
		c, keys := w.ready(2)
		_, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.PullSecret = secret; return nil })
		require.NoError(t, err)
		w.install(c, keys)
		for _, key := range keys {
			data, _, err := w.FirstBoot(t.Context(), key)
			require.NoError(t, err)
			assert.Contains(t, string(data), find, "master and worker run what is pulled")
			w.jump(time.Minute)
			got, err := w.NextInstructions(t.Context(), key, 0)
			require.NoError(t, err)
			assert.NotContains(t, fmt.Sprint(got.Steps), "dGVuYW50OnBhc3M=")
		}
		for _, filter := range []domain.EventFilter{{ClusterID: c.ID}, {InfraEnvID: keys[0].InfraEnvID}} {
			found, err := w.ListEvents(t.Context(), admin, filter)
			require.NoError(t, err)
			assert.NotContains(t, fmt.Sprint(found.Items), "dGVuYW50OnBhc3M=")
		}
		_, err = w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error { s.PullSecret = "5 dGVuYW50OnBhc3M="; return nil })
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "dGVuYW50OnBhc3M=")
	}
}

func TestASystemWithCloudInitRepeatsItsReport(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not here")
	}
	var reports atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reports.Add(1) < 4 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		assert.JSONEq(t, `{"current_stage":"Done"}`, string(body))
	}))
	t.Cleanup(server.Close)
	w := newTestEnv(t)
	w.BaseURL, w.OSImages[0].FirstBoot = server.URL, "cloud-init"
	c, keys := w.ready(1)
	w.install(c, keys)
	data, _, err := w.FirstBoot(t.Context(), keys[0])
	require.NoError(t, err)
	var config struct {
		Commands [][]string `json:"runcmd"`
	}
	require.NoError(t, yaml.Unmarshal(data, &config))
	require.Len(t, config.Commands, 1)
	impatient := filepath.Join(t.TempDir(), "sleep")
	require.NoError(t, os.WriteFile(impatient, []byte("#!/bin/sh\n"), 0o700))
	command := exec.CommandContext(t.Context(), config.Commands[0][0], config.Commands[0][1:]...)
	command.Env = []string{"PATH=" + filepath.Dir(impatient) + ":" + os.Getenv("PATH")}
	said, err := command.CombinedOutput()
	require.NoError(t, err, string(said))
	assert.EqualValues(t, 4, reports.Load())
}

func TestASlowDiskKeepsAHostFromInstallingUnlessItIsIgnored(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	install := func() {
		w.pass(time.Second)
		_, err := w.InstallCluster(t.Context(), alice, c.ID)
		require.NoError(t, err)
		require.Contains(t, w.steps(keys[0]), agentproto.StepDiskSpeed)
		w.reply(keys[0], agentproto.StepDiskSpeed, 0, `{"io_sync_duration":51}`)
		w.reply(keys[0], agentproto.StepImageAvailability, 0, `{"images":[{"name":"x","result":"success"}]}`)
	}
	install()
	assert.Equal(t, lifecycle.ClusterInsufficient, w.clusterState(c.ID))
	assert.Equal(t, lifecycle.Insufficient, w.state(keys[0]))

	_, err := w.UpdateCluster(t.Context(), alice, c.ID, func(s *domain.ClusterSettings) error {
		s.IgnoredValidations = []string{validate.DiskSpeed}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, lifecycle.ClusterReady, w.clusterState(c.ID))
	install()
	assert.Equal(t, lifecycle.ClusterInstalling, w.clusterState(c.ID))
	assert.Equal(t, lifecycle.Installing, w.state(keys[0]))
}

func TestAnAgentThatKeepsEndingFailsItsInstallation(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	again := func() {
		_, err := w.RegisterHost(t.Context(), keys[0].InfraEnvID, domain.NewHost{HostID: keys[0].HostID, BootID: "1"})
		require.NoError(t, err)
	}
	for range lifecycle.MostAttempts {
		w.progress(keys[0], lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting)
		again()
		require.Equal(t, lifecycle.Installing, w.state(keys[0]))
	}
	w.progress(keys[0], lifecycle.StageStarting)
	again()
	assert.Equal(t, lifecycle.Failed, w.state(keys[0]))
	assert.Equal(t, lifecycle.ClusterFailed, w.clusterState(c.ID))
	h, err := w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	assert.Contains(t, h.StateInfo, "ended again and again")

	// An installation after a reset begins with all its attempts.
	_, err = w.ResetCluster(t.Context(), alice, c.ID)
	require.NoError(t, err)
	h, err = w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	assert.Zero(t, h.Attempts)
}

// TestAHostJoinsOnlyWhenItIsKnownToFindTheCluster whenever it is approved: what its agent has not been asked about is pending.
func TestAHostJoinsOnlyWhenItIsKnownToFindTheCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		vips     []string
		url      string
		step     agentproto.StepType
		bad, yes string
	}{
		"by its names": {
			nil, "", agentproto.StepDomainResolution, `{"resolutions":[{"domain_name":"api.c.example.com"}]}`,
			`{"resolutions":[{"domain_name":"api.c.example.com","ipv4_addresses":["192.0.2.9"]},{"domain_name":"api-int.c.example.com","ipv4_addresses":["192.0.2.9"]},
				{"domain_name":"console-openshift-console.apps.c.example.com","ipv4_addresses":["192.0.2.9"]}]}`,
		},
		"by where it takes nodes":   {nil, "https://192.0.2.9:20443", agentproto.StepAPIConnectivity, `{"is_success":false,"download_error":"no route to host"}`, `{"is_success":true}`},
		"by the address of its API": {[]string{"192.0.2.9"}, "", agentproto.StepAPIConnectivity, `{"is_success":false,"download_error":"no route to host"}`, `{"is_success":true}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			cluster := w.cluster(alice, func(s *domain.ClusterSettings) {
				s.Imported, s.BaseDNSDomain, s.APIVIPs, s.APIURL = true, "example.com", c.vips, c.url
			})
			key := w.register(w.infraEnv(alice), "joins")
			_, err := w.BindHost(t.Context(), alice, key, cluster.ID, false)
			require.NoError(t, err)
			h, err := w.GetHost(t.Context(), alice, key)
			require.NoError(t, err)
			assert.Equal(t, lifecycle.Insufficient, h.State)
			assert.Contains(t, h.StateInfo, "its agent is asked")
			_, err = w.InstallHost(t.Context(), alice, key)
			assert.Equal(t, "HostNotReady", domain.ReasonOf(err))
			assert.Contains(t, w.steps(key), c.step, "at once")

			w.reply(key, c.step, 0, c.bad)
			assert.Equal(t, lifecycle.Insufficient, w.state(key))
			w.reply(key, c.step, 0, c.yes)
			assert.Equal(t, lifecycle.Known, w.state(key))
			_, err = w.InstallHost(t.Context(), alice, key)
			require.NoError(t, err)
		})
	}
}

// TestAHostThatCameBackWithoutItsPastIsRestored as installed: its machine was booted from the discovery image after the service lost its data.
func TestAHostThatCameBackWithoutItsPastIsRestored(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(domain.Kubernetes)
	c, err := w.CreateCluster(t.Context(), domain.Kubernetes, domain.NewCluster{
		Name: "c", Restored: &domain.Restored{InstalledAt: w.clock(), Kubeconfig: "k"}, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1},
	})
	require.NoError(t, err)
	assert.Equal(t, lifecycle.ClusterInstalled, c.Status)
	from := domain.RestoredHost{ClusterID: c.ID, Role: "master", Bootstrap: true, InstalledAt: w.clock()}
	for name, key := range map[string]domain.HostKey{
		"unknown": {InfraEnvID: e.ID, HostID: uuid.NewString()}, "registered already": w.register(e, "n"),
	} {
		h, err := w.RestoreHost(t.Context(), domain.Kubernetes, key, from)
		require.NoError(t, err, name)
		assert.Equal(t, lifecycle.Installed, h.State, name)
		assert.Equal(t, "master", h.Role, name)
		_, err = w.InstallHost(t.Context(), domain.Kubernetes, key)
		require.Error(t, err, name)
		assert.Empty(t, w.steps(key), "no disk is written")
		_, err = w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: key.HostID, BootID: "2"})
		assert.Equal(t, "HostInstalled", domain.ReasonOf(err), name)
		again, err := w.RestoreHost(t.Context(), domain.Kubernetes, key, from)
		require.NoError(t, err, name)
		assert.Equal(t, h.Revision, again.Revision, "once is enough")
	}
	cluster, err := w.GetCluster(t.Context(), domain.Kubernetes, c.ID)
	require.NoError(t, err)
	assert.Equal(t, 2, cluster.InstalledHostCount)

	old, keys := w.ready(1)
	_, err = w.RestoreHost(t.Context(), domain.Kubernetes, keys[0], domain.RestoredHost{ClusterID: old.ID})
	assert.Equal(t, "ClusterNotInstalled", domain.ReasonOf(err))
	restored, err := w.RestoreCluster(t.Context(), domain.Kubernetes, old.ID, domain.Restored{InstalledAt: w.clock()})
	require.NoError(t, err)
	assert.Equal(t, lifecycle.ClusterInstalled, restored.Status, "a database from before the installation says less than the custom resource")
}

// A restored host reports its hardware no more. Its Node is found by its name, and certificates are approved for its addresses, as they are when the host is released.
func TestARestoredHostIsTheNodeThatItWas(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(domain.Kubernetes)
	c, err := w.CreateCluster(t.Context(), domain.Kubernetes, domain.NewCluster{
		Name: "c", Restored: &domain.Restored{InstalledAt: w.clock(), Kubeconfig: "k"}, ClusterSettings: domain.ClusterSettings{OpenshiftVersion: "4.18", ControlPlaneCount: 1},
	})
	require.NoError(t, err)
	from := domain.RestoredHost{ClusterID: c.ID, DayTwo: true, InstalledAt: w.clock(), Hostname: "worker-7", Addresses: []string{"192.0.2.77/24"}}
	h, err := w.RestoreHost(t.Context(), domain.Kubernetes, domain.HostKey{InfraEnvID: e.ID, HostID: uuid.NewString()}, from)
	require.NoError(t, err)
	assert.Equal(t, "worker-7", h.Hostname())
	require.Len(t, h.HeldAddresses(), 1)
	assert.Equal(t, "192.0.2.77", h.HeldAddresses()[0].Address.String())
	known, err := w.GetHost(t.Context(), admin, w.register(e, "other"))
	require.NoError(t, err)
	h, err = w.RestoreHost(t.Context(), domain.Kubernetes, known.HostKey, from)
	require.NoError(t, err)
	assert.Equal(t, "other", h.Hostname(), "it has reported meanwhile")
	assert.Equal(t, known.Summary.Addresses, h.Summary.Addresses)
}

// A backup may be of the minutes in which a host was written, or of a time at which its first installation had failed.
func TestAHostThatABackupHasHalfInstalledIsRestored(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]bool{"writes its disk": false, "had failed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			c, keys := w.ready(1)
			w.install(c, keys)
			w.progress(keys[0], lifecycle.StageStarting, lifecycle.StageInstalling, lifecycle.StageWriting)
			require.Equal(t, lifecycle.InstallingInProgress, w.state(keys[0]))
			if fails {
				w.progress(keys[0], lifecycle.StageFailed)
				require.Equal(t, lifecycle.Failed, w.state(keys[0]))
			}
			from := domain.RestoredHost{ClusterID: c.ID, Role: "master", Bootstrap: true, InstalledAt: w.clock().Add(time.Hour)}
			_, err := w.RestoreCluster(t.Context(), domain.Kubernetes, c.ID, domain.Restored{InstalledAt: from.InstalledAt})
			require.NoError(t, err)
			h, err := w.RestoreHost(t.Context(), domain.Kubernetes, keys[0], from)
			require.NoError(t, err)
			assert.Equal(t, lifecycle.Installed, h.State)
			assert.Equal(t, lifecycle.StageDone, h.Progress.Stage)
			w.pass(10 * time.Minute)
			assert.Equal(t, lifecycle.Installed, w.state(keys[0]), "it does not poll, as a system without an agent")
			assert.Equal(t, lifecycle.ClusterInstalled, w.clusterState(c.ID))

			// The installation is known now: what a user does with the host since stays.
			_, err = w.ResetHost(t.Context(), domain.Kubernetes, keys[0])
			require.NoError(t, err)
			h, err = w.RestoreHost(t.Context(), domain.Kubernetes, keys[0], from)
			require.NoError(t, err)
			assert.Equal(t, lifecycle.ResettingPendingUserAction, h.State)
		})
	}
}
