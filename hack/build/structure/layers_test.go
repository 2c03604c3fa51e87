// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestThePageOfTheArchitectureShowsTheLayers(t *testing.T) {
	found, err := Layers("../../..", "docs/architecture.md", "agent-service/internal")
	require.NoError(t, err)
	assert.Empty(t, found)
}

func TestThePageOfTheArchitectureNamesThePackagesOfApis(t *testing.T) {
	page, err := os.ReadFile("../../../docs/architecture.md")
	require.NoError(t, err)
	sources, err := filepath.Glob("../../../apis/*/*.go")
	require.NoError(t, err)
	assert.NotEmpty(t, sources)
	for _, source := range sources {
		name := filepath.Base(filepath.Dir(source))
		generated := name == "applyconfiguration" || name == "crd"
		if !generated && !strings.HasSuffix(name, "test") {
			assert.Contains(t, string(page), "`apis/"+name+"`")
		}
	}
}

func TestLayers(t *testing.T) {
	for given, c := range map[string]struct {
		page string
		want []string
	}{
		"a row above imports one below": {"| `a` | does |\n| `b` | does |\n", nil},
		"packages of one row":           {"| `a`, `b` | do |\n", nil},
		"a row below imports one above": {"| `b` | does |\n| `a` | does |\n", []string{"a imports b, which stands above it"}},
		"a package without a row":       {"| `b` | does |\n", []string{"a is not in the table"}},
		"a row without a package":       {"| `a` | does |\n| `b`, `c` | do |\n", []string{"c is in the table and nowhere else"}},
	} {
		t.Run(given, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{
				"page.md": c.page, "o/internal/a/a.go": "package a\n\nimport _ \"github.com/muster-io/muster/o/internal/b\"\n", "o/internal/b/b.go": "package b\n",
			} {
				path := filepath.Join(root, filepath.FromSlash(name))
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			}
			got, err := Layers(root, "page.md", "o/internal")
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
		})
	}
}
