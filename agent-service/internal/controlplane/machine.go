// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"
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
)

// Machine runs the control plane of a cluster on this machine.
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
}

// Names of supervised steps.
const (
	prepared = "control plane"
	begun    = "objects of the cluster"
)

// Supervised are the programs of the control plane. They begin after those that are named.
func (m Machine) Supervised(after ...string) []supervise.Program {
	run := func(name string, arguments []string) func(context.Context) error {
		return m.Process(m.path("run"), filepath.Join(m.Programs, name), arguments...)
	}
	return []supervise.Program{
		{Name: prepared, After: after, Once: true, Run: func(context.Context) error { return m.write(time.Now()) }},
		{Name: "certificates", After: []string{prepared}, Run: m.renew},
		{Name: etcd, After: []string{prepared}, Run: run(etcd, m.etcd()), Ready: m.etcdAnswers},
		{Name: apiServer, After: []string{etcd}, Run: run(apiServer, m.apiServer()), Ready: m.apiAnswers},
		{Name: controllerManager, After: []string{apiServer}, Run: run(controllerManager, m.controllerManager())},
		{Name: scheduler, After: []string{apiServer}, Run: run(scheduler, m.scheduler())},
		{Name: begun, After: []string{apiServer}, Once: true, Run: func(ctx context.Context) error { return m.apply(ctx, "the cluster", m.Objects) }},
		{Name: "manifests", After: []string{begun}, Once: true, Run: m.applyManifests},
	}
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
	return connection.Close()
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
