// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"
)

// scripts returns programs of which etcd is a shell script, and a runtime that runs them.
func scripts(t *testing.T, root, etcd string) *process.Runtime {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+etcd+"\n"), 0o700))
	r, err := process.New(t.Context(), process.Options{
		Root:     root,
		Binaries: func() (controlplane.Binaries, error) { return controlplane.Binaries{Etcd: path}, nil },
	})
	require.NoError(t, err)
	t.Cleanup(r.Crash)
	return r
}

// start asks for a cluster and returns what is wrong with it once that shows.
func start(t *testing.T, r *process.Runtime, ref provision.ClusterRef) *provision.Problem {
	t.Helper()
	if err := r.Start(t.Context(), ref, provision.Spec{ClusterName: ref.Name}); err != nil {
		problem, known := errors.AsType[*provision.Problem](err)
		require.True(t, known, "%v", err)
		seen, err := r.Observe(t.Context(), ref)
		require.NoError(t, err)
		assert.Equal(t, problem, seen.Problem, "the observation has the same problem")
		return problem
	}
	return awaitState(t, r, ref, provision.StateFailed).Problem
}

func TestMissingProgramLeavesNothingBehind(t *testing.T) {
	root := t.TempDir()
	missing := &controlplane.MissingBinaryError{Name: "etcd", Looked: []string{"/nowhere"}}
	r, err := process.New(t.Context(), process.Options{
		Root: root, Binaries: func() (controlplane.Binaries, error) { return controlplane.Binaries{}, missing },
	})
	require.NoError(t, err)
	defer r.Crash()
	ref := newRef("missing")
	problem := start(t, r, ref)
	assert.Equal(t, provision.Problem{Reason: provision.ReasonBinaryMissing, Component: "etcd", Message: missing.Error()}, *problem)
	_ = start(t, r, ref)
	seen, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, provision.StateAbsent, seen.State)
	assert.EqualValues(t, 2, seen.Failures)
	require.NoError(t, r.Delete(t.Context(), ref))
	removeAll(t, r, root, ref)
}

func TestProblemsAreNamed(t *testing.T) {
	for name, test := range map[string]struct {
		etcd   string
		reason provision.Reason
		says   string
	}{
		"a program that ends": {
			etcd: `echo '{"level":"fatal","msg":"the moon is full"}'; exit 2`, reason: provision.ReasonProcessDied,
			says: "etcd died (exit status 2): the moon is full",
		},
		"a program that is killed": {etcd: `kill -9 $$`, reason: provision.ReasonProcessDied, says: "etcd died (signal: killed)"},
		"a full disk": {
			etcd:   `echo '{"level":"fatal","msg":"cannot write","error":"no space left on device"}'; exit 1`,
			reason: provision.ReasonDiskFull, says: "disk full: no space left for ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			r := scripts(t, root, test.etcd)
			ref := newRef("problem")
			problem := start(t, r, ref)
			assert.Equal(t, test.reason, problem.Reason)
			assert.Contains(t, problem.Message, test.says)
			again := start(t, r, ref)
			assert.Equal(t, problem, again, "the sentence is stable")
			require.NoError(t, r.Stop(t.Context(), ref))
			assert.Nil(t, awaitState(t, r, ref, provision.StateStopped).Problem)
			removeAll(t, r, root, ref)
		})
	}
}

func TestTakenPortIsNamedAndNotChanged(t *testing.T) {
	root := t.TempDir()
	r := scripts(t, root, "exit 1")
	ref := newRef("port")
	_ = start(t, r, ref)
	seen, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	r.Crash()

	// As if clients knew the port.
	records, err := filepath.Glob(filepath.Join(root, "*", "plane.json"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	content, err := os.ReadFile(records[0])
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(records[0], []byte(strings.Replace(string(content), `"served":false`, `"served":true`, 1)), 0o600))
	address := strings.TrimPrefix(seen.URL, "https://")
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)

	r = scripts(t, root, "exit 1")
	problem := start(t, r, ref)
	assert.Equal(t, provision.ReasonPortsTaken, problem.Reason)
	assert.Contains(t, problem.Message, address)
	require.NoError(t, listener.Close())
	assert.Equal(t, provision.ReasonProcessDied, start(t, r, ref).Reason, "it is tried again")
	again, err := r.Observe(t.Context(), ref)
	require.NoError(t, err)
	assert.Equal(t, seen.URL, again.URL)
	removeAll(t, r, root, ref)
}

func TestPortOfASleeperIsNotGivenAway(t *testing.T) {
	root := t.TempDir()
	seen := map[string]bool{}
	for i := range 3 {
		// Each operator opens one directory only; it knows the other ports from the disk.
		r, err := process.New(t.Context(), process.Options{
			Root: root, Ports: controlplane.PortRange{First: 19990, Last: 19993},
			Binaries: func() (controlplane.Binaries, error) { return controlplane.Binaries{Etcd: "/bin/false"}, nil },
		})
		require.NoError(t, err)
		ref := newRef(fmt.Sprint("sleeper-", i))
		_ = start(t, r, ref)
		o, err := r.Observe(t.Context(), ref)
		require.NoError(t, err)
		assert.False(t, seen[o.URL], o.URL)
		seen[o.URL] = true
		r.Crash()
	}
}

func TestDamagedIdentityIsNamedAndKept(t *testing.T) {
	root := t.TempDir()
	r := scripts(t, root, "exit 1")
	ref := newRef("damaged")
	_ = start(t, r, ref)
	r.Crash()
	records, err := filepath.Glob(filepath.Join(root, "*", "cluster.json"))
	require.NoError(t, err)
	require.Len(t, records, 1)
	require.NoError(t, os.WriteFile(records[0], []byte("nonsense"), 0o600))
	r = scripts(t, root, "exit 1")
	assert.Equal(t, provision.ReasonDataDamaged, start(t, r, ref).Reason)
	assert.FileExists(t, records[0])
	removeAll(t, r, root, ref)
}

// TestOneDirectoryThatIsHeldKeepsNoOtherClusterDown has a directory whose lock no owner has and no signal ends, as of a process that a disk holds.
func TestOneDirectoryThatIsHeldKeepsNoOtherClusterDown(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	r := scripts(t, root, "exit 1")
	held, other := newRef("held"), newRef("other")
	_, _ = start(t, r, held), start(t, r, other)
	r.Crash()
	locks, err := filepath.Glob(filepath.Join(root, "*_held_*", "lock"))
	require.NoError(t, err)
	require.Len(t, locks, 1)
	lock, err := os.Open(locks[0])
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	require.NoError(t, os.Remove(filepath.Join(filepath.Dir(locks[0]), "owner")))

	r = scripts(t, root, "exit 1")
	assert.Equal(t, provision.ReasonProcessDied, start(t, r, other).Reason)
	assert.Equal(t, provision.ReasonNotHere, start(t, r, held).Reason)
}

func TestLongNamesHaveADirectory(t *testing.T) {
	root := t.TempDir()
	r := scripts(t, root, "exit 1")
	ref := provision.ClusterRef{Namespace: strings.Repeat("n", 63), Name: strings.Repeat("c", 253), UID: types.UID(strings.Repeat("u", 36))}
	assert.Equal(t, provision.ReasonProcessDied, start(t, r, ref).Reason)
	refs, err := r.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []provision.ClusterRef{ref}, refs)
	removeAll(t, r, root, ref)
}

func TestCredentialsAreNowhereButInTheirFiles(t *testing.T) {
	root := t.TempDir()
	r := scripts(t, root, "exit 1")
	ref := newRef("secret")
	problem := start(t, r, ref)
	access, err := r.Access(t.Context(), ref)
	require.NoError(t, err)
	require.NotEmpty(t, access.Password)
	assert.NotContains(t, problem.Message, access.Password)
	err = filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if strings.Contains(string(content), access.Password) {
			assert.Contains(t, []string{"password", "tokens.csv"}, info.Name())
			assert.Zero(t, info.Mode().Perm()&0o077)
		}
		return err
	})
	require.NoError(t, err)
}

func TestCloseStopsEverything(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	r := open(t, root)
	running1, starting := newRef("running"), newRef("starting-up")
	require.NoError(t, r.Start(t.Context(), running1, provision.Spec{}))
	awaitState(t, r, running1, provision.StateReady)
	require.NoError(t, r.Start(t.Context(), starting, provision.Spec{}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, r.Close(ctx))
	assert.Empty(t, running(t, root, string(running1.UID)))
	assert.Empty(t, running(t, root, string(starting.UID)))
	require.Error(t, r.Start(t.Context(), newRef("too-late"), provision.Spec{}))

	next := open(t, root)
	defer next.Crash()
	seen, err := next.Observe(t.Context(), running1)
	require.NoError(t, err)
	assert.Equal(t, provision.StateStopped, seen.State)
}

func TestUnansweredClusterIsUnreachable(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	r := open(t, root)
	defer r.Crash()
	ref := newRef("frozen")
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{}))
	awaitState(t, r, ref, provision.StateReady)
	for _, pids := range running(t, root, string(ref.UID)) {
		for _, pid := range pids {
			require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		}
	}
	seen := awaitState(t, r, ref, provision.StateUnreachable)
	assert.Equal(t, provision.ReasonNotAnswering, seen.Problem.Reason)
	assert.Contains(t, seen.Problem.Message, "timed out")
	for _, pids := range running(t, root, string(ref.UID)) {
		for _, pid := range pids {
			require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		}
	}
	awaitState(t, r, ref, provision.StateReady)
}

// A cluster for nodes is not started where no node could reach it, and says which flag to set.
func TestNodesAreRefusedOnLoopback(t *testing.T) {
	r, err := process.New(t.Context(), process.Options{Root: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(r.Crash)
	err = r.Start(t.Context(), provision.ClusterRef{Namespace: "ns", Name: "a", UID: "u"}, provision.Spec{ClusterName: "a", Nodes: &provision.NodeNetwork{}})
	require.ErrorContains(t, err, "nodes cannot reach hosted clusters at 127.0.0.1: start pool-operator with --hosted-listen-address")
	seen, err := r.Observe(t.Context(), provision.ClusterRef{Namespace: "ns", Name: "a", UID: "u"})
	require.NoError(t, err)
	assert.Equal(t, provision.StateAbsent, seen.State, "no data was written")
}
