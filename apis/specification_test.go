// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package apis_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
)

// specifications is where every kind is described for its users.
const specifications = "../docs/spec"

// TestEveryFieldIsSpecified wants the page of a kind to name every field of its spec and status.
func TestEveryFieldIsSpecified(t *testing.T) {
	pages := 0
	for _, c := range ourCRDs(t) {
		page, err := os.ReadFile(filepath.Join(specifications, c.Spec.Names.Singular+".md"))
		if errors.Is(err, fs.ErrNotExist) && c.Spec.Group != hivev1.GroupName {
			continue
		}
		require.NoError(t, err, "%s has no page", c.Spec.Names.Kind)
		pages++
		root := c.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			for field := range root.Properties[part].Properties {
				if !strings.Contains(string(page), field) {
					t.Errorf("the page of %s says nothing about %s.%s", c.Spec.Names.Kind, part, field)
				}
			}
		}
	}
	assert.GreaterOrEqual(t, pages, 4)
}

// TestEveryReasonIsSpecified wants every condition, every reason of one or of an event, and every answer to what a claim waits for, to stand on a page.
func TestEveryReasonIsSpecified(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(specifications, "*.md"))
	require.NoError(t, err)
	var text strings.Builder
	for _, page := range pages {
		data, err := os.ReadFile(page)
		require.NoError(t, err)
		text.Write(data)
	}
	for _, group := range []string{"hive/v1", "hiveextensions/v1beta1", "agentinstall/v1beta1", "ipam/v1alpha1", "metal3/v1alpha1"} {
		reasons := 0
		for name, value := range stringConstants(t, group+"/*.go") {
			if !strings.HasPrefix(name, "Reason") && !strings.HasPrefix(name, "Wait") {
				continue
			}
			reasons++
			if !strings.Contains(text.String(), "`"+value+"`") {
				t.Errorf("no page says what %s of %s (%s) means", name, group, value)
			}
		}
		assert.Positive(t, reasons, group)
	}
	files, err := filepath.Glob("*/v*/*conditions.go")
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(files), 5)
	for _, file := range files {
		for name, value := range stringConstants(t, file) {
			if !strings.HasPrefix(name, "Finalizer") && !strings.Contains(text.String(), "`"+value+"`") {
				t.Errorf("no page says what %s of %s (%s) means", name, file, value)
			}
		}
	}
}

// TestRunbooksSayWhatToDoForEachReason of claims that wait, for which the alerts of that name fire.
func TestRunbooksSayWhatToDoForEachReason(t *testing.T) {
	read := func(page string) string {
		data, err := os.ReadFile(filepath.Join("../docs", page))
		require.NoError(t, err)
		return string(data)
	}
	clusters := read("runbooks/PoolClaimsWaiting.md")
	for name, value := range stringConstants(t, "hive/v1/clusterclaim_types.go") {
		if !strings.HasPrefix(name, "Wait") || value == string(hivev1.WaitQueueTimedOut) { // such a claim is in no queue
			continue
		}
		assert.Contains(t, clusters, "`"+value+"`", name)
	}
	addresses := read("runbooks/IPAMClaimsWaiting.md")
	refused := regexp.MustCompile("(?m)^\\| False \\| `(\\w+)`").FindAllStringSubmatch(read("spec/ipclaim.md"), -1)
	require.NotEmpty(t, refused)
	for _, reason := range append(refused, []string{"", "Paused"}) {
		if reason[1] != ipamv1.ReasonAddressesPending { // the claim for the other address waits
			assert.Contains(t, addresses, "| `"+reason[1]+"` |", "a row of the table")
		}
	}
}

// stringConstants returns the string constants that files declare, by name.
func stringConstants(t *testing.T, pattern string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	constants := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				if i >= len(spec.Values) {
					break
				}
				if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					value, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)
					constants[name.Name] = value
				}
			}
			return false
		})
	}
	return constants
}
