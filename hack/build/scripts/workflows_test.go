// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// workflow is what the tests read of a workflow of the forge.
type workflow struct {
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]job    `yaml:"jobs"`
}

type job struct {
	Container yaml.Node `yaml:"container"`
	Minutes   int       `yaml:"timeout-minutes"`
	Needs     string    `yaml:"needs"`
	Steps     []step    `yaml:"steps"`
}

type step struct {
	Uses yaml.Node      `yaml:"uses"`
	Run  string         `yaml:"run"`
	With map[string]any `yaml:"with"`
}

// action is the name of the action that a step uses, without its version.
func (s step) action() string {
	name, _, _ := strings.Cut(s.Uses.Value, "@")
	return name
}

func (j job) with(action string) []map[string]any {
	var found []map[string]any
	for _, s := range j.Steps {
		if s.action() == action {
			found = append(found, s.With)
		}
	}
	return found
}

func (j job) runs(command string) bool {
	for _, s := range j.Steps {
		for line := range strings.Lines(s.Run) {
			if strings.TrimSpace(line) == command {
				return true
			}
		}
	}
	return false
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(hack(t, "../.github/workflows/*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	out := map[string]workflow{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var w workflow
		require.NoError(t, yaml.Unmarshal(text, &w), file)
		out[filepath.Base(file)] = w
	}
	return out
}

var (
	commit  = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	version = regexp.MustCompile(`^# v\d+\.\d+\.\d+$`)
	target  = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)
	makes   = regexp.MustCompile(`\bmake((?: +[\w./=${}" -]+)*)`)
	scripts = regexp.MustCompile(`(?:^|[ (])((?:\.ci|hack)/[\w/-]+)`)
)

// An action is code of others: a commit cannot be moved to another one, as a tag can. The comment is what dependency updates read.
func TestActionsArePinnedToCommits(t *testing.T) {
	for file, w := range workflows(t) {
		assert.NotEmpty(t, w.Permissions, "%s states no permissions", file)
		for name, j := range w.Jobs {
			assert.Positive(t, j.Minutes, "%s: %s may hang", file, name)
			assert.NotEmpty(t, j.Steps, "%s: %s", file, name)
			for _, s := range j.Steps {
				if s.Uses.Value != "" {
					assert.Regexp(t, commit, s.Uses.Value, "%s: %s", file, name)
					assert.Regexp(t, version, s.Uses.LineComment, "%s: %s says which version %s is", file, name, s.action())
				}
			}
		}
	}
}

// targets are what "make" makes, from the database that it prints.
func targets(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "-C", hack(t, ".."), "--print-data-base", "--question", "help")
	out, _ := cmd.Output() // its status is whether something is to be done
	found := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if name, _, is := strings.Cut(line, ":"); is && !strings.ContainsAny(name, " #=%\t.") {
			found[name] = true
		}
	}
	require.True(t, found["test"], "make prints no database")
	return found
}

// checkCommands holds that targets and scripts that a text runs are there.
func checkCommands(t *testing.T, text, where string, known map[string]bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for _, found := range makes.FindAllStringSubmatch(line, -1) {
			for word := range strings.FieldsSeq(found[1]) {
				if target.MatchString(word) {
					assert.True(t, known[word], "%s runs make %s, which is no target", where, word)
				}
			}
		}
		for _, found := range scripts.FindAllStringSubmatch(line, -1) {
			_, err := os.Stat(hack(t, "../"+found[1]))
			assert.NoError(t, err, where)
		}
	}
}

func TestWorkflowsRunWhatThereIs(t *testing.T) {
	known := targets(t)
	for file, w := range workflows(t) {
		for name, j := range w.Jobs {
			for _, s := range j.Steps {
				if !strings.Contains(s.Run, "apt-get") { // it installs the program make
					checkCommands(t, s.Run, file+": "+name, known)
				}
			}
		}
	}
	text, err := os.ReadFile(hack(t, "../.ci/run"))
	require.NoError(t, err)
	checkCommands(t, string(text), ".ci/run", known)
}

// What a run takes from outside the checkout stands in one file, whose variables the environment overrides.
func TestARunReachesOutsideTheCheckoutByVariables(t *testing.T) {
	run, err := os.ReadFile(hack(t, "../.ci/run"))
	require.NoError(t, err)
	assert.NotRegexp(t, `(?m)(^|[\s"'=:-])(\.\.)?/[a-z]`, string(run), "a path outside the checkout")
	assert.Contains(t, string(run), "\n. .ci/variables\n")
	for set, want := range map[string]string{"": "../shared/kind/up", "KIND_UP=/elsewhere": "/elsewhere", "KIND_UP=": ""} {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", `. .ci/variables; echo "$KIND_UP"`)
		cmd.Dir = hack(t, "..")
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KIND_UP=") })
		if set != "" {
			cmd.Env = append(cmd.Env, set)
		}
		out, err := cmd.Output()
		require.NoError(t, err, set)
		assert.Equal(t, want, strings.TrimSpace(string(out)), set)
	}
}

// With CI=true a test whose part is missing fails. Parts are packages of Debian, which root installs; roll-backs and the oldest Kubernetes need the history.
func TestChangesAreTestedAsAWhole(t *testing.T) {
	ci := workflows(t)["ci.yaml"]
	test := ci.Jobs["test"]
	assert.True(t, test.runs(".ci/run"))
	var image struct {
		Image string `yaml:"image"`
	}
	require.NoError(t, test.Container.Decode(&image))
	assert.Regexp(t, `^debian:\d+$`, image.Image)
	assert.Len(t, test.with("actions/upload-artifact"), 2, "logs of failures, and the live image")

	kind := ci.Jobs["kind"]
	assert.True(t, kind.runs("make e2e-kind"))
	assert.Equal(t, "test", kind.Needs, "it takes its live image")
	assert.NotEmpty(t, kind.with("actions/download-artifact"))
	for name, j := range map[string]job{"test": test, "kind": kind, "release": workflows(t)["release.yaml"].Jobs["release"]} {
		checkouts := j.with("actions/checkout")
		require.Len(t, checkouts, 1, name)
		assert.Equal(t, 0, checkouts[0]["fetch-depth"], name)
	}
}
