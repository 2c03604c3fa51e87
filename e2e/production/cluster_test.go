// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package production_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/estate"
	"github.com/muster-io/muster/e2e/leftovers"
)

const (
	// patience is for pods that start on a busy machine, and for namespaces that end.
	patience = 5 * time.Minute
	interval = 500 * time.Millisecond
)

// cluster is what one part of the test sees of the nodes.
type cluster struct {
	*testing.T
	kind    *environment.Kind
	config  *rest.Config
	clients kubernetes.Interface
	program string
}

func connect(t *testing.T, kind *environment.Kind) *cluster {
	t.Helper()
	config, err := environment.Config(kind)
	require.NoError(t, err)
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	program, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	return &cluster{t, kind, config, clients, program}
}

// of is the same cluster for another part.
func (c *cluster) of(t *testing.T) *cluster {
	out := *c
	out.T = t
	return &out
}

func closeKind(t *testing.T, kind *environment.Kind) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	if t.Failed() {
		t.Log(kind.Describe(ctx))
	}
	assert.NoError(t, kind.Close(ctx))
}

// command is a program in the directory of the checkout, for the cluster.
func (c *cluster) command(program string, args ...string) *exec.Cmd {
	c.Helper()
	root, err := checkout.Root()
	require.NoError(c, err)
	cmd := exec.CommandContext(c.Context(), program, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kind.Kubeconfig(), "KUBECTL="+c.program)
	return cmd
}

func (c *cluster) kubectl(args ...string) string {
	c.Helper()
	out, err := c.command(c.program, args...).CombinedOutput()
	require.NoError(c, err, "kubectl %s: %s", strings.Join(args, " "), out)
	return string(out)
}

// apply applies documents as a file, and lets the release have fields that others wrote.
func (c *cluster) apply(name string, text []byte) {
	c.Helper()
	file := filepath.Join(c.TempDir(), name+".yaml")
	require.NoError(c, os.WriteFile(file, text, 0o600))
	c.kubectl("apply", "--server-side", "--force-conflicts", "-f", file)
}

// untilRolledOut waits for all deployments of the operators.
func (c *cluster) untilRolledOut() {
	c.Helper()
	for _, operator := range operators {
		c.kubectl("-n", "muster-"+operator, "rollout", "status", "deployment", "--timeout="+patience.String())
	}
}

// untilOnTwoNodes waits until two replicas of every operator run on two nodes, from images of a version.
func (c *cluster) untilOnTwoNodes(version string) {
	c.Helper()
	for _, operator := range operators {
		require.EventuallyWithT(c, func(collect *assert.CollectT) {
			pods, err := c.clients.CoreV1().Pods("muster-"+operator).List(c.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=operator"})
			require.NoError(collect, err)
			nodes := map[string]bool{}
			for i := range pods.Items {
				nodes[pods.Items[i].Spec.NodeName] = true
				assert.Equal(collect, registry+operator+":"+version, pods.Items[i].Spec.Containers[0].Image)
			}
			assert.Len(collect, pods.Items, 2, operator)
			assert.Len(collect, nodes, 2, operator)
		}, patience, interval)
	}
}

func (c *cluster) estate() *estate.Cluster {
	c.Helper()
	return estate.Of(c.T, c.kind)
}

// untilRead waits until what the team has can be read and is as it should be.
func (c *cluster) untilRead(check func(estate.Estate)) estate.Estate {
	c.Helper()
	of := c.estate()
	var has estate.Estate
	require.EventuallyWithT(c, func(collect *assert.CollectT) { has = of.Read(collect) }, patience, interval)
	check(has)
	return has
}

// walk walks the journeys of users with a kubeconfig, as a program of its own.
func (c *cluster) walk() {
	c.Helper()
	journeys := os.Getenv("E2E_JOURNEYS")
	if journeys == "" {
		journeys = "."
	}
	cmd := c.command("go", "-C", "e2e", "test", "-ldflags=-w", "-count=1", "-timeout=40m", "-v", "-run", journeys, "./journeys/...")
	cmd.Env = append(cmd.Env, "E2E_KUBECONFIG="+c.kind.Kubeconfig())
	out, err := cmd.CombinedOutput()
	for line := range bytes.Lines(out) {
		if bytes.Contains(line, []byte("--- ")) {
			c.Logf("%s", bytes.TrimSpace(line))
		}
	}
	require.NoError(c, err, "%s", out)
	assert.Contains(c, string(out), "--- PASS", "no journey was walked")
}

// everything is the name of every object of the cluster.
func (c *cluster) everything() []string {
	c.Helper()
	names, err := leftovers.List(c.Context(), c.config)
	require.NoError(c, err)
	return names
}

// untilAsBefore waits until nothing is left but what there was.
func (c *cluster) untilAsBefore(before []string) {
	c.Helper()
	require.EventuallyWithT(c, func(collect *assert.CollectT) {
		now, err := leftovers.List(c.Context(), c.config)
		require.NoError(collect, err)
		assert.Empty(collect, leftovers.Of(before, now), "objects that are left")
	}, patience, 2*time.Second)
}

// uninstall removes the operators with all objects and kinds, as docs/operations.md says, and what the test itself made.
func (c *cluster) uninstall() {
	c.Helper()
	script, err := checkout.Path("hack", "uninstall")
	require.NoError(c, err)
	args := append([]string{"--delete-objects", "--timeout", "240"}, operators...)
	out, err := c.command(script, append(args, "clusters", "hosts", "machine-pool")...).CombinedOutput()
	require.NoError(c, err, "%s", out)
	c.kubectl("delete", "namespace", "--ignore-not-found", "--wait=false", estate.Team)
}
