// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/domain"
	"github.com/muster-io/muster/agent-service/internal/hardware"
	"github.com/muster-io/muster/agent-service/internal/lifecycle"
	"github.com/muster-io/muster/agent-service/internal/postgrestest"
	"github.com/muster-io/muster/agent-service/internal/transaction"
)

// onBoth runs a test with SQLite and with PostgreSQL.
func onBoth(t *testing.T, test func(t *testing.T, w *testEnv)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { test(t, newTestEnv(t)) })
	t.Run("postgres", func(t *testing.T) {
		w := &testEnv{t: t, store: open(t, postgrestest.Start(t).URL), now: time.Now()}
		w.Service = w.restart()
		test(t, w)
	})
}

// server is a machine with two disks.
type server struct {
	*testEnv
	key domain.HostKey
	// boots counts them.
	boots int
}

const installedSerial, otherSerial = "S-INSTALLED", "S-OTHER"

func disks(i *hardware.Inventory) {
	disk := func(name, serial string, size int64) hardware.Disk {
		return hardware.Disk{Name: name, ID: "/dev/" + name, Path: "/dev/" + name, Serial: serial, SizeBytes: size, InstallationEligibility: hardware.Eligibility{Eligible: true}}
	}
	i.Disks = []hardware.Disk{disk("sda", installedSerial, 200e9), disk("sdb", otherSerial, 400e9)}
}

// boot registers the machine as it does when it has booted the image of an InfraEnv.
func (s *server) boot(e *domain.InfraEnv, change ...func(*hardware.Inventory)) {
	s.t.Helper()
	s.boots++
	s.key.InfraEnvID = e.ID
	_, err := s.RegisterHost(s.t.Context(), e.ID, domain.NewHost{HostID: s.key.HostID, AgentVersion: "test", Fingerprint: "f", BootID: uuid.NewString()})
	require.NoError(s.t, err)
	s.steps(s.key)
	s.reply(s.key, agentproto.StepInventory, 0, machine("n1", append([]func(*hardware.Inventory){disks}, change...)...))
}

// installed is a machine that was installed in a cluster, and what it booted from.
func (w *testEnv) installed(wipe domain.Wipe) (*server, *domain.InfraEnv, *domain.Cluster) {
	w.t.Helper()
	e := w.infraEnv(alice)
	_, err := w.UpdateInfraEnv(w.t.Context(), alice, e.ID, func(s *domain.InfraEnvSettings) error { s.Wipe = wipe; return nil })
	require.NoError(w.t, err)
	c := w.cluster(alice, func(s *domain.ClusterSettings) { s.ControlPlaneCount, s.WorkerCount = 1, 0 })
	s := &server{testEnv: w, key: domain.HostKey{HostID: uuid.NewString()}}
	s.boot(e)
	_, err = w.BindHost(w.t.Context(), alice, s.key, c.ID, false)
	require.NoError(w.t, err)
	w.install(c, []domain.HostKey{s.key})
	require.Equal(w.t, lifecycle.Installing, w.state(s.key))
	w.progress(s.key, lifecycle.StageWriting, lifecycle.StageRebooting, lifecycle.StageDone)
	require.Equal(w.t, lifecycle.Installed, w.state(s.key))
	return s, e, c
}

// asked is the wipe-disk step of the next instructions; nil for none.
func (s *server) asked() (*agentproto.Step, agentproto.WipeArgs) {
	s.t.Helper()
	got, err := s.NextInstructions(s.t.Context(), s.key, 0)
	require.NoError(s.t, err)
	for _, step := range got.Steps {
		if step.Type == agentproto.StepWipeDisk {
			var args agentproto.WipeArgs
			require.NoError(s.t, json.Unmarshal([]byte(step.Args[0]), &args))
			return &step, args
		}
	}
	return nil, agentproto.WipeArgs{}
}

func (s *server) wiped(step *agentproto.Step, args agentproto.WipeArgs) {
	s.t.Helper()
	require.NotNil(s.t, step)
	require.NoError(s.t, s.ReportStep(s.t.Context(), s.key, agentproto.StepReply{Type: step.Type, ID: step.ID, Output: agentproto.Argument(agentproto.WipeReply(args))}))
}

func (s *server) bindRefused(c *domain.Cluster) {
	s.t.Helper()
	_, err := s.BindHost(s.t.Context(), alice, s.key, c.ID, false)
	assert.Equal(s.t, "HostNotReleased", domain.ReasonOf(err))
}

func (s *server) host() *domain.Host {
	s.t.Helper()
	h, err := s.GetHost(s.t.Context(), admin, s.key)
	require.NoError(s.t, err)
	return h
}

func TestAFreedMachineIsWipedBeforeItIsFree(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *testEnv) {
		s, e, _ := w.installed(domain.WipeInstalledDisk)
		assert.Equal(t, []hardware.DiskIdentity{{Serial: installedSerial, SizeBytes: 200e9}}, s.host().Written, "it is recorded before it is written")
		next := w.cluster(alice)
		_, err := w.UnbindHost(t.Context(), alice, s.key)
		require.NoError(t, err)
		require.Equal(t, lifecycle.UnbindingPendingUserAction, w.state(s.key))
		// Names of disks are other ones in the next boot, and so does the service not look at them.
		s.boot(e, func(i *hardware.Inventory) {
			i.Disks[0].Name, i.Disks[0].Path, i.Disks[0].ID, i.Disks[1].Name, i.Disks[1].Path, i.Disks[1].ID = "sdb", "/dev/sdb", "/dev/sdb", "sda", "/dev/sda", "/dev/sda"
		})
		h := s.host()
		assert.Equal(t, lifecycle.InsufficientUnbound, h.State)
		assert.Contains(t, h.StateInfo, "being wiped")
		s.bindRefused(next)
		w.Service = w.restart() // its memory is gone, what it has to wipe is not
		s.boot(e)
		s.bindRefused(next)
		step, args := s.asked()
		require.NotNil(t, step)
		assert.Equal(t, []agentproto.DiskIdentity{{Serial: installedSerial, SizeBytes: 200e9}}, args.Disks, "and no other disk")

		// It fails first.
		require.NoError(t, w.ReportStep(t.Context(), s.key, agentproto.StepReply{Type: step.Type, ID: step.ID, ExitCode: 1, Error: "disk with serial number " + installedSerial + " (sda): it is read only"}))
		h = s.host()
		assert.Equal(t, lifecycle.InsufficientUnbound, h.State)
		assert.Contains(t, h.StateInfo, "could not be wiped: disk with serial number "+installedSerial)
		s.bindRefused(next)
		assert.Contains(t, w.events(domain.EventFilter{InfraEnvID: e.ID}), "host_wipe_failed")

		s.boot(e)
		step, args = s.asked()
		s.wiped(step, args)
		h = s.host()
		assert.Equal(t, lifecycle.KnownUnbound, h.State, h.StateInfo)
		assert.Empty(t, h.Written)
		assert.False(t, h.Release.Underway())
		assert.Subset(t, w.events(domain.EventFilter{InfraEnvID: e.ID}), []string{"host_wiped", "host_released"})
		step, _ = s.asked()
		assert.Nil(t, step, "once")
		_, err = w.BindHost(t.Context(), alice, s.key, next.ID, false)
		require.NoError(t, err)
		assert.Zero(t, s.host().Release)
	})
}

// Each case is a reply to a wipe that is not one: the host stays where it is.
func TestAMachineIsNotFreeByWhatItSays(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, c := w.installed(domain.WipeInstalledDisk)
	_, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	premature := agentproto.StepReply{Type: agentproto.StepWipeDisk, Output: `{"disks":[{"serial":"` + installedSerial + `","size_bytes":200000000000}]}`}
	require.NoError(t, w.ReportStep(t.Context(), s.key, premature))
	s.boot(e)
	step, args := s.asked()
	require.NotNil(t, step)
	for name, reply := range map[string]agentproto.StepReply{
		"no step was sent":            premature,
		"another step":                {Type: step.Type, ID: "wipe-disk-00000000", Output: agentproto.Argument(agentproto.WipeReply(args))},
		"nothing":                     {Type: step.Type, ID: step.ID},
		"no disk":                     {Type: step.Type, ID: step.ID, Output: `{"disks":[]}`},
		"another disk":                {Type: step.Type, ID: step.ID, Output: `{"disks":[{"serial":"` + otherSerial + `","size_bytes":200000000000}]}`},
		"the disk with another size":  {Type: step.Type, ID: step.ID, Output: `{"disks":[{"serial":"` + installedSerial + `","size_bytes":1}]}`},
		"an exit code, with the disk": {Type: step.Type, ID: step.ID, ExitCode: 1, Output: agentproto.Argument(agentproto.WipeReply(args))},
	} {
		require.NoError(t, w.ReportStep(t.Context(), s.key, reply), name)
		assert.Equal(t, lifecycle.InsufficientUnbound, w.state(s.key), name)
		s.bindRefused(c)
	}
	s.wiped(step, args)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
	// Its repeated reply is of a release that has ended.
	s.wiped(step, args)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
}

func TestAMachineIsWipedAsItsInfraEnvSays(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		wipe   domain.Wipe
		change func(*hardware.Inventory)
		want   []string
		says   string
	}{
		"by default nothing":          {},
		"nothing":                     {wipe: domain.WipeNone},
		"the installed disk":          {wipe: domain.WipeInstalledDisk, want: []string{installedSerial}},
		"everything":                  {wipe: domain.WipeAllDisks, want: []string{installedSerial, otherSerial}},
		"what cannot be installed to": {wipe: domain.WipeAllDisks, want: []string{installedSerial, otherSerial}, change: func(i *hardware.Inventory) { i.Disks[1].InstallationEligibility.Eligible = false }},
		"not what can be pulled out":  {wipe: domain.WipeAllDisks, want: []string{installedSerial}, change: func(i *hardware.Inventory) { i.Disks[1].Removable = true }},
		"not what is elsewhere":       {wipe: domain.WipeAllDisks, want: []string{installedSerial}, change: func(i *hardware.Inventory) { i.Disks[1].Remote = true }},
		"more disks than can be wiped": {wipe: domain.WipeAllDisks, says: "the machine has 65 fixed disks, and 64 can be wiped at a time", change: func(i *hardware.Inventory) {
			for n := range 63 {
				disk := i.Disks[1]
				disk.Name, disk.Serial = fmt.Sprint("sdc", n), fmt.Sprint("S", n)
				i.Disks = append(i.Disks, disk)
			}
		}},
		"a disk that has no serial now": {wipe: domain.WipeAllDisks, change: func(i *hardware.Inventory) { i.Disks[1].Serial = "" }, says: "without a serial number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestEnv(t)
			s, e, cluster := w.installed(c.wipe)
			_, err := w.UnbindHost(t.Context(), alice, s.key)
			require.NoError(t, err)
			if c.change == nil {
				c.change = func(*hardware.Inventory) {}
			}
			s.boot(e, c.change)
			step, args := s.asked()
			var serials []string
			for _, disk := range args.Disks {
				serials = append(serials, disk.Serial)
			}
			assert.Equal(t, c.want, serials)
			if c.says != "" {
				assert.Contains(t, s.host().StateInfo, c.says)
				s.bindRefused(cluster)
				return
			}
			if step != nil {
				s.wiped(step, args)
			}
			assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
		})
	}
}

// What a MachinePool asks for counts with what the InfraEnv says, and does not become less while the host is bound.
func TestAMachineOfAPoolIsWipedByDefault(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, c := w.installed("")
	pool := func(wipe domain.Wipe) {
		_, err := w.UpdateHost(t.Context(), alice, s.key, func(h *domain.HostSettings) error { h.Wipe = wipe; return nil })
		require.NoError(t, err)
	}
	_, err := w.UpdateHost(t.Context(), alice, s.key, func(h *domain.HostSettings) error { h.Wipe = "Everything"; return nil })
	assert.Equal(t, "WipeInvalid", domain.ReasonOf(err))
	pool(domain.WipeInstalledDisk)
	pool(domain.WipeNone)
	pool("")
	assert.Equal(t, domain.WipeInstalledDisk, s.host().Wipe)
	_, err = w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	s.boot(e)
	s.bindRefused(c)
	step, args := s.asked()
	s.wiped(step, args)
	require.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
	assert.Empty(t, s.host().Wipe)
}

// A machine that has to be wiped is not free in another InfraEnv either, and what is installed meanwhile is not wiped for a release that is past.
func TestAMachineTakesItsReleaseAlong(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, before, c := w.installed(domain.WipeInstalledDisk)
	_, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	after := w.infraEnv(alice)
	s.boot(after)
	s.bindRefused(c)
	step, args := s.asked()
	s.wiped(step, args)
	require.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
	s.boot(before)
	step, _ = s.asked()
	assert.Nil(t, step)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
}

// A machine that was written to is not moved to another cluster as it is.
func TestAMachineThatWasWrittenToIsNotMoved(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, c := w.installed(domain.WipeInstalledDisk)
	_, err := w.ResetHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	s.boot(e)
	require.True(t, lifecycle.Idle(w.state(s.key)), w.state(s.key))
	_, err = w.MoveHost(t.Context(), alice, s.key, w.cluster(alice).ID)
	assert.Equal(t, "HostNotReleased", domain.ReasonOf(err))
	_, err = w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	s.bindRefused(c)
	step, args := s.asked()
	s.wiped(step, args)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
}

// An agent of assisted-service wipes nothing: the host says so, and stays.
func TestAnAgentThatDoesNotWipeIsNamed(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, c := w.installed(domain.WipeInstalledDisk)
	require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, false), "a machine never keeps its cluster")
	w.pass(4 * time.Minute)
	_, err := w.RegisterHost(t.Context(), e.ID, domain.NewHost{HostID: s.key.HostID, AgentVersion: "quay.io/agent:1"})
	require.NoError(t, err)
	w.steps(s.key)
	w.reply(s.key, agentproto.StepInventory, 0, machine("n1", disks))
	assert.Contains(t, s.host().StateInfo, "agent quay.io/agent:1 does not wipe disks")
	s.bindRefused(w.cluster(alice))
	step, _ := s.asked()
	assert.Nil(t, step)
}

// residentStamps are those that the token of the installed system carries.
func (s *server) residentStamps() domain.Stamps {
	return domain.Stamps{Binding: s.host().Stamps.Binding}
}

// polls is a poll of the installed system.
func (s *server) polls(carried domain.Stamps) []agentproto.Step {
	s.t.Helper()
	got, err := s.NextInstructionsWith(s.t.Context(), s.key, carried, "", 0)
	require.NoError(s.t, err)
	return got.Steps
}

func TestAnInstalledSystemIsAskedToRestart(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *testEnv) {
		s, e, _ := w.installed(domain.WipeNone)
		carried := s.residentStamps()
		for _, step := range s.polls(carried) {
			assert.Equal(t, agentproto.StepInventory, step.Type, "it serves its cluster")
		}
		h, err := w.UnbindHost(t.Context(), alice, s.key)
		require.NoError(t, err)
		assert.Equal(t, lifecycle.Reclaiming, h.State)
		w.Service = w.restart()
		steps := s.polls(carried)
		require.Len(t, steps, 1)
		require.Equal(t, agentproto.StepBootArtifacts, steps[0].Type)
		assert.Contains(t, steps[0].Args[0], `"initrd_sha256":"22"`)
		require.NoError(t, w.ReportStep(t.Context(), s.key, agentproto.StepReply{Type: steps[0].Type, ID: steps[0].ID}))
		assert.Equal(t, lifecycle.ReclaimingRebooting, w.state(s.key))
		w.Service = w.restart()
		for range 2 { // the machine restarts before it is told, and is told again
			w.pass(61 * time.Second)
			steps = s.polls(carried)
			require.Len(t, steps, 1)
			assert.Equal(t, agentproto.StepRebootForReclaim, steps[0].Type)
			assert.Contains(t, steps[0].Args[0], `"kernel_sha256":"11"`, "what was loaded may be gone")
		}
		s.boot(e)
		assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
		assert.False(t, s.host().Resident)
		got, err := w.NextInstructionsWith(t.Context(), s.key, carried, "", 0)
		require.NoError(t, err)
		assert.True(t, got.Ended, "the token of the installed system ended")
	})
}

// A system that came up from its disk, and could not join its cluster, asks for instructions as one that did: it restarts into the discovery image when it is released.
func TestASystemThatDidNotJoinIsAskedToRestart(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	e := w.infraEnv(alice)
	c := w.cluster(alice, func(s *domain.ClusterSettings) { s.ControlPlaneCount, s.WorkerCount = 1, 0 })
	s := &server{testEnv: w, key: domain.HostKey{HostID: uuid.NewString()}}
	s.boot(e)
	_, err := w.BindHost(t.Context(), alice, s.key, c.ID, false)
	require.NoError(t, err)
	w.install(c, []domain.HostKey{s.key})
	w.progress(s.key, lifecycle.StageWriting, lifecycle.StageRebooting)
	carried := s.residentStamps()
	s.polls(carried)
	_, err = w.UnbindHost(t.Context(), alice, s.key)
	require.Equal(t, "HostInstalling", domain.ReasonOf(err))
	w.progress(s.key, lifecycle.StageFailed)
	require.Equal(t, lifecycle.Failed, w.state(s.key))
	h, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	assert.Equal(t, lifecycle.Reclaiming, h.State)
	steps := s.polls(carried)
	require.Len(t, steps, 1)
	assert.Equal(t, agentproto.StepBootArtifacts, steps[0].Type)
	s.boot(e)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
}

// An installed system is asked for its addresses. Whatever else it says of its machine changes nothing: it is installed and wiped by what the discovery image said.
func TestAnInstalledSystemReportsItsAddressesAlone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *testEnv) {
		s, e, _ := w.installed(domain.WipeInstalledDisk)
		lies := func(address string) {
			s.reply(s.key, agentproto.StepInventory, 0, machine("other", func(i *hardware.Inventory) {
				i.Interfaces[0].MACAddress, i.Interfaces[0].IPV4Addresses = "52:54:00:00:00:99", []string{address}
			}))
		}
		before := s.host()
		lies("192.0.2.66/24")
		assert.Equal(t, before.Summary, s.host().Summary, "it did not ask for instructions as an installed system")
		steps := s.polls(s.residentStamps())
		require.Len(t, steps, 1)
		require.Equal(t, agentproto.StepInventory, steps[0].Type)
		lies("192.0.2.67/24")
		w.Service = w.restart()
		h := s.host()
		assert.Equal(t, before.Summary, h.Summary)
		assert.Equal(t, before.InventoryAt, h.InventoryAt)
		require.Len(t, h.HeldAddresses(), 1)
		assert.Equal(t, "192.0.2.67", h.HeldAddresses()[0].Address.String())
		assert.False(t, h.Discovered(h.HeldAddresses()[0].Address))
		revision := h.Revision
		lies("192.0.2.67/24")
		assert.Equal(t, revision, s.host().Revision, "no news, no write")

		_, err := w.UnbindHost(t.Context(), alice, s.key)
		require.NoError(t, err)
		lies("192.0.2.68/24")
		assert.Equal(t, before.Summary.Targets, s.host().Summary.Targets, "it is released")
		s.boot(e)
		assert.False(t, s.host().RunsFromDisk())
		assert.Equal(t, before.Summary.MACAddresses, s.host().Summary.MACAddresses)
	})
}

func TestAnInstalledSystemThatCannotRestartSaysSo(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, _ := w.installed(domain.WipeNone)
	carried := s.residentStamps()
	s.polls(carried)
	_, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	for range 3 {
		steps := s.polls(carried)
		require.Len(t, steps, 1)
		require.NoError(t, w.ReportStep(t.Context(), s.key, agentproto.StepReply{Type: steps[0].Type, ID: steps[0].ID, ExitCode: 1, Error: "operation not permitted"}))
	}
	h := s.host()
	assert.Equal(t, lifecycle.UnbindingPendingUserAction, h.State)
	assert.Contains(t, h.StateInfo, "operation not permitted")
	s.boot(e)
	assert.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
}

// A machine that dies on its way back is given up after the time-out of silence, one that never asked at once.
func TestADeadMachineIsGivenUp(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, _, c := w.installed(domain.WipeInstalledDisk)
	s.polls(s.residentStamps())
	require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, false))
	assert.Equal(t, lifecycle.Reclaiming, w.state(s.key))
	w.pass(3*time.Minute + 2*time.Second)
	assert.Equal(t, lifecycle.UnbindingPendingUserAction, w.state(s.key))
	s.bindMustBoot(w.cluster(alice))
}

func (s *server) bindMustBoot(c *domain.Cluster) {
	s.t.Helper()
	_, err := s.BindHost(s.t.Context(), alice, s.key, c.ID, false)
	assert.Equal(s.t, "HostMustBoot", domain.ReasonOf(err))
}

// The token of an installed system opens no step of an installation, whatever state the host is in.
func TestTheTokenOfAnInstalledSystemInstallsNothing(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	h, err := w.GetHost(t.Context(), admin, keys[0])
	require.NoError(t, err)
	got, err := w.NextInstructionsWith(t.Context(), keys[0], domain.Stamps{Binding: h.Stamps.Binding}, "", 0)
	require.NoError(t, err)
	assert.Empty(t, got.Steps)
	assert.Equal(t, []agentproto.StepType{agentproto.StepInstall}, w.steps(keys[0]), "and takes none from the agent")
}

// An InfraEnv that is deleted with a cluster takes no machine along that is on its way back: the record that its disks are to be wiped would be lost, and it would go on as a node of nothing.
func TestAnInfraEnvStaysUntilItsMachinesAreBack(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, w *testEnv) {
		s, e, c := w.installed(domain.WipeInstalledDisk)
		s.polls(s.residentStamps())
		stays := func(why string) {
			t.Helper()
			err := w.DeleteInfraEnv(t.Context(), alice, e.ID, false)
			require.Equal(t, "HostsBound", domain.ReasonOf(err))
			assert.ErrorContains(t, err, why)
		}
		stays("bound to clusters, " + s.key.HostID)
		require.NoError(t, w.DeleteCluster(t.Context(), alice, c.ID, false))
		assert.Equal(t, lifecycle.Reclaiming, w.state(s.key))
		stays("on their way back from clusters, " + s.key.HostID)
		s.boot(e)
		assert.Equal(t, lifecycle.InsufficientUnbound, w.state(s.key))
		stays("on their way back")
		step, args := s.asked()
		s.wiped(step, args)
		require.Equal(t, lifecycle.KnownUnbound, w.state(s.key))
		require.NoError(t, w.DeleteInfraEnv(t.Context(), alice, e.ID, false))
	})
}

// A machine that does not come back keeps its InfraEnv no longer than an hour, and not at all where it owes nothing.
func TestADeadMachineDoesNotKeepItsInfraEnv(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, e, _ := w.installed(domain.WipeInstalledDisk)
	_, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	require.Equal(t, lifecycle.UnbindingPendingUserAction, w.state(s.key))
	require.Equal(t, "HostsBound", domain.ReasonOf(w.DeleteInfraEnv(t.Context(), alice, e.ID, false)))
	w.jump(time.Hour)
	require.NoError(t, w.DeleteInfraEnv(t.Context(), alice, e.ID, false))

	s, e, _ = w.installed(domain.WipeNone)
	_, err = w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	require.NoError(t, w.DeleteInfraEnv(t.Context(), alice, e.ID, false))
}

// That a Node was Ready tells a machine that died from one that joins. It is remembered until the machine is installed again.
// Whether a released host had become the Node of its name decides whether that Node is its own.
func TestAReleaseSaysWhetherTheHostHadJoined(t *testing.T) {
	for name, c := range map[string]struct {
		state lifecycle.State
		node  domain.Node
		want  bool
	}{
		"it was given its token":              {state: lifecycle.Failed, node: domain.Node{Name: "n"}},
		"it got a certificate":                {state: lifecycle.Failed, node: domain.Node{Name: "n", Certificates: []domain.Certificate{{Name: "csr"}}}, want: true},
		"its cluster had its Node":            {state: lifecycle.InstallingPendingUserAction, node: domain.Node{Name: "n", Seen: true, Own: true}, want: true},
		"its system was up":                   {state: lifecycle.AddedToExistingCluster, node: domain.Node{Name: "n"}, want: true},
		"its Node was Ready, and was deleted": {state: lifecycle.InstallingPendingUserAction, node: domain.Node{Name: "n", WasReady: true, Own: true}, want: true},
		"a former version saw a Node":         {state: lifecycle.InstallingInProgress, node: domain.Node{Name: "n", Seen: true, Ready: true, WasReady: true}},
	} {
		h := &domain.Host{ClusterID: "c", State: c.state, Node: c.node}
		h.Leave(time.Now())
		assert.Equal(t, c.want, !h.Release.Unjoined, name)
		assert.Equal(t, "n", h.Release.NodeName, "its token is deleted: %s", name)
	}
}

// A former version took the Node of another machine for that of a host which is being installed.
func TestANodeThatAFormerVersionSawIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, keys := w.ready(1)
	w.install(c, keys)
	require.NoError(t, w.store.Update(t.Context(), func(ctx context.Context, tx transaction.Tx) error {
		require.NoError(t, tx.LockClusters(ctx, c.ID))
		h, err := tx.Host(ctx, keys[0])
		require.NoError(t, err)
		h.Node = domain.Node{Name: "n", Seen: true, Ready: true, WasReady: true}
		return tx.PutHost(ctx, h)
	}))
	w.Service = w.restart()
	s := &server{testEnv: w, key: keys[0]}
	require.False(t, s.host().Joined())
	require.NoError(t, w.NoteNode(t.Context(), s.key, c.ID, domain.Node{Name: "n"}))
	assert.Equal(t, domain.Node{Name: "n"}, s.host().Node)
	require.NoError(t, w.NoteNode(t.Context(), s.key, c.ID, domain.Node{Name: "n", Seen: true}))
	assert.True(t, s.host().Joined())
}

func TestAHostRemembersThatItsNodeWasReady(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	s, _, c := w.installed(domain.WipeNone)
	for _, ready := range []bool{false, true, false} {
		before := s.host().Node.WasReady
		require.NoError(t, w.NoteNode(t.Context(), s.key, c.ID, domain.Node{Name: "n", Seen: true, Ready: ready}))
		assert.Equal(t, before || ready, s.host().Node.WasReady)
	}
	w.Service = w.restart()
	assert.Equal(t, domain.Node{Name: "n", Seen: true, WasReady: true, Own: true}, s.host().Node)
	_, err := w.UnbindHost(t.Context(), alice, s.key)
	require.NoError(t, err)
	assert.False(t, s.host().Node.WasReady)
}
