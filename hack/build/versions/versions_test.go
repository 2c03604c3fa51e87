// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package versions

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestVersionsAreOrderedAsSemver(t *testing.T) {
	for _, pair := range []struct{ given, lower, higher string }{
		{"numbers count as numbers", "v0.9.0", "v0.10.0"},
		{"a pre-release comes before its release", "v1.36.12-0.20260120151049-f2248ac996af", "v1.36.12"},
		{"a pre-release of the next release comes after this one", "v1.36.11", "v1.36.12-0.20260120151049-f2248ac996af"},
		{"the time decides between pseudo-versions", "v0.0.0-20260526163538-3dc84a4a5aaa", "v0.0.0-20261005182115-0ad411399dd8"},
		{"numbers come before words", "v1.0.0-1", "v1.0.0-alpha"},
		{"fewer parts come first", "v1.0.0-alpha", "v1.0.0-alpha.1"},
		{"incompatible majors are majors", "v2.5.0+incompatible", "v5.0.0+incompatible"},
	} {
		t.Run(pair.given, func(t *testing.T) {
			assert.Negative(t, compare(pair.lower, pair.higher))
			assert.Positive(t, compare(pair.higher, pair.lower))
			assert.Zero(t, compare(pair.lower, pair.lower))
		})
	}
}

// modules writes go.mod files by directory and returns their root.
func modules(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for dir, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, dir, "go.mod"), []byte("module example.com/"+dir+"\n\ngo 1.26.0\n\n"+text), 0o600))
	}
	return root
}

func TestDriftNamesTheLibraryAndTheModules(t *testing.T) {
	root := modules(t, map[string]string{
		"one":   "require golang.org/x/net v0.57.0\nrequire example.com/same v1.0.0\n",
		"two":   "require golang.org/x/net v0.61.0 // indirect\nrequire example.com/same v1.0.0\n",
		"three": "require golang.org/x/net v0.61.0\nrequire example.com/alone v1.2.3\n",
	})
	drifts, err := Check(t.Context(), root, []string{"one", "two", "three"})
	require.NoError(t, err)
	require.Len(t, drifts, 1)
	assert.Equal(t, "golang.org/x/net: v0.61.0 in three, two; v0.57.0 in one", drifts[0].String())
	assert.Equal(t, map[string][]string{"one": {"-require=golang.org/x/net@v0.61.0"}}, raises(drifts))

	drifts, err = Check(t.Context(), root, []string{"two", "three"})
	require.NoError(t, err)
	assert.Empty(t, drifts)
}

// The build cache knows a package by the version that is required, so a requirement that a replacement overrides drifts.
func TestReplacementsCount(t *testing.T) {
	root := modules(t, map[string]string{
		"plain":    "require k8s.io/api v0.37.2\nrequire example.com/apis v0.0.0\nreplace example.com/apis => ../apis\n",
		"replaced": "require k8s.io/api v0.37.2\nreplace k8s.io/api => k8s.io/api v0.37.2\nrequire example.com/apis v0.0.1\n",
		"stale":    "require k8s.io/api v0.0.0\nreplace k8s.io/api => k8s.io/api v0.37.2\n",
	})
	drifts, err := Check(t.Context(), root, []string{"plain", "replaced"})
	require.NoError(t, err)
	assert.Empty(t, drifts, "a replacement by the required version, and one by a directory")
	drifts, err = Check(t.Context(), root, []string{"plain", "replaced", "stale"})
	require.NoError(t, err)
	require.Len(t, drifts, 1)
	assert.Contains(t, drifts[0].String(), "v0.0.0 => v0.37.2 in stale")
}

func TestUnreadableModuleIsNamed(t *testing.T) {
	root := modules(t, map[string]string{"broken": "require\n"})
	_, err := Check(t.Context(), root, []string{"broken"})
	require.ErrorContains(t, err, "broken/go.mod")
}

// The Makefile lists the modules that share compiled packages; this is the check of "make verify" on the same list.
func TestModulesOfTheRepositoryAreInStep(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	files, err := filepath.Glob(filepath.Join(root, "*", "go.mod"))
	require.NoError(t, err)
	nested, err := filepath.Glob(filepath.Join(root, "*", "*", "go.mod"))
	require.NoError(t, err)
	var dirs []string
	for _, file := range append(files, nested...) {
		dir, err := filepath.Rel(root, filepath.Dir(file))
		require.NoError(t, err)
		// These have programs that are compiled apart.
		if apart := []string{"hack/containerd", "hack/dex", "hack/tools"}; !slices.Contains(apart, filepath.ToSlash(dir)) {
			dirs = append(dirs, dir)
		}
	}
	require.Greater(t, len(dirs), 6, "the modules of the repository were found")
	drifts, err := Check(t.Context(), root, dirs)
	require.NoError(t, err)
	assert.Empty(t, drifts, "run make tidy")
}
