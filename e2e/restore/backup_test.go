// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package restore_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
	require.NoError(t, os.WriteFile(filepath.Join(answers, "leases.coordination.k8s.io"), []byte(`{"items":[]}`), 0o600))
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

// Claims and addresses of Cluster API belong to the provider of their pool, and so do the Secrets of a namespace that has no others.
func TestABackupLeavesOtherProvidersTheirAddresses(t *testing.T) {
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	answers, kubectl := t.TempDir(), filepath.Join(t.TempDir(), "kubectl")
	const both = `{"items":[
		{"metadata":{"name":"ours","namespace":"metal"},"spec":{"poolRef":{"apiGroup":"ipam.metal3.io","kind":"IPPool","name":"p"}}},
		{"metadata":{"name":"theirs","namespace":"vsphere"},"spec":{"poolRef":{"apiGroup":"ipam.cluster.x-k8s.io","kind":"InClusterIPPool","name":"p"}}}]}`
	for name, content := range map[string]string{
		"ipaddressclaims.ipam.cluster.x-k8s.io": both, "ipaddresses.ipam.cluster.x-k8s.io": both, "leases.coordination.k8s.io": `{"items":[]}`, "configmaps": `{"items":[]}`,
		"namespaces": `{"items":[{"metadata":{"name":"metal"}},{"metadata":{"name":"vsphere"}}]}`,
		"secrets":    `{"items":[{"metadata":{"name":"ours","namespace":"metal"}},{"metadata":{"name":"theirs","namespace":"vsphere"}}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(answers, name), []byte(content), 0o600))
	}
	script := "#!/bin/sh\ncase $2 in crd) printf 'crd/%s\\n' ipaddressclaims.ipam.cluster.x-k8s.io ipaddresses.ipam.cluster.x-k8s.io ;; *) cat '" + answers + "'/\"$2\" ;; esac\n"
	require.NoError(t, os.WriteFile(kubectl, []byte(script), 0o700))
	backup, err := checkout.Path("hack", "backup")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "backup")
	cmd := exec.CommandContext(t.Context(), backup, dir)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.NotContains(t, string(content), "theirs", file)
		assert.NotContains(t, string(content), "vsphere", file)
		if name := filepath.Base(file); name != "02-configmaps.json" && name != "03-leases.json" {
			assert.Contains(t, string(content), "metal", file)
		}
	}
}

// An operator that gives a cluster to a claim, or an address, while a backup is written does so behind what was read before.
func TestABackupReadsObjectsBeforeWhatTheyReferTo(t *testing.T) {
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	asked := filepath.Join(t.TempDir(), "asked")
	kubectl := filepath.Join(t.TempDir(), "kubectl")
	kinds := "clusterpools.hive.openshift.io clusterdeployments.hive.openshift.io clusterclaims.hive.openshift.io ipaddresses.ipam.metal3.io ipclaims.ipam.metal3.io"
	script := "#!/bin/sh\ncase $2 in crd) printf 'crd/%s\\n' " + kinds + " ;; *) echo \"$2\" >> '" + asked + "'; echo '{\"items\": []}' ;; esac\n"
	require.NoError(t, os.WriteFile(kubectl, []byte(script), 0o700))

	backup, err := checkout.Path("hack", "backup")
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "backup")
	cmd := exec.CommandContext(t.Context(), backup, dir)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	content, err := os.ReadFile(asked)
	require.NoError(t, err)
	order := strings.Fields(string(content))
	files, err := filepath.Glob(filepath.Join(dir, "*.io.json"))
	require.NoError(t, err)
	require.Len(t, files, 5)
	for i, file := range files { // in the order in which they are restored
		_, kind, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		assert.Equal(t, len(files)-1-i, slices.Index(order, kind), "%s in %v", kind, order)
	}
	assert.Less(t, slices.Index(order, "clusterclaims.hive.openshift.io"), slices.Index(order, "clusterdeployments.hive.openshift.io"))
	assert.Less(t, slices.Index(order, "ipclaims.ipam.metal3.io"), slices.Index(order, "ipaddresses.ipam.metal3.io"))
}

// A claim that was given its cluster while the backup was written was read before that, and the cluster after it.
func TestAClaimIsRestoredWithTheClusterThatNamesIt(t *testing.T) {
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	dir := t.TempDir()
	for name, content := range map[string]string{
		"13-clusterdeployments.hive.openshift.io.json": `{"items": [
			{"kind": "ClusterDeployment", "metadata": {"name": "x", "namespace": "x"}, "spec": {"clusterPoolRef": {"claimName": "late", "claimUID": "of-late"}}},
			{"kind": "ClusterDeployment", "metadata": {"name": "y", "namespace": "y"}, "spec": {"clusterPoolRef": {"claimName": "early", "claimUID": "of-early"}}},
			{"kind": "ClusterDeployment", "metadata": {"name": "z", "namespace": "z"}, "spec": {}}]}`,
		"16-clusterclaims.hive.openshift.io.json": `{"items": [
			{"kind": "ClusterClaim", "metadata": {"name": "late", "namespace": "team", "uid": "of-late"}, "spec": {}},
			{"kind": "ClusterClaim", "metadata": {"name": "early", "namespace": "team", "uid": "of-early"}, "spec": {"namespace": "y"}},
			{"kind": "ClusterClaim", "metadata": {"name": "waits", "namespace": "team", "uid": "of-waits"}, "spec": {}}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	asked, kubectl := filepath.Join(t.TempDir(), "asked"), filepath.Join(t.TempDir(), "kubectl")
	script := "#!/bin/sh\ncase $* in *'patch clusterclaim'*) echo \"$@\" >>'" + asked + "' ;; *) cat >/dev/null ;; esac\n"
	require.NoError(t, os.WriteFile(kubectl, []byte(script), 0o700))
	restore, err := checkout.Path("hack", "restore")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), restore, dir)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	content, err := os.ReadFile(asked)
	require.NoError(t, err)
	assert.Regexp(t, `(?m)patch clusterclaim late .*"namespace":"x"`, string(content))
	assert.Regexp(t, `(?m)patch clusterclaim early .*"namespace":"y"`, string(content))
	assert.NotContains(t, string(content), "waits")
}

// An IPAddress that was deleted while its claim has it, by hand or by the garbage collector after a restore, is in use: without it, another claim would get the address. One that cools down is
// not.
func TestAnAddressThatIsBeingDeletedAndInUseIsRestored(t *testing.T) {
	_, err := exec.LookPath("jq")
	needtest.Part(t, err == nil, "jq is not installed: install the package jq of Debian")
	dir := t.TempDir()
	const deleted = `"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0`
	for name, content := range map[string]string{
		"18-ipaddresses.ipam.metal3.io.json": `{"items": [
			{"kind": "IPAddress", "metadata": {"name": "in-use", ` + deleted + `, "ownerReferences": [{"uid": "of-pool"}, {"uid": "of-lives"}]}, "spec": {}},
			{"kind": "IPAddress", "metadata": {"name": "of-another-namespace", ` + deleted + `, "ownerReferences": [{"uid": "of-pool"}]}, "spec": {"claim": {"uid": "of-tenant"}}},
			{"kind": "IPAddress", "metadata": {"name": "of-cluster-api", ` + deleted + `, "ownerReferences": [{"uid": "of-contract"}]}, "spec": {}},
			{"kind": "IPAddress", "metadata": {"name": "cools-down", ` + deleted + `, "ownerReferences": [{"uid": "of-gone"}]}, "spec": {}},
			{"kind": "IPAddress", "metadata": {"name": "on-its-way", ` + deleted + `, "ownerReferences": [{"uid": "of-ends"}]}, "spec": {}},
			{"kind": "IPAddress", "metadata": {"name": "without-owners", ` + deleted + `}, "spec": {}}]}`,
		"20-ipclaims.ipam.metal3.io.json": `{"items": [
			{"kind": "IPClaim", "metadata": {"name": "lives", "uid": "of-lives"}}, {"kind": "IPClaim", "metadata": {"name": "tenant", "uid": "of-tenant"}},
			{"kind": "IPClaim", "metadata": {"name": "ends", "uid": "of-ends", ` + deleted + `}}]}`,
		"21-ipaddressclaims.ipam.cluster.x-k8s.io.json": `{"items": [{"kind": "IPAddressClaim", "metadata": {"name": "contract", "uid": "of-contract"}}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	created, kubectl := filepath.Join(t.TempDir(), "created"), filepath.Join(t.TempDir(), "kubectl")
	require.NoError(t, os.WriteFile(kubectl, []byte("#!/bin/sh\ncat >>'"+created+"'\n"), 0o700))
	restore, err := checkout.Path("hack", "restore")
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), restore, dir)
	cmd.Env = append(cmd.Environ(), "KUBECTL="+kubectl)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	content, err := os.ReadFile(created)
	require.NoError(t, err)
	var names []string
	for line := range strings.Lines(string(content)) {
		var object struct {
			Metadata map[string]any `json:"metadata"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &object))
		assert.Len(t, object.Metadata, 1, "%s: nothing but its name is left", line)
		names = append(names, object.Metadata["name"].(string))
	}
	assert.Equal(t, []string{"in-use", "of-another-namespace", "of-cluster-api", "lives", "tenant", "contract"}, names)
}
