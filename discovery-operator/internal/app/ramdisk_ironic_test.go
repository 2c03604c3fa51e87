// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// livesByItsRamdisk takes a machine through its life by what its ramdisk does: the agent reports the machine, stays, and takes an image at once.
// The machine is restarted once, to be cleaned. Its disk is a file.
func livesByItsRamdisk(t *testing.T, i *ironictest.Ironic) {
	const machine = 3
	w := newTestEnv(t)
	direct := i.Client(t)
	content := ironictest.System()
	sum := sha256.Sum256(content)
	image := serveImage(t, "image.raw", content)
	w.operate(asking(i), managing)
	w.discover("one", seldom, only(machine))
	agent := i.NewAgent(t, demo.Machine(machine))
	agent.Boot(t)
	h := w.machine(machine)
	slow := &bench{testEnv: w, ironic: i, direct: direct, h: h}
	slow.sees(t, "the agent has made the host known", func(h *metal3v1.BareMetalHost) bool {
		return h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.HardwareDetails != nil
	})
	require.Len(t, h.Status.HardwareDetails.Storage, 1)
	assert.Equal(t, agent.Disk, h.Status.HardwareDetails.Storage[0].Name)

	w.patch(h, `{"spec":{"image":{"url":"`+image+`","checksum":"`+hex.EncodeToString(sum[:])+`","checksumType":"sha256","format":"raw"},
		"rootDeviceHints":{"deviceName":"`+agent.Disk+`"}}}`)
	slow.becomes(t, metal3v1.StateProvisioned)
	assert.True(t, agent.Off(t))
	assert.Equal(t, content[:446], agent.Content(t, 0, 446))
	w.patch(h, noImage)
	slow.sees(t, "the host waits for a restart", func(h *metal3v1.BareMetalHost) bool { return w.tells(h, "restart the machine") })
	agent.Boot(t)
	slow.becomes(t, metal3v1.StateAvailable)
	assert.Equal(t, make([]byte, 512), agent.Content(t, 0, 512), "cleaned")
	assert.False(t, agent.Off(t))
}
