// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package raced

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPackagesThatShareMemoryNeedTheDetector(t *testing.T) {
	for given, c := range map[string]struct {
		source string
		want   bool
	}{
		"functions":                      {"package p\n\nimport \"strings\"\n\nvar X = strings.ToUpper(\"x\")\n", false},
		"a goroutine":                    {"package p\n\nfunc f() { go f() }\n", true},
		"a goroutine in a nested block":  {"package p\n\nfunc f() { if true { func() { go f() }() } }\n", true},
		"a select statement":             {"package p\n\nfunc f(c chan int) { select { case <-c: default: } }\n", true},
		"a mutex":                        {"package p\n\nimport \"sync\"\n\nvar mu sync.Mutex\n", true},
		"atomics":                        {"package p\n\nimport \"sync/atomic\"\n\nvar n atomic.Int64\n", true},
		"an error group":                 {"package p\n\nimport _ \"golang.org/x/sync/errgroup\"\n", true},
		"handlers of a server":           {"package p\n\nimport _ \"net/http\"\n", true},
		"a manager":                      {"package p\n\nimport _ \"sigs.k8s.io/controller-runtime/pkg/manager\"\n", true},
		"a control plane":                {"package p\n\nimport _ \"github.com/muster-io/muster/apis/controlplanetest\"\n", true},
		"parallel tests":                 {"package p\n\nimport \"testing\"\n\nfunc TestP(t *testing.T) { t.Parallel() }\n", true},
		"a client":                       {"package p\n\nimport _ \"sigs.k8s.io/controller-runtime/pkg/client\"\n", false},
		"a fake client, which has locks": {"package p\n\nimport _ \"sigs.k8s.io/controller-runtime/pkg/client/fake\"\n", true},
		"a name that begins alike":       {"package p\n\nimport _ \"synchrony\"\n", false},
	} {
		t.Run(given, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "p_test.go"), []byte(c.source), 0o600))
			got, differs, err := read(dir)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.False(t, differs)
		})
	}
}

// Every package of a module is tested, with the detector or without it.
func TestSplitLeavesNoPackageOut(t *testing.T) {
	raced, plain, err := Split(t.Context(), "..")
	require.NoError(t, err)
	assert.Contains(t, raced, "github.com/muster-io/muster/hack/build/progress", "it starts goroutines")
	assert.Contains(t, plain, "github.com/muster-io/muster/hack/build/versions", "it starts none")
	sources, err := filepath.Glob("../*/*.go")
	require.NoError(t, err)
	assert.NotEmpty(t, sources)
	for _, source := range sources {
		path := "github.com/muster-io/muster/hack/build/" + filepath.Base(filepath.Dir(source))
		assert.Contains(t, append(raced, plain...), path)
	}
}

// What ships is tested, too, where the detector has other code.
func TestAPackageWithOtherCodeForTheDetectorIsTestedBothWays(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n",
		"p.go":      "// A licence.\n\n//go:build !race\n\npackage p\n\nimport \"sync\"\n\nvar mu sync.Mutex\n",
		"p_race.go": "// A licence.\n\n//go:build race\n\npackage p\n",
		"t/t.go":    "package t\n\nimport \"sync\"\n\nvar mu sync.Mutex\n",
		// A test that does less with the detector tests the same code.
		"t/size_race_test.go": "//go:build race\n\npackage t\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	raced, plain, err := Split(t.Context(), dir)
	require.NoError(t, err)
	assert.Equal(t, []string{"m", "m/t"}, raced)
	assert.Equal(t, []string{"m"}, plain)
}
