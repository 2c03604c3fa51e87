// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

// A start that was killed while it prepared holds up no other. Two starts at once are copies of one control plane: they serve its kinds, and are apart from
// then on.
func TestPreparedControlPlanesAreCopies(t *testing.T) {
	programs, err := controlplane.FindBinaries("")
	needtest.NoError(t, err)
	cache, kinds := t.TempDir(), t.TempDir()
	t.Setenv("KUBEBUILDER_ASSETS", filepath.Dir(programs.APIServer))
	t.Setenv("XDG_CACHE_HOME", cache)
	require.NoError(t, os.WriteFile(filepath.Join(kinds, "moons.yaml"), []byte(definition), 0o600))
	root := filepath.Join(cache, "muster", "prepared")

	killed := beginProgram(t, t.TempDir(), asProgram, "--prepared", "--crds="+kinds)
	require.Eventually(t, func() bool {
		begun, err := filepath.Glob(filepath.Join(root, "*.new", "etcd"))
		return err == nil && len(begun) == 1
	}, patience, time.Millisecond)
	require.NoError(t, killed.cmd.Process.Kill())
	_ = killed.cmd.Wait()

	var copies []*running
	for range 2 {
		copies = append(copies, beginProgram(t, t.TempDir(), asProgram, "--prepared", "--crds="+kinds))
	}
	uids := map[string]bool{}
	for n, r := range copies {
		r.untilReady(t)
		client := r.servesMoons(t)
		system, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		require.NoError(t, err)
		uids[string(system.UID)] = true
		all, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{LabelSelector: "n"})
		require.NoError(t, err)
		assert.Empty(t, all.Items, "of control plane %d", n)
		system.Labels["n"] = ""
		_, err = client.CoreV1().Namespaces().Update(t.Context(), system, metav1.UpdateOptions{})
		require.NoError(t, err)
	}
	assert.Len(t, uids, 1)
	made, err := filepath.Glob(filepath.Join(root, "*"))
	require.NoError(t, err)
	assert.Len(t, made, 1, "nothing is left of the one that was killed")
}

func TestWhatNothingUsedIsRemoved(t *testing.T) {
	root := t.TempDir()
	long := time.Now().Add(-2 * unusedFor)
	for name, used := range map[string]time.Time{"old": long, "new": time.Now()} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, name, "etcd"), 0o700))
		require.NoError(t, os.Chtimes(filepath.Join(root, name), used, used))
	}
	require.NoError(t, removeUnused(root))
	assert.NoDirExists(t, filepath.Join(root, "old"))
	assert.DirExists(t, filepath.Join(root, "new"))
}
