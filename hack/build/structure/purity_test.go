// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package structure

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

func TestPlansArePureThroughAllThatTheyImport(t *testing.T) {
	found, err := Impurities("../../..")
	require.NoError(t, err)
	assert.Empty(t, found, "move the values that the plan needs to a package that .golangci.yml lists as pure")
}

// The linter's rules for clocks and for imports list the pure packages each for itself.
func TestTheLinterRefusesClocksInEachPurePackage(t *testing.T) {
	text, err := os.ReadFile("../../../.golangci.yml")
	require.NoError(t, err)
	var linter struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct{ Files []string }
				}
			}
			Exclusions struct {
				Rules []struct {
					PathExcept string `yaml:"path-except"`
					Text       string
				}
			}
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &linter))
	var clocks *regexp.Regexp
	for _, rule := range linter.Linters.Exclusions.Rules {
		if rule.Text == "now is an argument of a plan" {
			clocks = regexp.MustCompile(rule.PathExcept)
		}
	}
	require.NotNil(t, clocks)
	pure := 0
	for _, glob := range linter.Linters.Settings.Depguard.Rules["pure"].Files {
		if below, found := strings.CutPrefix(glob, "**/"); found {
			pure++
			assert.Regexp(t, clocks, "o/"+strings.NewReplacer("**", "p.go", "*", "p").Replace(below))
		}
	}
	assert.Positive(t, pure)
}

// Each package of apis for tests is refused in what ships.
func TestTheLinterRefusesPackagesForTestsInWhatShips(t *testing.T) {
	text, err := os.ReadFile("../../../.golangci.yml")
	require.NoError(t, err)
	packages, err := filepath.Glob("../../../apis/*test")
	require.NoError(t, err)
	assert.NotEmpty(t, packages)
	for _, dir := range packages {
		assert.Contains(t, string(text), "{pkg: github.com/muster-io/muster/apis/"+filepath.Base(dir)+", desc: for tests only}")
	}
}

func TestImpurities(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		path := filepath.Join(root, file)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	write(".golangci.yml", `
linters:
  settings:
    depguard:
      rules:
        pure: {files: ["**/internal/*plan/**", "**/internal/domain/**", "**/internal/port/*.go", "!$test"]}
`)
	write("o/internal/poolplan/plan.go", `package poolplan

import (
	_ "fmt"
	_ "github.com/muster-io/muster/apis/hive/v1"
	_ "github.com/muster-io/muster/apis/probes"
	_ "github.com/muster-io/muster/o/internal/domain/values"
	_ "github.com/muster-io/muster/o/internal/port"
	_ "github.com/muster-io/muster/o/internal/store"
)
`)
	write("o/internal/port/port.go", "package port\n")
	write("o/internal/port/real/real.go", "package real\n\nimport _ \"github.com/muster-io/muster/o/internal/store\"\n")
	write("o/internal/poolplan/plan_test.go", "package poolplan\n\nimport _ \"github.com/muster-io/muster/o/internal/store\"\n")
	write("o/internal/store/store.go", "package store\n\nimport _ \"github.com/muster-io/muster/apis/probes\"\n")
	found, err := Impurities(root)
	require.NoError(t, err)
	assert.Equal(t, []string{"o/internal/poolplan imports apis/probes", "o/internal/poolplan imports o/internal/store"}, found)
}
