// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// unlisted are the directories of modules that get no updates, and why.
var unlisted = map[string]string{
	"/hack/controlplane/oldest":  "its versions are those of the oldest Kubernetes that is supported",
	"/hack/controlplane/between": "its versions are those of the newest Kubernetes that the API server of the tests does not emulate",
}

// Every Go module gets updates of its requirements, or the test says why it gets none.
func TestDependenciesOfEveryModuleAreUpdated(t *testing.T) {
	root := hack(t, "..")
	text, err := os.ReadFile(path.Join(root, ".github", "dependabot.yml"))
	require.NoError(t, err)
	var config struct {
		Updates []struct {
			Ecosystem   string   `yaml:"package-ecosystem"`
			Directory   string   `yaml:"directory"`
			Directories []string `yaml:"directories"`
		} `yaml:"updates"`
	}
	require.NoError(t, yaml.Unmarshal(text, &config))
	var listed []string
	for _, update := range config.Updates {
		if update.Ecosystem == "gomod" {
			listed = append(listed, update.Directories...)
		}
	}
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "go.mod", "*/go.mod")
	cmd.Dir = root
	files, err := cmd.Output()
	require.NoError(t, err)
	var modules []string
	for file := range strings.FieldsSeq(string(files)) {
		if dir := "/" + path.Dir(file); unlisted[dir] == "" {
			modules = append(modules, dir)
		}
	}
	assert.ElementsMatch(t, modules, listed)
	for dir, why := range unlisted {
		assert.FileExists(t, path.Join(root, dir, "go.mod"), why)
	}
}
