// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// A real Ironic has a machine boot a live ISO from the network: nothing is written to a disk, so that no ramdisk is waited for. Without the image the machine is
// available again, and does not boot the ISO any more.
func TestALiveISOInARealIronic(t *testing.T) {
	i := ironictest.Start(t, "iso", "IRONIC_DRIVERS=fake-hardware,manual-management")
	w := newTestEnv(t)
	direct, err := ironic.New(i.Config(), nil)
	require.NoError(t, err)
	uuid := i.Enrol(t, 1, 1)[0]
	w.operate(asking(i), managing)
	w.discover("all")
	h := w.host("node-00001")
	w.reaches(h, metal3v1.StateAvailable)
	slow := &bench{testEnv: w, ironic: i, direct: direct, h: h}
	content := ironictest.System()
	iso := serveImage(t, "live.iso", content) // Ironic asks whether it is there
	served := func(name string) string {
		text, err := os.ReadFile(filepath.Join(i.Dir, "data", "http", uuid, name))
		if os.IsNotExist(err) {
			return ""
		}
		require.NoError(t, err)
		return string(text)
	}

	w.patch(h, `{"spec":{"automatedCleaningMode":"disabled","image":{"url":"`+iso+`","format":"live-iso"}}}`)
	slow.sees(t, "the host is provisioned", func(h *metal3v1.BareMetalHost) bool {
		return h.Status.Provisioning.State == metal3v1.StateProvisioned && h.Status.ErrorType == ""
	})
	n := slow.node(t)
	assert.Equal(t, hoststate.Active, n.State)
	assert.Equal(t, hoststate.RamdiskDeploy, n.Deploy)
	assert.Equal(t, iso, n.Deployment["boot_iso"])
	script := served("config")
	assert.Contains(t, script, "goto boot_ramdisk")
	assert.Regexp(t, `:boot_ramdisk\nimgfree\nsanboot \S+/`+uuid+`/boot_iso\n`, script, "what the machine boots from the network")
	assert.Equal(t, string(content), served("boot_iso"))

	w.patch(h, `{"spec":{"image":null}}`)
	slow.sees(t, "the host is available", func(h *metal3v1.BareMetalHost) bool {
		return h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.ErrorType == ""
	})
	n = slow.node(t)
	assert.Empty(t, n.Instance)
	assert.Empty(t, served("config"))
	assert.Empty(t, served("boot_iso"))
}
