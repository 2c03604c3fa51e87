// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pages_test follows README.md and docs/operations.md: what a block of a page says is done with a real API server, in the order in which users do it.
package pages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
	"github.com/muster-io/muster/e2e/environment/environmenttest"
)

const (
	readme     = "README.md"
	operations = "docs/operations.md"
)

// step is a block of a page, which is found by its first line. It is done, or has a reason why it is not.
type step struct {
	page, first string
	do          func(u user, text string)
	why         string
}

// steps are all blocks of sh and yaml, in the order in which they are done.
var steps = []step{
	{page: readme, first: "make demo", why: "hack/build/scripts and e2e/demo test it"},
	{page: readme, first: "kubectl apply --server-side -k deploy/crds/clusters", do: user.install},
	{page: readme, first: "apiVersion: hive.openshift.io/v1", do: user.create},
	{page: readme, first: "apiVersion: hive.openshift.io/v1", do: user.create},
	{page: readme, first: "apiVersion: kustomize.config.k8s.io/v1beta1", do: user.customize},
	{page: readme, first: "make test", why: "they are what runs this test; TestTargetsAreThere finds them"},
	{page: operations, first: "kubectl -n muster-pool-operator set env deployment/pool-operator", do: user.trace},
	{page: operations, first: "kubectl -n team get clusterclaim mine", do: user.findTrace},
	{page: operations, first: "apiVersion: networking.k8s.io/v1", do: user.allowTraces},
	{page: operations, first: "hack/backup backup-$(date +%F)", why: "e2e/restore backs up and restores with it"},
	{page: operations, first: "psql --command=", why: "e2e/upgrade restores a dump of a real PostgreSQL with it"},
	{page: operations, first: "hack/restore backup-", why: "e2e/restore restores with it"},
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// blocks returns the blocks of sh and yaml of a page.
func blocks(t *testing.T, page string) []string {
	t.Helper()
	path, err := checkout.Path(filepath.FromSlash(page))
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var out []string
	var block *strings.Builder
	for line := range strings.Lines(string(text)) {
		switch word := strings.TrimSpace(line); {
		case block == nil && (word == "```sh" || word == "```yaml"):
			block = &strings.Builder{}
		case block != nil && word == "```":
			out, block = append(out, block.String()), nil
		case block != nil:
			block.WriteString(line)
		}
	}
	require.Nil(t, block, "%s ends inside of a block", page)
	return out
}

// found pairs each step with its block. A block without a step, and a step without a block, fail the test.
func found(t *testing.T) map[int]string {
	t.Helper()
	texts := map[int]string{}
	for _, page := range []string{readme, operations} {
		for _, block := range blocks(t, page) {
			at := -1
			for i, s := range steps {
				if _, taken := texts[i]; !taken && at < 0 && s.page == page && strings.HasPrefix(block, s.first) {
					at = i
				}
			}
			if assert.GreaterOrEqual(t, at, 0, "%s has a block without a step: do it here, or say why not:\n%s", page, block) {
				texts[at] = block
			}
		}
	}
	for i, s := range steps {
		assert.Contains(t, texts, i, "%s has no block that begins with %q", s.page, s.first)
		assert.NotEqual(t, s.do == nil, s.why == "", "%q is done, or has a reason", s.first)
	}
	return texts
}

func TestEveryBlockIsDoneOrHasAReason(t *testing.T) { found(t) }

// Targets of make that the pages name are there.
func TestTargetsAreThere(t *testing.T) {
	path, err := checkout.Path("Makefile")
	require.NoError(t, err)
	makefile, err := os.ReadFile(path)
	require.NoError(t, err)
	for _, page := range []string{readme, operations} {
		for _, block := range blocks(t, page) {
			for line := range strings.Lines(block) {
				if words := strings.Fields(line); len(words) > 1 && words[0] == "make" {
					assert.Contains(t, string(makefile), "\n"+words[1]+":", page)
				}
			}
		}
	}
}

func TestThePagesAreFollowed(t *testing.T) {
	texts := found(t)
	require.False(t, t.Failed())
	plane, _ := environmenttest.ControlPlane(t)
	u := newUser(t, plane)
	for i, s := range steps {
		if s.do != nil {
			s.do(u, texts[i])
		}
	}
}

// user has a shell in the checkout, and kubectl for a cluster.
type user struct {
	*testing.T
	env []string
}

func newUser(t *testing.T, plane *environment.ControlPlane) user {
	t.Helper()
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	programs := t.TempDir()
	require.NoError(t, os.Symlink(kubectl, filepath.Join(programs, "kubectl")))
	return user{t, append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH"), "KUBECONFIG="+plane.Kubeconfig())}
}

// sh runs a text in the directory of the checkout.
func (u user) sh(text, input string) string {
	u.Helper()
	out, err := u.try(text, input)
	require.NoError(u, err, text)
	return out
}

func (u user) try(text, input string) (string, error) {
	u.Helper()
	root, err := checkout.Root()
	require.NoError(u, err)
	cmd := exec.CommandContext(u.Context(), "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env, cmd.Stdin = root, u.env, strings.NewReader(input)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

// install installs pool-operator. The namespaces of the examples are there, as those of a team are.
func (u user) install(text string) {
	u.sh(text, "")
	u.sh("kubectl wait --for=condition=Established --timeout=60s crd --all", "")
	u.sh("kubectl -n muster-pool-operator get deployment pool-operator", "")
	u.sh("kubectl create namespace team-a && kubectl create namespace team", "")
}

// create creates the object of an example. For a moment after a kind was installed the API server does not know it everywhere.
func (u user) create(text string) {
	u.Helper()
	require.EventuallyWithT(u, func(c *assert.CollectT) {
		_, err := u.try("kubectl create -f -", text)
		assert.NoError(c, err)
	}, time.Minute, 200*time.Millisecond)
}

// customize renders the kustomization of an example, in a directory beside deploy, and has the API server try it; monitoring needs kinds of others.
func (u user) customize(text string) {
	root, err := checkout.Root()
	require.NoError(u, err)
	dir := u.TempDir()
	require.NoError(u, os.Symlink(filepath.Join(root, "deploy"), filepath.Join(dir, "deploy")))
	require.NoError(u, os.Symlink(filepath.Join(root, "apis"), filepath.Join(dir, "apis")))
	require.NoError(u, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600))
	rendered := u.sh("kubectl kustomize "+dir, "")
	var taken []string
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		if !strings.Contains(document, "apiVersion: monitoring.coreos.com/") {
			taken = append(taken, document)
		}
	}
	assert.Greater(u, len(taken), 1)
	assert.Contains(u, rendered, "namespace: platform")
	assert.NotContains(u, rendered, "namespace: muster-pool-operator")
	assert.Contains(u, rendered, "grafana_dashboard")
	u.sh("kubectl create namespace platform", "")
	u.sh("kubectl apply --server-side --force-conflicts --dry-run=server -f -", strings.Join(taken, "\n---\n"))
}

// trace switches traces on.
func (u user) trace(text string) {
	u.sh(text, "")
	set := u.sh("kubectl -n muster-pool-operator get deployment pool-operator -o jsonpath='{.spec.template.spec.containers[0].env}'", "")
	assert.Contains(u, set, "OTEL_EXPORTER_OTLP_ENDPOINT")
}

// findTrace finds the trace of a claim.
func (u user) findTrace(text string) {
	claim := `{"apiVersion":"hive.openshift.io/v1","kind":"ClusterClaim","metadata":{"namespace":"team","name":"mine"},"spec":{"clusterPoolName":"dev"}}`
	u.create(claim)
	assert.Regexp(u, `^[0-9a-f]{32}$`, strings.TrimSpace(u.sh(text, "")))
}

// allowTraces adds a network policy.
func (u user) allowTraces(text string) {
	u.sh("kubectl apply -f -", text)
	u.sh("kubectl -n muster-pool-operator get networkpolicy traces", "")
}
