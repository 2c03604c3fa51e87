// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// TestMachinesWithoutControllersInARealIronic takes machines without a management controller through their lives. They share an Ironic, which costs seconds of a
// processor to start, and each has an operator that sees no other.
func TestMachinesWithoutControllersInARealIronic(t *testing.T) {
	t.Parallel()
	i := ironictest.Start(t, "manual", "IRONIC_DRIVERS=fake-hardware,manual-management")
	for name, run := range map[string]func(t *testing.T, i *ironictest.Ironic){
		"a deployment":                          deploys,
		"a live ISO":                            bootsAnISO,
		"a life by what the ramdisk does":       livesByItsRamdisk,
		"another token for a restarted machine": getsAnotherToken,
	} {
		t.Run(name, func(t *testing.T) { run(t, i) })
	}
}

// newManualBench is a bench whose machine has no management controller: its driver is manual-management. The machine has reported as a node and is available.
func newManualBench(t *testing.T, i *ironictest.Ironic, machine int) (b *bench, uuid string) {
	t.Helper()
	b = &bench{testEnv: newTestEnv(t), ironic: i, direct: i.Client(t)}
	uuid = i.Enrol(t, 1, machine)[0]
	b.operate(asking(i), managing, b.clock)
	b.discover("one", seldom, only(machine))
	b.h = b.machine(machine)
	b.reaches(b.h, metal3v1.StateAvailable)
	return b, uuid
}

// only makes a resource select one machine, where others of the same Ironic are those of other tests.
func only(machine int) func(*metal3v1.BareMetalHostDiscovery) {
	return func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Selector = fmt.Sprintf("hardware.hostname == 'node-%05d'", machine)
	}
}

// deploys provisions an unknown machine that has no management controller: Ironic, its driver manual-management and its
// deploy interface direct are real, and so is the agent of the ramdisk. It runs as a process, and a file is the disk of the machine.
func deploys(t *testing.T, i *ironictest.Ironic) {
	slow, uuid := newManualBench(t, i, 1)
	w, h := slow.testEnv, slow.h
	content := ironictest.System()
	sum := sha256.Sum256(content)
	image := serveImage(t, "image.raw", content) + "?token=hush" // Ironic masks it in what it shows
	patch := func(checksum string) string {
		return `{"spec":{"image":{"url":"` + image + `","checksum":"` + checksum + `","checksumType":"sha256","format":"raw"},"userData":{"name":"user"}}}`
	}
	w.configure("user", "userData", "#cloud-config\n")

	step := func(name string, run func(t *testing.T)) {
		t.Helper()
		require.True(t, t.Run(name, run), "the rest rests on it")
	}
	step("a machine whose agent is away is one clear sentence", func(t *testing.T) {
		w.patch(h, patch("00"+hex.EncodeToString(sum[1:])))
		slow.sees(t, "the agent is away", func(h *metal3v1.BareMetalHost) bool { return w.tells(h, "restart the machine") })
		assert.Equal(t, hoststate.ManualDriver, slow.node(t).Driver)
		assert.Equal(t, uuid, h.Status.Provisioning.ID)
	})
	agent := i.NewAgent(t, demo.Machine(1))
	agent.Boot(t)
	step("a wrong checksum is one clear sentence", func(t *testing.T) {
		w.patch(h, `{"spec":{"description":"the machine is on"}}`)
		slow.sees(t, "the checksum is wrong", func(h *metal3v1.BareMetalHost) bool {
			return h.Status.ErrorType == metal3v1.ProvisioningError && w.tells(h, "checksum")
		})
	})
	step("the right one is deployed, and the machine restarted", func(t *testing.T) {
		// A ramdisk that still runs would take the new token, which Ironic gives once, shortly before it is restarted.
		agent.SwitchOff(t)
		w.patch(h, patch(hex.EncodeToString(sum[:])))
		slow.sees(t, "the host waits for a restart", func(h *metal3v1.BareMetalHost) bool { return w.tells(h, "restart the machine") })
		agent.Boot(t)
		slow.becomes(t, metal3v1.StateProvisioned)
		assert.True(t, agent.Off(t), "Ironic switches the machine off through the agent")
		assert.Equal(t, 1, strings.Count(agent.Said(), "writing an image to "+agent.Disk), "once")
		assert.Equal(t, content[:446], agent.Content(t, 0, 446), "the boot loader of the image")
		assert.Contains(t, string(agent.Content(t, -2<<20, 2<<20)), "#cloud-config", "the config drive is at the end")
		assert.True(t, w.tells(h, "Switch it on"))
		n := slow.node(t)
		assert.Equal(t, hoststate.Active, n.State)
		assert.Equal(t, string(h.UID), n.Instance)
	})
	step("without the image, its user is asked to restart the machine, which is cleaned then", func(t *testing.T) {
		w.patch(h, noImage)
		slow.sees(t, "the host waits for a restart", func(h *metal3v1.BareMetalHost) bool { return w.tells(h, "restart the machine") })
		agent.Boot(t)
		slow.becomes(t, metal3v1.StateAvailable)
		n := slow.node(t)
		assert.Equal(t, "available", n.State)
		assert.Empty(t, n.Instance)
		assert.False(t, n.Maintenance)
		assert.Equal(t, make([]byte, 512), agent.Content(t, 0, 512), "the machine does not start from its disk")
	})
	step("it is deleted", func(t *testing.T) {
		require.NoError(t, w.Delete(t.Context(), h))
		w.gone(h)
		nodes, err := slow.direct.Nodes(t.Context(), "")
		require.NoError(t, err)
		for _, n := range nodes {
			assert.NotEqual(t, uuid, n.UUID)
			assert.False(t, strings.HasPrefix(n.Name, w.ns+"~"), "no node is the host's: %s", n.Name)
		}
	})
	log, err := os.ReadFile(filepath.Join(i.Dir, "log", "ironic.log"))
	require.NoError(t, err)
	assert.Equal(t, 1, strings.Count(string(log), "Successfully deployed node "+uuid), "Ironic deployed once")
}
