// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package machinetest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/muster-io/muster/apis/machinetest"
)

// A machine whose disk is blank and whose drive is empty says on its console that there is nothing to boot, stays on, and cannot be asked to switch itself
// off; what is waited for beside it ends when it holds.
func TestAMachineWithoutASystemIsOn(t *testing.T) {
	machinetest.Need(t)
	disk := machinetest.BlankDisk(t)
	m := machinetest.PowerOn(t, machinetest.Hardware{Disk: disk, MemoryMiB: 64, More: []string{"-machine", "graphics=off"}})
	m.Says(t, "No bootable device")
	tries := 0
	m.Until(t, "the third try", func() error {
		if tries++; tries < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	assert.Equal(t, 3, tries)
	var none *machinetest.Machine
	none.Until(t, "a machine that is not on is waited beside", func() error { return nil })
}
