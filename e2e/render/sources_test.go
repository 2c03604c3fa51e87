// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/render"
)

// operatorSources returns the Go sources of the operators that can be deployed as one text, tests left out.
func operatorSources(t *testing.T) string {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	var all strings.Builder
	for _, module := range []string{"pool-operator", "ipam-operator", "discovery-operator", "agent-service"} {
		if _, err := os.Stat(filepath.Join(root, "deploy", "base", module)); errors.Is(err, fs.ErrNotExist) {
			continue // nothing is deployed that could be watched
		}
		err := filepath.WalkDir(filepath.Join(root, module), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			all.Write(text)
			return err
		})
		require.NoError(t, err)
	}
	return all.String()
}

// builds are the directories that a test has rendered, as functions that render each once.
var builds sync.Map

// mustRender renders a directory once for all tests, which share its objects and do not change them.
func mustRender(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	build, _ := builds.LoadOrStore(dir, sync.OnceValues(func() ([]*unstructured.Unstructured, error) { return render.Directory(dir) }))
	objects, err := build.(func() ([]*unstructured.Unstructured, error))()
	require.NoError(t, err)
	return slices.Clone(objects)
}
