// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/apis/machinetest"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
	"github.com/muster-io/muster/discovery-operator/internal/ironictest"
)

// TestAStandaloneSite takes three machines of which nothing is known through their lives: they boot the ramdisk over the network and report, are named, approved
// and managed, and one of them is provisioned, boots its image, is deprovisioned and cleaned. Ironic, its driver ipmi, the management controllers, PXE and
// the agent are real, and QEMU emulates the machines.
func TestAStandaloneSite(t *testing.T) {
	machinetest.NeedCores(t, "MUSTER_STANDALONE_TESTS")
	const count, diskSize = 3, 5 << 30
	s := ironictest.StartSite(t, "standalone")
	w := newTestEnv(t)
	direct := s.Client(t)
	w.operate(asking(s.Ironic), managing)
	w.discover("all", func(d *metal3v1.BareMetalHostDiscovery) {
		d.Spec.Approval = metal3v1.ApprovalManual
		d.Spec.ResourceNameTemplate = metal3v1.ResourceNameTemplate{Prefix: "rack-", HardwareDetails: metal3v1.DetailSerialNumber}
	})
	var machines [count]*ironictest.Machine
	var hosts [count]*metal3v1.BareMetalHost
	for n := range machines {
		machines[n], hosts[n] = s.Machine(t, n+1), &metal3v1.BareMetalHost{}
		machines[n].SwitchOn(t)
	}
	until := func(t *testing.T, n int, what string, want func(h *metal3v1.BareMetalHost) bool) {
		t.Helper()
		h := hosts[n]
		ok := waitFor(machinetest.Patience, func() bool {
			return w.Get(t.Context(), types.NamespacedName{Namespace: w.ns, Name: fmt.Sprintf("rack-sn-%d", n+1)}, h) == nil && want(h)
		})
		require.True(t, ok, "%s: %+v", what, h.Status)
	}
	step := func(name string, run func(t *testing.T)) {
		t.Helper()
		require.True(t, t.Run(name, run), "the rest rests on it")
	}
	step("they are discovered and named, and wait for approval", func(t *testing.T) {
		for n := range machines {
			until(t, n, "the machine has become a host", func(h *metal3v1.BareMetalHost) bool { return h.HasStatus() && h.Status.HardwareDetails != nil })
			hardware := hosts[n].Status.HardwareDetails
			assert.Equal(t, "Muster", hardware.SystemVendor.Manufacturer)
			assert.Equal(t, 512, hardware.RAMMebibytes)
			require.Len(t, hardware.Storage, 1)
			assert.EqualValues(t, diskSize, hardware.Storage[0].SizeBytes)
			assert.Equal(t, fmt.Sprintf("52:54:00:00:00:%02x", n+1), strings.ToLower(hosts[n].Spec.BootMACAddress))
		}
	})
	step("they are approved and managed", func(t *testing.T) {
		for n, m := range machines {
			w.secret(hosts[n], "right")
			w.patch(hosts[n], `{"metadata":{"annotations":{"discovery.metal3.io/approved":"true"}},"spec":{"bmc":{"address":"`+m.Address+`","credentialsName":"`+hosts[n].Name+`-bmc"}}}`)
		}
		for n := range machines {
			until(t, n, "the host is available", func(h *metal3v1.BareMetalHost) bool {
				return h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.PoweredOn && h.Status.ErrorType == ""
			})
		}
	})
	content := ironictest.System()
	image := ironictest.Qcow2(t, content)
	sum := sha256.Sum256(image)
	images := s.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.ServeContent(rw, r, "image.qcow2", time.Unix(0, 0), bytes.NewReader(image))
	}))
	step("one is provisioned, and runs its image", func(t *testing.T) {
		w.configure("user", "userData", "#cloud-config\n")
		w.patch(hosts[0], `{"spec":{"image":{"url":"`+images+`/image.qcow2","checksum":"`+hex.EncodeToString(sum[:])+`","checksumType":"sha256","format":"qcow2"},"userData":{"name":"user"}}}`)
		until(t, 0, "the host is provisioned, and its image has booted", func(h *metal3v1.BareMetalHost) bool {
			return h.Status.Provisioning.State == metal3v1.StateProvisioned && h.Status.ErrorType == "" && h.Status.PoweredOn && machines[0].Boots() == 1
		})
		assert.True(t, machines[0].On())
		for n := range machines {
			assert.Equal(t, n == 0, bytes.Equal(content[:446], part(t, machines[n].Disk, 0, 446)), "the image is on one disk")
		}
		assert.Contains(t, string(part(t, machines[0].Disk, diskSize-2<<20, 2<<20)), "#cloud-config", "the config drive is at the end")
	})
	step("it is deprovisioned, and cleaned", func(t *testing.T) {
		w.patch(hosts[0], noImage)
		until(t, 0, "the host is available", func(h *metal3v1.BareMetalHost) bool {
			return h.Status.Provisioning.State == metal3v1.StateAvailable && h.Status.ErrorType == ""
		})
		assert.Equal(t, make([]byte, 512), part(t, machines[0].Disk, 0, 512), "the machine does not start from its disk")
		assert.Contains(t, machines[0].Console(), "executing clean.execute_clean_step erase_devices_metadata")
		assert.Equal(t, 1, machines[0].Boots())
	})
	nodes, err := direct.Nodes(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, nodes, count)
	for _, n := range nodes {
		assert.Equal(t, "ipmi", n.Driver)
		if n.UUID == hosts[0].Status.Provisioning.ID {
			assert.Equal(t, inventory.NodeAvailable, n.State)
		}
	}
}

// part reads a part of a file.
func part(t *testing.T, path string, at int64, length int) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	content := make([]byte, length)
	_, err = f.ReadAt(content, at)
	require.NoError(t, err)
	return content
}
