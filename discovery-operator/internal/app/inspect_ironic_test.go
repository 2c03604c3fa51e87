// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironic"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
	"github.com/muster-io/muster/discovery-operator/internal/redfishmock"
)

// bench is a host that a user registered by hand in a real Ironic, whose machine has not reported. The test is the ramdisk that it boots.
type bench struct {
	*testEnv
	ironic *ironictest.Ironic
	direct *ironic.Client
	bmc    *redfishmock.BMC
	h      *metal3v1.BareMetalHost
	stop   func()
	// ahead is how much later it is for the operator than for Ironic, in nanoseconds.
	ahead atomic.Int64
}

func newBench(t *testing.T, name string) *bench {
	t.Helper()
	w := newTestEnv(t)
	b := &bench{testEnv: w, ironic: ironictest.Start(t, name, "IRONIC_DRIVERS=fake-hardware,ipmi,redfish"), bmc: redfishmock.Start(t, "admin", "right")}
	b.direct = b.ironic.Client(t)
	b.stop = w.operate(asking(b.ironic), managing, b.clock)
	b.h = w.register("by-hand", 1, func(h *metal3v1.BareMetalHost) {
		h.Spec.BMC = &metal3v1.BMCDetails{Address: b.bmc.Address(), CredentialsName: "by-hand-bmc"}
		w.secret(h, "right")
	})
	return b
}

// clock makes an operator manage hosts by a clock that is ahead as the bench says.
func (b *bench) clock(o *setup) {
	o.now = func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
}

// sees waits until the host is as the test wants it. A real Ironic takes its time on a busy machine, and what failed is tried again late.
func (b *bench) sees(t *testing.T, what string, want func(h *metal3v1.BareMetalHost) bool) {
	t.Helper()
	ok := waitEvery(ironictest.Beat, 4*time.Minute, func() bool { return b.Get(t.Context(), client.ObjectKeyFromObject(b.h), b.h) == nil && want(b.h) })
	require.True(t, ok, "%s: %+v", what, b.h.Status)
}

// becomes waits until the host has the state and no error.
func (b *bench) becomes(t *testing.T, state metal3v1.ProvisioningState) {
	t.Helper()
	b.sees(t, "the host is "+string(state), func(h *metal3v1.BareMetalHost) bool {
		return h.Status.Provisioning.State == state && h.Status.ErrorType == ""
	})
}

// boots waits until the machine is on and Ironic waits for its ramdisk.
func (b *bench) boots(t *testing.T) {
	t.Helper()
	b.sees(t, "Ironic waits for the ramdisk", func(h *metal3v1.BareMetalHost) bool {
		if h.Status.Provisioning.ID == "" {
			return false
		}
		n, err := b.direct.Examined(t.Context(), h.Status.Provisioning.ID)
		return err == nil && n.State == hoststate.InspectWait && !n.Locked && n.Reported.IsZero() && b.bmc.Power() == "On"
	})
}

// hurries lets a time pass for the operator, again and again until the host is as the test wants it: the operator counts from when it sees what it waits for.
func (b *bench) hurries(t *testing.T, by time.Duration, what string, want func(h *metal3v1.BareMetalHost) bool) {
	t.Helper()
	last := time.Now()
	b.sees(t, what, func(h *metal3v1.BareMetalHost) bool {
		if want(h) {
			return true
		}
		if time.Since(last) > 5*time.Second {
			b.ahead.Add(int64(by))
			last = time.Now()
		}
		return false
	})
}

func (b *bench) failsWith(t *testing.T, text string) {
	t.Helper()
	b.sees(t, "the inspection fails", func(h *metal3v1.BareMetalHost) bool {
		return h.Status.ErrorType == metal3v1.InspectionError && strings.HasPrefix(h.Status.ErrorMessage, "The inspection failed: ") &&
			strings.Contains(h.Status.ErrorMessage, text)
	})
	assert.Equal(t, metal3v1.OperationalStatusError, b.h.Status.OperationalStatus)
	assert.Equal(t, metal3v1.StateInspecting, b.h.Status.Provisioning.State)
}

func (b *bench) node(t *testing.T) hoststate.Node {
	t.Helper()
	n, err := b.direct.Managed(t.Context(), b.h.Status.Provisioning.ID)
	require.NoError(t, err)
	return n
}

// hasMemory waits until the host is available with so much memory.
func (b *bench) hasMemory(t *testing.T, mebibytes int) {
	t.Helper()
	b.sees(t, "the host is available with its hardware", func(h *metal3v1.BareMetalHost) bool {
		hw := h.Status.HardwareDetails
		return hw != nil && hw.RAMMebibytes == mebibytes && h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.ErrorType == "" &&
			!h.InspectionRequested()
	})
}

func TestAnInspectionInARealIronic(t *testing.T) {
	b := newBench(t, "inspection")
	t.Run("Ironic switches the machine on, and the host gets what the ramdisk reports", func(t *testing.T) {
		b.boots(t)
		assert.Equal(t, metal3v1.StateInspecting, b.h.Status.Provisioning.State)
		assert.Nil(t, b.h.Status.HardwareDetails)
		assert.Contains(t, []string{"agent", "inspector"}, b.node(t).Inspector)
		assert.Equal(t, b.h.Status.Provisioning.ID, b.ironic.Ramdisk(t, demo.Machine(1)))
		b.hasMemory(t, 64<<10)
		assert.Equal(t, "SN00000001", b.h.Status.HardwareDetails.SystemVendor.SerialNumber)
		assert.NotNil(t, b.h.Status.OperationHistory.Inspect.End)
		b.sees(t, "the machine is on", func(h *metal3v1.BareMetalHost) bool { return h.Status.PoweredOn })
	})
	t.Run("the annotation has it inspected again", func(t *testing.T) {
		b.patch(b.h, again)
		b.boots(t)
		b.ironic.Ramdisk(t, demo.Machine(1, func(inventory map[string]any) { inventory["memory"] = map[string]any{"physical_mb": 128 << 10} }))
		b.hasMemory(t, 128<<10)
	})
	b.deletes(t)
}

// TestAnInspectionThatIronicForgets restarts Ironic with another database while it waits for a ramdisk, and then lets no ramdisk report.
func TestAnInspectionThatIronicForgets(t *testing.T) {
	b := newBench(t, "forgotten")
	b.boots(t)
	old := b.h.Status.Provisioning.ID
	b.ironic.Down(t, true)
	conf := "[conductor]\ninspect_wait_timeout = 10\ncheck_provision_state_interval = 1\n"
	require.NoError(t, os.MkdirAll(filepath.Join(b.ironic.Dir, "ironic.d"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(b.ironic.Dir, "ironic.d", "timeout.conf"), []byte(conf), 0o600))
	b.ironic.Up(t)
	t.Run("the machine gets another node and is inspected", func(t *testing.T) {
		b.sees(t, "the host has another node", func(h *metal3v1.BareMetalHost) bool {
			return h.Status.Provisioning.ID != "" && h.Status.Provisioning.ID != old
		})
		b.boots(t)
	})
	t.Run("a ramdisk that does not report is one clear error, and waited for again", func(t *testing.T) {
		if b.node(t).Untimed { // Ironic passes the node over, and the operator counts the half hour
			b.hurries(t, 30*time.Minute, "the host has an error", func(h *metal3v1.BareMetalHost) bool { return h.Status.ErrorType != "" })
		}
		b.failsWith(t, "timeout")
		b.boots(t)
	})
	b.deletes(t)
}

// deletes the host, also while its machine is being inspected.
func (b *bench) deletes(t *testing.T) {
	t.Helper()
	t.Run("a deletion leaves nothing in Ironic, and no inspection under way", func(t *testing.T) {
		id := b.h.Status.Provisioning.ID
		require.NoError(t, b.Delete(t.Context(), b.h))
		require.Eventually(t, func() bool { return len(b.hosts()) == 0 }, 4*time.Minute, beat, "the host is gone")
		_, err := b.direct.Managed(t.Context(), id)
		require.ErrorIs(t, err, inventory.ErrNotFound)
		assert.Equal(t, "Off", b.bmc.Power())
	})
}
