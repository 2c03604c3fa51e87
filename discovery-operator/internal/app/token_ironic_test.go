// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// getsAnotherToken restarts a machine when its ramdisk has taken the token of the node and not sent a heartbeat yet. Ironic gives one token: it refuses the ramdisk
// that runs then until its time-out, half an hour later, unless Ironic is asked to forget the token. That is so while an image is to be written, and while a
// machine is to be cleaned.
func getsAnotherToken(t *testing.T, i *ironictest.Ironic) {
	const machine = 4
	slow, _ := newManualBench(t, i, machine)
	w, h := slow.testEnv, slow.h
	content := ironictest.System()
	sum := sha256.Sum256(content)
	image := serveImage(t, "image.raw", content)
	agent := i.NewAgent(t, demo.Machine(machine))
	restarted := func(state string) {
		t.Helper()
		waits := func(*metal3v1.BareMetalHost) bool {
			n, err := slow.direct.Managed(t.Context(), h.Status.Provisioning.ID)
			return err == nil && n.State == state && !n.Locked
		}
		slow.sees(t, "Ironic waits for the ramdisk", waits)
		i.TakeToken(t, h.Spec.BootMACAddress)
		require.True(t, slow.node(t).AwaitsAgent())
		agent.Boot(t)
		slow.sees(t, "Ironic refuses the ramdisk", func(*metal3v1.BareMetalHost) bool {
			return strings.Contains(agent.Said(), "the token of this node was given before")
		})
		slow.hurries(t, 2*time.Minute, "Ironic has forgotten the token", func(*metal3v1.BareMetalHost) bool {
			n, err := slow.direct.Managed(t.Context(), h.Status.Provisioning.ID)
			return err == nil && !n.TokenTaken
		})
	}

	w.patch(h, `{"spec":{"automatedCleaningMode":"disabled","image":{"url":"`+image+`","checksum":"`+hex.EncodeToString(sum[:])+
		`","checksumType":"sha256","format":"raw"}}}`)
	restarted(hoststate.DeployWait)
	slow.becomes(t, metal3v1.StateProvisioned)
	assert.Equal(t, content[:446], agent.Content(t, 0, 446))

	agent.SwitchOff(t)
	w.patch(h, `{"spec":{"automatedCleaningMode":"metadata","image":null}}`)
	restarted(hoststate.CleanWait)
	slow.becomes(t, metal3v1.StateAvailable)
	assert.Equal(t, make([]byte, 512), agent.Content(t, 0, 512), "cleaned")
}
