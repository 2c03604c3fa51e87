// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-io/muster/pool-operator/internal/provision"
	"github.com/muster-io/muster/pool-operator/internal/provision/contract"
	"github.com/muster-io/muster/pool-operator/internal/provision/process"
)

// operatorVariable holds the task of a child process, as JSON.
const operatorVariable = "PROCESS_TEST_OPERATOR"

// task is what a child process does to one cluster before it is killed.
type task struct {
	Root string
	Ref  provision.ClusterRef
	// Do is "start", "stop" or "delete". Before the last two the cluster is brought up.
	Do string
}

// TestOperator is the operator that is killed: it says when it begins its task, does it, and waits for its end.
func TestOperator(t *testing.T) {
	encoded := os.Getenv(operatorVariable)
	if encoded == "" {
		t.Skip("runs only as a child of other tests")
	}
	var todo task
	require.NoError(t, json.Unmarshal([]byte(encoded), &todo))
	r := open(t, todo.Root)
	spec := provision.Spec{ClusterName: todo.Ref.Name}
	if todo.Do != "start" {
		require.NoError(t, r.Start(t.Context(), todo.Ref, spec))
		awaitState(t, r, todo.Ref, provision.StateReady)
	}
	fmt.Println("begin")
	switch todo.Do {
	case "start":
		require.NoError(t, r.Start(t.Context(), todo.Ref, spec))
	case "stop":
		require.NoError(t, r.Stop(t.Context(), todo.Ref))
	case "delete":
		require.NoError(t, r.Delete(t.Context(), todo.Ref))
	}
	<-t.Context().Done()
}

func awaitState(t *testing.T, r *process.Runtime, ref provision.ClusterRef, want provision.State) provision.Observation {
	t.Helper()
	var last provision.Observation
	require.EventuallyWithTf(t, func(c *assert.CollectT) {
		var err error
		last, err = r.Observe(t.Context(), ref)
		require.NoError(c, err)
		require.Equal(c, want, last.State, "%+v %v", last, last.Problem)
	}, patience, 20*time.Millisecond, "waiting for %s", want)
	return last
}

// runAndKill runs an operator that does the task and kills it a while after it began. It returns when the processes of the
// cluster are gone too, which only the kernel can ensure.
func runAndKill(t *testing.T, todo task, after time.Duration) {
	t.Helper()
	cmd := runOperator(t, todo)
	<-time.After(after)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	require.Eventually(t, func() bool { return len(running(t, todo.Root, string(todo.Ref.UID))) == 0 },
		patience, 5*time.Millisecond, "the processes of a killed operator end with it")
}

// runOperator returns when the operator begins its task.
func runOperator(t *testing.T, todo task) *exec.Cmd {
	t.Helper()
	encoded, err := json.Marshal(todo)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestOperator$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), operatorVariable+"="+string(encoded))
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(stdout); lines.Scan() && lines.Text() != "begin"; {
		t.Log(lines.Text())
	}
	return cmd
}

// TestTwoOperatorsOnOneRoot has the second leave alone what the first runs, and take over when that is gone.
func TestTwoOperatorsOnOneRoot(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	ref := newRef("shared")
	first := runOperator(t, task{Root: root, Ref: ref, Do: "nothing"})
	t.Cleanup(func() { _ = first.Process.Kill() })
	second := open(t, root)
	defer second.Crash()
	_, observed := second.Observe(t.Context(), ref)
	for what, err := range map[string]error{
		"observe": observed,
		"start":   second.Start(t.Context(), ref, provision.Spec{}),
		"stop":    second.Stop(t.Context(), ref),
		"delete":  second.Delete(t.Context(), ref),
	} {
		problem, ok := errors.AsType[*provision.Problem](err)
		require.True(t, ok, "%s: %v", what, err)
		assert.Equal(t, provision.ReasonNotHere, problem.Reason, what)
	}
	assertOneOfEach(t, root, ref)

	require.NoError(t, first.Process.Kill())
	_ = first.Wait()
	require.Eventually(t, func() bool { return second.Start(t.Context(), ref, provision.Spec{}) == nil }, patience, 20*time.Millisecond)
	awaitState(t, second, ref, provision.StateReady)
	assertOneOfEach(t, root, ref)
	removeAll(t, second, root, ref)
}

// TestEachDeathOfAClusterThatDiesAgainAndAgainCounts, though it was ready in between: the pauses between its starts grow.
func TestEachDeathOfAClusterThatDiesAgainAndAgainCounts(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	r := open(t, root)
	defer r.Crash()
	ref := newRef("dying")
	for deaths := range int32(2) {
		require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: ref.Name}))
		assert.Zero(t, awaitState(t, r, ref, provision.StateReady).Failures)
		killOne(t, root, ref, "etcd")
		assert.Equal(t, deaths+1, awaitState(t, r, ref, provision.StateFailed).Failures)
	}
	removeAll(t, r, root, ref)
}

func newRef(name string) provision.ClusterRef {
	return provision.ClusterRef{Namespace: "crash", Name: name, UID: types.UID("uid-of-" + name)}
}

// TestKilledWhileStarting kills one operator after the other at ever later moments of the start of one cluster.
func TestKilledWhileStarting(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	ref := newRef("starting")
	var access *provision.Access
	var id, url string
	for _, after := range moments(0, 2*time.Millisecond, 10*time.Millisecond, 40*time.Millisecond, 150*time.Millisecond,
		500*time.Millisecond, time.Second, 2*time.Second) {
		runAndKill(t, task{Root: root, Ref: ref, Do: "start"}, after)

		r := open(t, root)
		refs, err := r.List(t.Context())
		require.NoError(t, err)
		require.LessOrEqual(t, len(refs), 1)
		if len(refs) == 1 {
			seen, err := r.Observe(t.Context(), ref)
			require.NoError(t, err)
			assert.Equal(t, provision.StateStopped, seen.State)
			if id != "" {
				assert.Equal(t, id, seen.ID, "the identity of the data never changes")
			}
			id = seen.ID
			if now, err := r.Access(t.Context(), ref); err == nil {
				if access != nil {
					assert.Equal(t, *access, now, "credentials that were handed out never change")
				}
				access = &now
				url = seen.URL
			}
		}
		r.Crash()
	}
	r := open(t, root)
	defer r.Crash()
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: ref.Name}))
	ready := awaitState(t, r, ref, provision.StateReady)
	assert.Equal(t, id, ready.ID)
	assert.Equal(t, url, ready.URL)
	assertOneOfEach(t, root, ref)
	require.NoError(t, contract.Kubernetes{}.Use(t.Context(), *access))
	removeAll(t, r, root, ref)
}

// TestKilledWhileStopping keeps data through operators that are killed while they stop a cluster.
func TestKilledWhileStopping(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	root := t.TempDir()
	ref := newRef("stopping")
	r := open(t, root)
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: ref.Name}))
	awaitState(t, r, ref, provision.StateReady)
	access, err := r.Access(t.Context(), ref)
	require.NoError(t, err)
	require.NoError(t, contract.Kubernetes{}.Remember(t.Context(), access, "before"))
	r.Crash()
	for _, after := range moments(0, 20*time.Millisecond, 200*time.Millisecond) {
		runAndKill(t, task{Root: root, Ref: ref, Do: "stop"}, after)
	}
	r = open(t, root)
	defer r.Crash()
	require.NoError(t, r.Start(t.Context(), ref, provision.Spec{ClusterName: ref.Name}))
	awaitState(t, r, ref, provision.StateReady)
	assertOneOfEach(t, root, ref)
	mark, err := contract.Kubernetes{}.Recall(t.Context(), access)
	require.NoError(t, err)
	assert.Equal(t, "before", mark)
	removeAll(t, r, root, ref)
}

// TestKilledWhileDeleting leaves nothing of a cluster, also without another request for its removal: the ClusterDeployment
// may be gone by then.
func TestKilledWhileDeleting(t *testing.T) {
	requireBinaries(t)
	t.Parallel()
	for _, after := range moments(0, 5*time.Millisecond, 50*time.Millisecond) {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			ref := newRef("deleting")
			runAndKill(t, task{Root: root, Ref: ref, Do: "delete"}, after)
			r := open(t, root)
			defer r.Crash()
			refs, err := r.List(t.Context())
			require.NoError(t, err)
			for _, listed := range refs {
				require.NoError(t, r.Delete(t.Context(), listed), "a cluster that was not marked in time is found as an orphan")
			}
			removeAll(t, r, root, ref)
		})
	}
}

// moments adds one moment that no run has tried before.
func moments(chosen ...time.Duration) []time.Duration {
	return append(chosen, rand.N(3*time.Second))
}

func assertOneOfEach(t *testing.T, root string, ref provision.ClusterRef) {
	t.Helper()
	found := running(t, root, string(ref.UID))
	assert.Len(t, found, 3, "%v", found)
	for name, pids := range found {
		assert.Len(t, pids, 1, name)
	}
}

// removeAll deletes the cluster and finds the root as it was before the first one.
func removeAll(t *testing.T, r *process.Runtime, root string, ref provision.ClusterRef) {
	t.Helper()
	require.NoError(t, r.Delete(t.Context(), ref))
	awaitState(t, r, ref, provision.StateAbsent)
	require.Empty(t, running(t, root, string(ref.UID)))
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	require.Len(t, entries, 1, "%v", entries)
	assert.Equal(t, "lock", entries[0].Name())
}
