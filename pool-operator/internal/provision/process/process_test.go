// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/pool-operator/internal/controller/clusterdeployment"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"

	"github.com/muster-io/muster/apis/needtest"
)

// patience bounds the waits for a cluster.
const patience = 2 * time.Minute

// requireBinaries skips, or fails where nothing may be missing, when there is no control plane to run.
func requireBinaries(t testing.TB) {
	t.Helper()
	_, err := controlplane.FindBinaries("")
	needtest.NoError(t, err)
}

func open(t testing.TB, root string) *process.Runtime {
	t.Helper()
	r, err := process.New(t.Context(), process.Options{Root: root, UnsafeNoFsync: true})
	require.NoError(t, err)
	return r
}

func TestContract(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	// Each case has a root of its own below this one.
	roots := t.TempDir()
	var (
		mu     sync.Mutex
		opened []*process.Runtime
	)
	t.Cleanup(func() {
		for _, r := range opened {
			r.Crash()
		}
	})
	contract.Run(t, contract.Harness{
		Open: func(t *testing.T) clusterdeployment.Runtime {
			sum := fnv.New32a()
			_, _ = sum.Write([]byte(t.Name()))
			r := open(t, filepath.Join(roots, strconv.Itoa(int(sum.Sum32()))))
			mu.Lock()
			defer mu.Unlock()
			opened = append(opened, r)
			return r
		},
		Crash:     func(_ *testing.T, r clusterdeployment.Runtime) { r.(*process.Runtime).Crash() },
		Kill:      func(t *testing.T, ref provision.ClusterRef) { killOne(t, roots, ref, "etcd") },
		Namespace: func(*testing.T) string { return "contract" },
		Use:       contract.Kubernetes{}.Use,
		Remember:  contract.Kubernetes{}.Remember,
		Recall:    contract.Kubernetes{}.Recall,
		Leftovers: func(_ context.Context, ref provision.ClusterRef) ([]string, error) {
			return leftovers(t, roots, ref), nil
		},
		Timeout:  patience,
		Parallel: true,
	})
}

// running returns the processes that work for a cluster, as command → pids. They are found by what they have open, so
// also when no pid file names them.
func running(t testing.TB, root string, uid string) map[string][]int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	found := map[string][]int{}
	for _, link := range links {
		cwd, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(cwd, root) || !strings.Contains(cwd, uid) {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		require.NoError(t, err)
		command, err := os.ReadFile(filepath.Join(filepath.Dir(link), "comm"))
		if err == nil {
			name := strings.TrimSpace(string(command))
			found[name] = append(found[name], pid)
		}
	}
	return found
}

func killOne(t testing.TB, root string, ref provision.ClusterRef, name string) {
	t.Helper()
	pids := running(t, root, string(ref.UID))[name]
	require.Len(t, pids, 1, "one %s runs for %s", name, ref)
	require.NoError(t, syscall.Kill(pids[0], syscall.SIGKILL))
}

// leftovers names what is left of a cluster below any of the roots.
func leftovers(t testing.TB, roots string, ref provision.ClusterRef) []string {
	t.Helper()
	var left []string
	for name, pids := range running(t, roots, string(ref.UID)) {
		left = append(left, fmt.Sprintf("%s %v", name, pids))
	}
	files, err := filepath.Glob(filepath.Join(roots, "*", "*"+string(ref.UID)+"*"))
	require.NoError(t, err)
	left = append(left, files...)
	slices.Sort(left)
	return left
}
