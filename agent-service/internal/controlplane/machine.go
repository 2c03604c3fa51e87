// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/supervise"
)

// Programs that a control plane consists of.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// Programs are the files that Machine.Programs has.
func Programs() []string { return []string{etcd, apiServer, controllerManager, scheduler} }

// Sockets are named relative to the working directory of the processes: the path of a Unix socket is limited to about 100 bytes.
const (
	etcdSocket = "etcd.sock"
	peerSocket = "peer.sock"
	// noPeer is announced as etcd's peer address. A single member never dials it.
	noPeer = "http://127.0.0.1:1"
	// peerPort is that at which members of etcd reach each other.
	peerPort = 2380
)

// Machine runs the control plane of a cluster on this machine, alone or with others.
type Machine struct {
	*join.ControlPlane
	// Dir keeps the data, the keys and the certificates.
	Dir string
	// Programs is the directory of the programs.
	Programs string
	// Manifests is the directory with folders of a user's manifests, which are applied last.
	Manifests string
	// Process makes a process of a program of a path in a working directory.
	Process func(directory, path string, arguments ...string) func(context.Context) error
	// Interfaces are those of this machine, and Say gets a line for each event of the address of the API. Machines of a group need both.
	Interfaces Interfaces
	Say        func(format string, values ...any)
}

// Interfaces are the network interfaces of a machine.
type Interfaces interface {
	// Addresses are those of the machine.
	Addresses() ([]netip.Addr, error)
	// Add gives an address to the interface that has another one, and announces it to the network. An address that is there is announced again.
	Add(address, beside netip.Addr) error
	// Remove takes an address from all interfaces. It may be on none.
	Remove(address netip.Addr) error
}

// Names of supervised steps.
const (
	prepared = "control plane"
	begun    = "objects of the cluster"
	// Answers is the one after which the API answers on this machine.
	Answers = apiServer
)

// Supervised are the programs of the control plane. They begin after those that are named.
func (m Machine) Supervised(after ...string) []supervise.Program {
	run := func(name string, arguments []string) func(context.Context) error {
		return m.Process(m.path("run"), filepath.Join(m.Programs, name), arguments...)
	}
	programs := []supervise.Program{
		{Name: prepared, After: after, Once: true, Run: m.prepare},
		{Name: "certificates", After: []string{prepared}, Run: m.renew},
		{Name: etcd, After: []string{prepared}, Run: m.asMember(run(etcd, m.etcd())), Ready: m.etcdAnswers},
		{Name: apiServer, After: []string{etcd}, Run: run(apiServer, m.apiServer()), Ready: m.apiAnswers},
		{Name: controllerManager, After: []string{apiServer}, Run: run(controllerManager, m.controllerManager())},
		{Name: scheduler, After: []string{apiServer}, Run: run(scheduler, m.scheduler())},
		{Name: begun, After: []string{apiServer}, Once: true, Run: func(ctx context.Context) error { return m.apply(ctx, "the cluster", m.Objects) }},
		{Name: "manifests", After: []string{begun}, Once: true, Run: m.applyManifests},
	}
	if m.Group != nil { // it ends before the API server that it needs
		programs = append(programs, supervise.Program{Name: "api address", After: []string{apiServer}, Run: m.holdAddress})
	}
	return programs
}

// prepare writes what the programs read. A machine of a group begins without the address of the API.
func (m Machine) prepare(context.Context) error {
	if m.Group != nil {
		if err := m.Interfaces.Remove(m.apiAddress()); err != nil {
			return err
		}
	}
	return m.write(time.Now())
}

// apiAddress is that of the API.
func (m Machine) apiAddress() netip.Addr {
	at, _ := m.Address() // it was validated when it was read
	return at.Addr()
}

// server is the URL of the API server of this machine.
func (m Machine) server() string {
	if m.Group == nil {
		return m.Server
	}
	at, _ := m.Address() // it was validated when it was read
	return "https://" + netip.AddrPortFrom(loopback(at.Addr()), at.Port()).String()
}

// loopback is the address of the machine itself in the family of another one.
func loopback(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// renew signs the certificates again. The programs read them again by themselves.
func (m Machine) renew(ctx context.Context) error {
	timer := time.NewTicker(renewInterval)
	defer timer.Stop()
	for {
		select {
		case now := <-timer.C:
			if err := m.write(now); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (m Machine) etcdAnswers(ctx context.Context) error {
	// The path may be too long for a socket's address; etcd's working directory has it, and the kernel has that.
	directory, done, err := short(m.path("run"))
	if err != nil {
		return err
	}
	defer done()
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(directory, etcdSocket))
	if err != nil {
		return err
	}
	if m.Group == nil {
		return connection.Close()
	}
	return m.memberAnswers(ctx, connection)
}

func (m Machine) apiAnswers(ctx context.Context) error {
	api, err := m.client()
	if err != nil {
		return err
	}
	defer api.close()
	_, err = api.get(ctx, "/readyz")
	return err
}

// path is below the directory of the control plane.
func (m Machine) path(parts ...string) string {
	return filepath.Join(append([]string{m.Dir}, parts...)...)
}

func (m Machine) pki(file string) string { return m.path("pki", file) }

func (m Machine) conf(user string) string { return m.path(fmt.Sprintf("%s.conf", user)) }
