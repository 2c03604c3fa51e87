// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package upgrade_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/render"
)

// commitFile names the commit of a release in testdata.
const commitFile = "commit"

// noSuchCommit is the status of hack/former in a clone without the history of the release, as those of forges are.
const noSuchCommit = 3

// former is a checkout of a release whose bin/ holds its programs.
type former struct{ dir string }

// buildFormer builds the programs of a release. A clone without the history does not have its commit.
func buildFormer(t *testing.T, release string) former {
	t.Helper()
	commit, err := os.ReadFile(filepath.Join(release, commitFile))
	require.NoError(t, err)
	script, err := checkout.Path("hack", "former")
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), script, strings.TrimSpace(string(commit)), "pool-operator", "ipam-operator", "agent-service", "agent").Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		if failed.ExitCode() == noSuchCommit {
			needtest.Part(t, false, fmt.Sprintf("the programs of %s cannot be built: %s", filepath.Base(release), failed.Stderr))
		}
		t.Fatalf("%s", failed.Stderr)
	}
	require.NoError(t, err)
	return former{strings.TrimSpace(string(out))}
}

func (f former) programs() string { return filepath.Join(f.dir, "bin") }

// rights are what the overlay of the release installs beside kinds.
func (f former) rights(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	root, err := checkout.Root()
	require.NoError(t, err)
	overlay, err := filepath.Rel(root, filepath.Join(f.dir, "deploy", "overlays", "local"))
	require.NoError(t, err)
	objects, err := render.Directory(overlay)
	require.NoError(t, err)
	var out []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			out = append(out, object)
		}
	}
	return out
}

// setNewField sets a field that the kinds of former releases do not have.
func setNewField(c *estate.Cluster) {
	c.Helper()
	pool := &hivev1.ClusterPool{ObjectMeta: estate.Named("dev")}
	require.NoError(c, c.Patch(c.Context(), pool, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"installTimeout":"3h"}}`))))
}

// requireNewField holds that the value of setNewField is still there.
func requireNewField(c *estate.Cluster) {
	c.Helper()
	pool := &hivev1.ClusterPool{}
	require.NoError(c, c.Get(c.Context(), client.ObjectKey{Namespace: estate.Team, Name: "dev"}, pool))
	require.NotNil(c, pool.Spec.InstallTimeout)
	require.Equal(c, "3h0m0s", pool.Spec.InstallTimeout.Duration.String())
}
