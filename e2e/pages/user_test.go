// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pages_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/environment"
)

// user has a shell in a directory with what the checkout has, and kubectl for a cluster. What commands write stays out of the checkout.
type user struct {
	*testing.T
	env     []string
	dir     string
	cluster client.Client
}

func newUser(t *testing.T, kubeconfig string) user {
	t.Helper()
	kubectl, err := environment.Kubectl(t.Context())
	require.NoError(t, err)
	programs, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.Symlink(kubectl, filepath.Join(programs, "kubectl")))
	root, err := checkout.Root()
	require.NoError(t, err)
	for _, name := range []string{"apis", "bin", "deploy", "hack", "kubectl-muster"} {
		require.NoError(t, os.Symlink(filepath.Join(root, name), filepath.Join(dir, name)))
	}
	// A reader has no programs of the checkout on the PATH, as make has: one of them is named install.
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool { return dir == filepath.Join(root, "bin") })
	config, err := environment.Read(kubeconfig)
	require.NoError(t, err)
	cluster, err := client.New(config, client.Options{})
	require.NoError(t, err)
	return user{t, append(os.Environ(), "PATH="+strings.Join(append([]string{programs}, path...), ":"), "KUBECONFIG="+kubeconfig), dir, cluster}
}

// of is the same user for a part of the test.
func (u user) of(t *testing.T) user {
	u.T = t
	return u
}

// sh runs a text.
func (u user) sh(text, input string) string {
	u.Helper()
	out, err := u.try(text, input)
	require.NoError(u, err, text)
	return out
}

func (u user) try(text, input string) (string, error) {
	u.Helper()
	cmd := exec.CommandContext(u.Context(), "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env, cmd.Stdin = u.dir, u.env, strings.NewReader(input)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

// run runs a block as it is.
func (u user) run(text string) {
	u.Helper()
	u.sh(text, "")
}

// enter runs the commands of a block that shows what they print.
func (u user) enter(text string) {
	u.Helper()
	entered := 0
	for line := range strings.Lines(text) {
		if command, is := strings.CutPrefix(line, "$ "); is {
			u.run(command)
			entered++
		}
	}
	assert.Positive(u, entered, text)
}

// named runs a block for an account that there is.
func (u user) named(text string) {
	u.Helper()
	assert.Contains(u, text, "NAME")
	assert.NotEmpty(u, u.sh(strings.ReplaceAll(text, "NAME", "default"), ""), "a token")
}

// create creates the object of an example. For a moment after a kind was installed the API server does not know it everywhere.
func (u user) create(text string) {
	u.Helper()
	u.submit("kubectl create -f -", text)
}

// accept has the API server try the objects of an example, none of whose fields it may ignore.
func (u user) accept(text string) {
	u.Helper()
	u.submit("kubectl create --dry-run=server --validate=strict -f -", text)
}

var namespaced = regexp.MustCompile(`\bnamespace: ([a-z0-9-]+)`)

func (u user) submit(command, text string) {
	u.Helper()
	for _, name := range namespaced.FindAllStringSubmatch(text, -1) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name[1]}}
		require.NoError(u, client.IgnoreAlreadyExists(u.cluster.Create(u.Context(), namespace)))
	}
	require.EventuallyWithT(u, func(c *assert.CollectT) {
		_, err := u.try(command, text)
		assert.NoError(c, err)
	}, 30*time.Second, 200*time.Millisecond, text)
}

// render renders a kustomization, in a directory beside a checkout.
func (u user) render(text string) string {
	u.Helper()
	root, err := checkout.Root()
	require.NoError(u, err)
	beside := u.TempDir()
	own := filepath.Join(beside, "own")
	require.NoError(u, os.Mkdir(own, 0o700))
	for name, target := range map[string]string{"muster": "", "own/deploy": "deploy", "own/apis": "apis"} {
		require.NoError(u, os.Symlink(filepath.Join(root, target), filepath.Join(beside, name)))
	}
	text = strings.ReplaceAll(text, "github.com/muster-io/muster/", "../muster/") // the same, of the forge
	require.NoError(u, os.WriteFile(filepath.Join(own, "kustomization.yaml"), []byte(text), 0o600))
	return u.sh("kubectl kustomize "+own, "")
}
