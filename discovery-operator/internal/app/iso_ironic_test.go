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
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// bootsAnISO has a machine boot a live ISO from the network: nothing is written to a disk, so that no ramdisk is waited for. Without the image the machine is
// available again, and does not boot the ISO any more.
func bootsAnISO(t *testing.T, i *ironictest.Ironic) {
	slow, uuid := newManualBench(t, i, 2)
	w, h := slow.testEnv, slow.h
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
	slow.becomes(t, metal3v1.StateProvisioned)
	n := slow.node(t)
	assert.Equal(t, hoststate.Active, n.State)
	assert.Equal(t, hoststate.RamdiskDeploy, n.Deploy)
	assert.Equal(t, iso, n.Deployment["boot_iso"])
	script := served("config")
	assert.Contains(t, script, "goto boot_ramdisk")
	assert.Regexp(t, `:boot_ramdisk\nimgfree\nsanboot \S+/`+uuid+`/boot_iso\n`, script, "what the machine boots from the network")
	assert.Equal(t, string(content), served("boot_iso"))

	w.patch(h, `{"spec":{"image":null}}`)
	slow.becomes(t, metal3v1.StateAvailable)
	n = slow.node(t)
	assert.Empty(t, n.Instance)
	assert.Empty(t, served("config"))
	assert.Empty(t, served("boot_iso"))
}
