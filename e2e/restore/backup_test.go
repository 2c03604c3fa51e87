// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package restore_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/checkout"
)

// Each cluster of a pool has a namespace. The names of thousands of them are longer than an argument of a program may be.
func TestABackupMayHaveThousandsOfNamespaces(t *testing.T) {
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	const clusters = 3000
	answers := t.TempDir()
	list := func(name string, object func(i int) map[string]any) {
		items := []any{map[string]any{"metadata": map[string]any{"name": "other", "namespace": "other"}}}
		for i := range clusters {
			items = append(items, object(i))
		}
		content, err := json.Marshal(map[string]any{"items": items})
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(answers, name), content, 0o600))
	}
	namespace := func(i int) string { return fmt.Sprintf("pool-of-a-team-with-a-long-name-%05d-x7k2p", i) }
	list("namespaces", func(i int) map[string]any { return map[string]any{"metadata": map[string]any{"name": namespace(i)}} })
	inside := func(i int) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "one", "namespace": namespace(i)}}
	}
	list("secrets", inside)
	list("configmaps", inside)
	items := make([]any, 0, clusters)
	for i := range clusters {
		items = append(items, inside(i))
	}
	content, err := json.Marshal(map[string]any{"items": items})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(answers, "clusterdeployments.hive.openshift.io"), content, 0o600))
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	script := "#!/bin/sh\ncase $2 in crd) echo customresourcedefinition.apiextensions.k8s.io/clusterdeployments.hive.openshift.io ;; *) cat '" + answers + "'/\"$2\" ;; esac\n"
	require.NoError(t, os.WriteFile(kubectl, []byte(script), 0o700))

	backup, err := checkout.Path("hack", "backup")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "backup")
	cmd := exec.CommandContext(t.Context(), backup, dir)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"01-namespaces", "02-secrets", "02-configmaps"} {
		content, err := os.ReadFile(filepath.Join(dir, name+".json"))
		require.NoError(t, err)
		var saved struct{ Items []any }
		require.NoError(t, json.Unmarshal(content, &saved))
		assert.Len(t, saved.Items, clusters, "%s: those of the clusters, and no others", name)
	}
}
