// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testPatience = 2 * time.Minute

func await(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(testPatience):
		t.Fatal("still waiting: " + what)
	}
}

func TestProcessThatDiesTakesTheOthersWithIt(t *testing.T) {
	plane := openPlane(t, Options{Binaries: testBinaries(t), UnsafeNoFsync: true})
	for _, name := range []string{etcdName, apiServerName, controllerManagerName} {
		require.NoError(t, plane.Start(t.Context()))
		version, err := plane.Check(t.Context())
		require.NoError(t, err)
		assert.Equal(t, kubernetesVersion, version)
		processes := plane.getCurrent().list()
		for _, p := range processes {
			if p.name == name {
				require.NoError(t, p.cmd.Process.Signal(syscall.SIGKILL))
			}
		}
		await(t, plane.Done(), "the end of all processes")
		var died *ProcessDiedError
		require.ErrorAs(t, plane.Err(), &died)
		assert.Equal(t, name, died.Process)
		for _, p := range processes {
			assert.NotNil(t, p.cmd.ProcessState, "%s has ended", p.name)
		}
		_, err = plane.Check(t.Context())
		require.EqualError(t, err, "/readyz gives no answer: connection refused")
	}
}

func TestProgramThatFailsIsExplainedByItsLog(t *testing.T) {
	binaries := testBinaries(t)
	broken := filepath.Join(t.TempDir(), "kube-apiserver")
	script := "#!/bin/sh\necho 'E1121 02:10:24.6 4390 a.go:1] the moon is full' >&2\nexit 3\n"
	require.NoError(t, os.WriteFile(broken, []byte(script), 0o700))
	binaries.APIServer = broken
	plane := openPlane(t, Options{Binaries: binaries, UnsafeNoFsync: true})
	err := plane.Start(t.Context())
	require.EqualError(t, err, "kube-apiserver died (exit status 3): the moon is full")
	assert.False(t, plane.Running())
}

func TestAFullDiskDiffersFromOtherDeaths(t *testing.T) {
	full := filepath.Join(t.TempDir(), "etcd")
	script := `#!/bin/sh` + "\n" + `echo '{"level":"fatal","msg":"cannot create WAL","error":"write: no space left on device"}' >&2; exit 1`
	require.NoError(t, os.WriteFile(full, []byte(script), 0o700))
	plane := openPlane(t, Options{Binaries: Binaries{Etcd: full}})
	err := plane.Start(t.Context())
	var diskFull *DiskFullError
	require.ErrorAs(t, err, &diskFull)
	assert.Equal(t, plane.Dir(), diskFull.Dir)
}

func TestStartCanBeGivenUp(t *testing.T) {
	plane := openPlane(t, Options{Binaries: testBinaries(t), UnsafeNoFsync: true})
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() { started <- plane.Start(ctx) }()
	require.Eventually(t, plane.Running, testPatience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-started, context.Canceled)
	assert.False(t, plane.Running())

	go func() { started <- plane.Start(t.Context()) }()
	require.Eventually(t, plane.Running, testPatience, time.Millisecond)
	plane.Kill()
	require.ErrorIs(t, <-started, errStopped)
	assert.False(t, plane.Running())
}

func TestStopIsRepeatableAndKeepsTheAddress(t *testing.T) {
	plane := openPlane(t, Options{Binaries: testBinaries(t), UnsafeNoFsync: true})
	plane.Stop(t.Context())
	require.NoError(t, plane.Start(t.Context()))
	require.NoError(t, plane.Start(t.Context()))
	url := plane.URL()
	plane.Stop(t.Context())
	plane.Stop(t.Context())
	require.NoError(t, plane.Err())
	require.NoError(t, plane.Renew())
	require.NoError(t, plane.Start(t.Context()))
	assert.Equal(t, url, plane.URL())
	require.NoError(t, plane.Destroy())
	assert.NoDirExists(t, plane.Dir())
}
