// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package ironictest

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/porttest"
)

// Site is an Ironic whose machines boot the ramdisk of hack/liveimage over the network: by its own PXE configuration where it wants that, and else by one
// that has them report.
type Site struct {
	*Ironic
	tftp, address string
}

// StartSite starts an Ironic, and a server of the images that it prepares. Both end with the test, which is skipped with a sentence where the ramdisk or the packages cannot be had, or
// fails when CI is true.
func StartSite(t testing.TB, name string) *Site {
	t.Helper()
	machinetest.Need(t)
	ramdisk := filepath.Join(filepath.Dir(script("up")), "..", "..", "bin", "live", "ramdisk")
	needtest.File(t, filepath.Join(ramdisk, "initrd.img"), "there is no ramdisk: build it with hack/liveimage ramdisk")
	address := outward()
	needtest.Part(t, address != "", "this machine has no address beside loopback, at which Ironic and the machines that it deploys find images")
	i := prepare(t, name)
	s := &Site{i, filepath.Join(i.Dir, "data", "tftp"), address}
	served := s.Serve(t, http.FileServer(http.Dir(ramdisk)))
	port := ""
	for _, setting := range i.env {
		if value, ok := strings.CutPrefix(setting, "IRONIC_PORT="); ok {
			port = value
		}
	}
	// Machines reach this one by another address than Ironic does.
	seen := "http://" + net.JoinHostPort(machinetest.Gateway, port)
	config := fmt.Sprintf("[service_catalog]\nendpoint_override = %s\n[conductor]\ndeploy_kernel = %[2]s/vmlinuz\n"+
		"deploy_ramdisk = %[2]s/initrd.img\n[pxe]\nkernel_append_params = console=ttyS0 muster-heartbeat=5s\n", seen, served)
	s.write(t, filepath.Join(i.Dir, "ironic.d", "site.conf"), []byte(config))
	i.Up(t)
	report := strings.Replace(i.ReportTo(), "127.0.0.1", machinetest.Gateway, 1)
	s.write(t, filepath.Join(s.tftp, "pxelinux.cfg", "default"), fmt.Appendf(nil, "default report\nlabel report\nkernel ramdisk/vmlinuz\n"+
		"append initrd=ramdisk/initrd.img console=ttyS0 muster-heartbeat=5s ipa-api-url=%s ipa-inspection-callback-url=%s\nipappend 2\n", seen, report))
	for from, to := range map[string]string{"pxelinux.0": "pxelinux.0", "ldlinux.c32": "ldlinux.c32", "vmlinuz": "ramdisk/vmlinuz", "initrd.img": "ramdisk/initrd.img"} {
		content, err := os.ReadFile(filepath.Join(ramdisk, from))
		if err != nil {
			t.Fatalf("reading the ramdisk: %v", err)
		}
		s.write(t, filepath.Join(s.tftp, to), content)
	}
	return s
}

func (s *Site) write(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // for a server
		t.Fatalf("making a site: %v", err)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // for a server
		t.Fatalf("making a site: %v", err)
	}
}

// outward is an address of this machine that emulated machines reach through their own network, which is 10.0.2.0/24; empty where there is none.
func outward() string {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return ""
	}
	own := netip.MustParsePrefix("10.0.2.0/24")
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() && !own.Contains(prefix.Addr()) {
			return prefix.Addr().String()
		}
	}
	return ""
}

// Serve serves images at an address that Ironic and the machines reach, until the test ends. It returns the URL without a slash at its end.
func (s *Site) Serve(t testing.TB, images http.Handler) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(s.address, "0"))
	if err != nil {
		t.Fatalf("serving images: %v", err)
	}
	server := &http.Server{Handler: images} //nolint:gosec // for a test
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "http://" + listener.Addr().String()
}

// Machine starts the management controller of a machine that is off, has an empty disk and a network card of its own. Number tells machines apart.
func (s *Site) Machine(t testing.TB, number int) *Machine {
	t.Helper()
	m := machinetest.NewManaged(t)
	if err := os.WriteFile(m.Disk, nil, 0o600); err != nil {
		t.Fatalf("making the disk of a machine: %v", err)
	}
	if err := os.Truncate(m.Disk, diskSize); err != nil {
		t.Fatalf("making the disk of a machine: %v", err)
	}
	port := porttest.Free(t)
	m.Start(t, []string{"MACHINE_MEMORY=512"},
		"-netdev", fmt.Sprintf("user,id=net0,tftp=%s,bootfile=pxelinux.0,hostfwd=tcp:127.0.0.1:%s-:9999", s.tftp, port),
		"-device", fmt.Sprintf("e1000,netdev=net0,mac=52:54:00:00:00:%02x", number),
		"-smbios", fmt.Sprintf("type=1,manufacturer=Muster,product=Machine,serial=SN-%d", number),
		"-smbios", "type=11,value=muster-ramdisk:ipa-advertise-host=127.0.0.1 ipa-advertise-port="+port)
	return &Machine{m}
}
