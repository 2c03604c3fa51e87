// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/porttest"
)

func TestDirectoryHasOneOwner(t *testing.T) {
	first := openPlane(t, Options{})
	_, err := Open(t.Context(), Options{Dir: first.Dir()})
	var inUse *InUseError
	require.ErrorAs(t, err, &inUse)
	assert.Equal(t, os.Getpid(), inUse.PID)
	require.NoError(t, first.Close())
	second := openPlane(t, Options{Dir: first.Dir()})
	assert.Equal(t, first.URL(), second.URL(), "the port survives")
}

func TestPortIsHeldWhileTheDirectoryIsOpen(t *testing.T) {
	plane := openPlane(t, Options{})
	_, err := net.Listen("tcp", plane.URL()[len("https://"):])
	require.Error(t, err)
	_, err = reserve(t.Context(), netip.MustParseAddr("127.0.0.1"), plane.Port())
	var taken *PortTakenError
	require.ErrorAs(t, err, &taken, "another control plane of this user cannot share it either")
	require.NoError(t, plane.Close())
	listener, err := net.Listen("tcp", plane.URL()[len("https://"):])
	require.NoError(t, err)
	require.NoError(t, listener.Close())
}

func TestDataOfAStartThatDidNotEndAreMadeAnew(t *testing.T) {
	for name, test := range map[string]struct {
		before record
		kept   bool
	}{
		"a start that did not end":               {before: record{Begun: true}},
		"a control plane that was served":        {before: record{Begun: true, Served: true}, kept: true},
		"a directory whose record was lost":      {kept: true},
		"a port that no client knows is no sign": {before: record{Port: 1}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			plane := openPlane(t, Options{})
			data := plane.dir.etcdData()
			require.NoError(t, os.Mkdir(data, 0o700))
			require.NoError(t, plane.dir.writeRecord(test.before))
			require.NoError(t, plane.beginAnew())
			if test.kept {
				assert.DirExists(t, data)
				return
			}
			assert.NoDirExists(t, data)
			require.NoError(t, plane.beginAnew())
			recorded, err := plane.dir.readRecord()
			require.NoError(t, err)
			assert.True(t, recorded.Begun, "until it was served")
		})
	}
}

func TestTakenPort(t *testing.T) {
	for name, test := range map[string]struct {
		served bool
		check  func(*testing.T, int, *Plane, error)
	}{
		"is replaced while no client can know it": {
			check: func(t *testing.T, port int, plane *Plane, err error) {
				require.NoError(t, err)
				t.Cleanup(func() { _ = plane.Close() })
				assert.NotEqual(t, port, plane.Port())
			},
		},
		"is an error once clients know it": {
			served: true,
			check: func(t *testing.T, _ int, _ *Plane, err error) {
				var taken *PortTakenError
				require.ErrorAs(t, err, &taken)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer func() { _ = listener.Close() }()
			port := listener.Addr().(*net.TCPAddr).Port
			require.NoError(t, layout(dir).writeRecord(record{Port: port, Served: test.served}))
			plane, err := Open(t.Context(), Options{Dir: dir})
			test.check(t, port, plane, err)
		})
	}
}

func TestPortsComeFromTheRange(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:"+porttest.Free(t))
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	taken := listener.Addr().(*net.TCPAddr).Port
	free, err := strconv.Atoi(porttest.Free(t))
	require.NoError(t, err)
	// Between the two ports there may be others, which are not to be used.
	host, ports := netip.MustParseAddr("127.0.0.1"), PortRange{First: min(taken, free), Last: max(taken, free)}
	skip := func(port int) bool { return port != taken && port != free }
	held, err := reserveIn(t.Context(), host, ports, skip)
	require.NoError(t, err)
	defer func() { _ = held.release() }()
	assert.Equal(t, free, held.port)
	_, err = reserveIn(t.Context(), host, ports, skip)
	var none *NoFreePortError
	require.ErrorAs(t, err, &none)
}

func TestDamagedFileIsReportedAndKept(t *testing.T) {
	plane := openPlane(t, Options{})
	require.NoError(t, plane.Close())
	authority := filepath.Join(plane.Dir(), "pki", "ca.crt")
	require.NoError(t, os.WriteFile(authority, []byte("nonsense"), 0o600))
	_, err := Open(t.Context(), Options{Dir: plane.Dir()})
	var damaged *DamagedError
	require.ErrorAs(t, err, &damaged)
	assert.Equal(t, authority, damaged.File)
	content, err := os.ReadFile(authority)
	require.NoError(t, err)
	assert.Equal(t, "nonsense", string(content))
}

func TestRecycledPidIsNotTouched(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	require.NoError(t, launch(cmd))
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	real, err := identify(cmd.Process.Pid)
	require.NoError(t, err)
	for name, stranger := range map[string]identity{
		"another start time": {pid: real.pid, started: "1", boot: real.boot},
		"another boot":       {pid: real.pid, started: real.started, boot: "other"},
	} {
		assert.False(t, stranger.alive(), name)
		stranger.kill()
	}
	require.True(t, real.alive(), "the process that has the pid now lives on")

	path := filepath.Join(t.TempDir(), "pid")
	require.NoError(t, os.WriteFile(path, []byte(real.String()), 0o600))
	assert.Equal(t, real, readIdentity(path))
	readIdentity(path).kill()
	require.Error(t, cmd.Wait())
	assert.False(t, real.alive())
}

func TestAMalformedPidFileNamesNoProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pid")
	for _, content := range []string{"", "12", "-1\nx\ny\n", "1\nx\ny\n", "x\nx\ny\n", "0\n0\n0\n"} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		assert.Equal(t, identity{}, readIdentity(path), "%q", content)
		assert.False(t, readIdentity(path).alive())
	}
}

func TestLeftoverOfAKilledOwnerIsEnded(t *testing.T) {
	plane := openPlane(t, Options{})
	d := plane.dir
	// A killed owner leaves this where the kernel does not end its children: a process that holds the lock, its pid
	// file, and an owner that is no more.
	leftover, err := startProcess(d, plane.lock, etcdName, "/bin/sleep", []string{"60"})
	require.NoError(t, err)
	require.NoError(t, plane.lock.Close())
	require.NoError(t, d.write(d.owner(), []byte(identity{pid: os.Getpid(), started: "1", boot: bootID()}.String())))
	require.True(t, d.locked())

	require.NoError(t, Reap(t.Context(), plane.Dir()))
	<-leftover.ended
	assert.False(t, d.locked())
}

func TestOpenWaitsForTheContextOnly(t *testing.T) {
	plane := openPlane(t, Options{})
	require.NoError(t, plane.dir.write(plane.dir.owner(), []byte("not an owner")))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := Open(ctx, Options{Dir: plane.Dir()})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
