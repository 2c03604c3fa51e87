// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A stage leaves its seconds where it is asked to, and passes on status and output of its command.
func TestAStageIsMeasured(t *testing.T) {
	s := newShell(t)
	stages := filepath.Join(t.TempDir(), "stages")
	stdout, _, err := s.run([]string{"STAGES=" + stages}, hack(t, "stage"), "two words", "sh", "-c", "echo out; exit 7")
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // the error of the command itself
	require.True(t, ok, "%v", err)
	assert.Equal(t, 7, exit.ExitCode())
	assert.Equal(t, "out\n", stdout)
	text, err := os.ReadFile(stages)
	require.NoError(t, err)
	assert.Regexp(t, `^[0-9.]+ [0-9.]+ [0-9.]+ two words\n$`, string(text))

	stdout, _, err = s.run([]string{"STAGES="}, hack(t, "stage"), "one", "echo", "plain")
	require.NoError(t, err)
	assert.Equal(t, "plain\n", stdout)
}

// repository makes a repository with the two scripts and a Makefile, and returns its directory.
func repository(t *testing.T, makefile string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "hack"), 0o700))
	for _, name := range []string{"cold", "stage"} {
		script, err := os.ReadFile(hack(t, name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "hack", name), script, 0o700))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Makefile"), []byte(makefile), 0o600))
	require.NoError(t, exec.CommandContext(t.Context(), "git", "init", "-q", dir).Run())
	return dir
}

// A cold run has caches of its own, works on a copy of what is not ignored, leaves nothing, and tells a failure.
func TestAColdRunHasCachesOfItsOwn(t *testing.T) {
	s := newShell(t)
	tmp := t.TempDir()
	dir := repository(t, "demo:\n\t@hack/stage first sh -c 'echo caches $$GOCACHE $$XDG_CACHE_HOME; touch made'\n\t@hack/stage second true\nfail:\n\t@hack/stage bad false\n")
	stdout, stderr, err := s.run([]string{"TMPDIR=" + tmp}, filepath.Join(dir, "hack", "cold"))
	require.NoError(t, err, stderr)
	assert.Regexp(t, `caches `+tmp+`/muster-cold\.\w+/go-build `+tmp+`/muster-cold\.\w+/cache\n`, stderr, "the table alone is on standard output")
	assert.Regexp(t, `(?m)^make demo, cold: .* cores.* modules kept$`, stdout)
	for _, row := range []string{"first", "second", "all"} {
		assert.Regexp(t, `(?m)^`+row+`( +[0-9.]+){4}$`, stdout)
	}
	assert.NoFileExists(t, filepath.Join(dir, "made"), "the copy was built")
	left, err := os.ReadDir(tmp)
	require.NoError(t, err)
	assert.Empty(t, left)

	stdout, stderr, err = s.run([]string{"TMPDIR=" + tmp}, filepath.Join(dir, "hack", "cold"), "--modules", "fail")
	require.Error(t, err)
	assert.Contains(t, stderr, "make fail ended with status 2")
	assert.Contains(t, stdout, "modules downloaded")
	_, stderr, err = s.run(nil, filepath.Join(dir, "hack", "cold"), "--module")
	require.Error(t, err)
	assert.Contains(t, stderr, "usage:")
}

// The first time is announced with what it takes, later ones are not.
func TestTheDemoIsAnnounced(t *testing.T) {
	s := newShell(t)
	stdout, stderr, err := s.run(nil, hack(t, "announce"))
	require.NoError(t, err, stderr)
	assert.Contains(t, stdout, "The first time takes")
	directory, _, err := s.run(nil, hack(t, "controlplane/build"), "--dir")
	require.NoError(t, err)
	directory = strings.TrimSpace(directory)
	assert.Contains(t, stdout, directory)

	require.NoError(t, os.MkdirAll(directory, 0o700))
	executable(t, directory, "kube-apiserver", "Kubernetes v1.2.3")
	stdout, stderr, err = s.run(nil, hack(t, "announce"))
	require.NoError(t, err, stderr)
	assert.Contains(t, stdout, "a Kubernetes control plane: is there")
	assert.NotContains(t, stdout, "The first time takes")
}
