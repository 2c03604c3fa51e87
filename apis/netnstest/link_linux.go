// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/programtest"
)

// Address is that of the tests on a Link.
const Address = "10.77.0.1"

// Link joins emulated machines and the tests, which reach each other by their addresses. DHCP gives each machine one of its own.
type Link struct{ taps int }

// NewLink makes a link that ends with the test.
func NewLink(t testing.TB) *Link {
	t.Helper()
	Need(t)
	server, err := exec.LookPath("dnsmasq")
	if err != nil { // the PATH of users of Debian lacks it
		server, err = exec.LookPath("/usr/sbin/dnsmasq")
	}
	needtest.Part(t, err == nil, "there is no dnsmasq (Debian: dnsmasq-base) to give machines addresses")
	IP(t, "link add rack address 52:54:00:00:01:00 type bridge")
	t.Cleanup(func() { IP(t, "link del rack") })
	IP(t, "address add "+Address+"/24 dev rack")
	IP(t, "link set rack up")
	programtest.Start(t, exec.CommandContext(context.WithoutCancel(t.Context()), server, "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--pid-file=",
		"--interface=rack", "--except-interface=lo", "--bind-interfaces", "--no-resolv", "--no-hosts", "--log-facility=-",
		"--dhcp-range=10.77.0.100,10.77.0.199,1h", "--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"), "--dhcp-authoritative", "--no-ping"))
	return &Link{}
}

// Tap returns the name of a new interface of the link, for the card of a machine. It ends with the test.
func (l *Link) Tap(t testing.TB) string {
	t.Helper()
	l.taps++
	name := fmt.Sprintf("rack%d", l.taps)
	IP(t, "tuntap add "+name+" mode tap")
	t.Cleanup(func() { IP(t, "link del "+name) })
	IP(t, "link set "+name+" master rack up")
	return name
}
