// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/render"
)

// The files of a release in testdata.
const (
	kindsFile    = "kinds.yaml"
	objectsFile  = "objects.json"
	estateFile   = "estate.json"
	databaseFile = "agent-service.db"
)

// oldCheckout names a checkout of a release with its programs built into bin/, relative to this checkout; oldVersion is the directory of testdata
// that its fixture goes to.
const (
	oldCheckout = "MUSTER_OLD_CHECKOUT"
	oldVersion  = "MUSTER_OLD_VERSION"
)

// prefixes are where the API server keeps what users have.
func prefixes(namespaces []string) []string {
	out := []string{
		"/registry/hive.openshift.io/", "/registry/extensions.hive.openshift.io/", "/registry/ipam.metal3.io/", "/registry/metal3.io/", "/registry/agent-install.openshift.io/",
	}
	for _, namespace := range namespaces {
		for _, kind := range []string{"secrets", "roles", "rolebindings"} {
			out = append(out, "/registry/"+kind+"/"+namespace+"/")
		}
	}
	return out
}

// agentService runs with its database where a fixture has it, and without images.
func agentService() environment.Operator {
	operator := environment.AgentService()
	operator.Args = func(dir string) []string { return serviceArgs(dir, filepath.Join(dir, databaseFile)) }
	return operator
}

// serviceArgs are flags of agent-service with all that it keeps, but for the database, below dir.
func serviceArgs(dir, database string) []string {
	return []string{
		"--kube-api", "--database=" + database, "--token-key=" + filepath.Join(dir, "token.key"), "--live-image-cache=" + filepath.Join(dir, "live-images"),
		"--listen=127.0.0.1:0", "--base-url=http://assisted.example.com",
	}
}

// Writes the fixture of a release with the release's own programs.
func TestWriteFixture(t *testing.T) {
	old, version := os.Getenv(oldCheckout), os.Getenv(oldVersion)
	if old == "" || version == "" {
		t.Skipf("set %s and %s to write the fixture of a release", oldCheckout, oldVersion)
	}
	root, err := checkout.Path(old)
	require.NoError(t, err)
	local, err := environment.NewLocal(t.Context(), environment.LocalOptions{Overlay: filepath.Join(old, "deploy/overlays/local"), UnsafeNoFsync: true, Prepared: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, local.Close(context.WithoutCancel(t.Context()))) })
	c := estate.New(t, local)
	c.StartOperators(filepath.Join(root, "bin"))
	service := agentService()
	service.Program = filepath.Join(root, "bin", service.Name)
	require.NoError(t, local.StartOperator(t.Context(), service))
	c.Fill()
	c.Rack()
	var has record
	require.EventuallyWithT(t, func(collect *assert.CollectT) { has = look(collect, c) }, estate.Patience, estate.Interval)
	local.StopOperator(service.Name)
	c.StopOperators()

	dir, err := checkout.Path("e2e", "upgrade", "testdata", version)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	kinds, err := render.Directory(filepath.Join(old, "apis/crd"))
	require.NoError(t, err)
	var text strings.Builder
	for _, kind := range kinds {
		one, err := yaml.Marshal(kind)
		require.NoError(t, err)
		text.WriteString("---\n")
		text.Write(one)
	}
	keep(t, filepath.Join(dir, kindsFile), []byte(text.String()))
	keepJSON(t, filepath.Join(dir, objectsFile), stored(t, c))
	keepJSON(t, filepath.Join(dir, estateFile), has)
	database, err := os.ReadFile(filepath.Join(local.Dir, service.Name, databaseFile))
	require.NoError(t, err)
	keep(t, filepath.Join(dir, databaseFile), database)
}

// stored reads what the API server keeps of the team: its namespaces first.
func stored(t *testing.T, c *estate.Cluster) []entry {
	t.Helper()
	from := openStore(c.Local)
	all := &corev1.NamespaceList{}
	require.NoError(t, c.List(t.Context(), all))
	var names []string
	for i := range all.Items {
		if name := all.Items[i].Name; name == estate.Team || strings.HasPrefix(name, "dev-") {
			names = append(names, name)
		}
	}
	found, err := from.read(t.Context(), "/registry/namespaces/")
	require.NoError(t, err)
	var out []entry
	for _, e := range found {
		for _, name := range names {
			if string(e.Key) == "/registry/namespaces/"+name {
				out = append(out, e)
			}
		}
	}
	for _, prefix := range prefixes(names) {
		found, err := from.read(t.Context(), prefix)
		require.NoError(t, err)
		out = append(out, found...)
	}
	return out
}

func keepJSON(t *testing.T, path string, value any) {
	t.Helper()
	text, err := json.MarshalIndent(value, "", " ")
	require.NoError(t, err)
	keep(t, path, append(text, '\n'))
}

// keep writes a file of the fixture, which holds made-up credentials.
func keep(t *testing.T, path string, text []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, text, 0o644))
}
