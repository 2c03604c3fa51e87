// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pages_test follows README.md and the pages below docs: what a block says is done with a real API server, in the order in which users do it, and every
// manifest is accepted there as it is.
package pages_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// block is what a page says in a fence of sh, yaml or console.
type block struct{ page, language, text string }

// blocks returns the blocks of a page. Those in lists are indented as their fences are.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	path, err := checkout.Path(filepath.FromSlash(page))
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []block
	var lines []string
	indent, language, inside := "", "", false
	for line := range strings.Lines(string(text)) {
		word := strings.TrimSpace(line)
		switch {
		case !inside && strings.HasPrefix(word, "```"):
			indent, _, _ = strings.Cut(line, "`")
			language, inside, lines = strings.TrimPrefix(word, "```"), true, nil
		case inside && word == "```":
			if slices.Contains([]string{"sh", "yaml", "console"}, language) {
				out = append(out, block{page, language, strings.Join(lines, "")})
			}
			inside = false
		case inside:
			lines = append(lines, strings.TrimPrefix(line, indent))
		}
	}
	require.False(t, inside, "%s ends inside of a block", page)
	return out
}

// pages are README.md, CONTRIBUTING.md, and all below docs.
func pages(t *testing.T) []string {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	out := []string{readme, "CONTRIBUTING.md"}
	require.NoError(t, fs.WalkDir(os.DirFS(root), "docs", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".md") {
			out = append(out, path)
		}
		return err
	}))
	return out
}

// found pairs each step with its block, and returns the manifests that have no step. Another block without a step, and a step without a block, fail the test.
func found(t *testing.T) (texts map[int]string, manifests []block) {
	t.Helper()
	texts = map[int]string{}
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			at := slices.IndexFunc(steps, func(s step) bool { return s.page == page && strings.HasPrefix(b.text, s.first) })
			for at >= 0 && texts[at] != "" { // the same first line again
				next := slices.IndexFunc(steps[at+1:], func(s step) bool { return s.page == page && strings.HasPrefix(b.text, s.first) })
				if next < 0 {
					at = -1
					break
				}
				at += 1 + next
			}
			switch {
			case at >= 0:
				texts[at] = b.text
			case b.language == "yaml" && strings.Contains(b.text, "apiVersion: "):
				manifests = append(manifests, b)
			default:
				assert.Fail(t, "a block without a step", "%s: do it here, or say why not:\n%s", page, b.text)
			}
		}
	}
	for i, s := range steps {
		assert.Contains(t, texts, i, "%s has no block that begins with %q", s.page, s.first)
		assert.NotEqual(t, s.do == nil, s.why == "", "%q is done, or has a reason", s.first)
	}
	return texts, manifests
}

func TestEveryBlockIsDoneOrHasAReason(t *testing.T) {
	_, manifests := found(t)
	assert.Greater(t, len(manifests), 20, "examples of kinds")
}

// Targets of make that the pages name are there.
func TestTargetsAreThere(t *testing.T) {
	path, err := checkout.Path("Makefile")
	require.NoError(t, err)
	makefile, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, page := range pages(t) {
		for _, b := range blocks(t, page) {
			for line := range strings.Lines(b.text) {
				line, _, _ = strings.Cut(line, "#")
				if words := strings.Fields(line); b.language == "sh" && len(words) > 1 && words[0] == "make" {
					for _, target := range words[1:] {
						assert.Contains(t, string(makefile), "\n"+target+":", page)
					}
				}
			}
		}
	}
}

func TestThePagesAreFollowed(t *testing.T) {
	texts, manifests := found(t)
	require.False(t, t.Failed())
	plane, _ := environmenttest.ControlPlane(t)
	u := newUser(t, plane.Kubeconfig())
	for i, s := range steps {
		if s.do != nil {
			t.Run(s.page, func(t *testing.T) { s.do(u.of(t), texts[i]) })
		}
	}
	for _, b := range manifests {
		t.Run(b.page, func(t *testing.T) { u.of(t).accept(b.text) })
	}
}
