// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package pages_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/e2e/checkout"
	"github.com/muster-io/muster/e2e/demo"
)

var (
	printed = regexp.MustCompile(`export KUBECONFIG=(\S+)`)
	example = regexp.MustCompile(`/tmp/muster-demo-…\S+`)
)

// startDemo plays the demo, and returns the path of the kubeconfig that it prints when all of it worked and is left running.
func startDemo(t *testing.T) string {
	t.Helper()
	screen, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- demo.Run(ctx, demo.Options{Out: screen, Keep: true}) }()
	shown := func() string {
		text, err := os.ReadFile(screen.Name())
		require.NoError(t, err)
		return string(text)
	}
	t.Cleanup(func() {
		stop()
		assert.NoError(t, <-ended)
		assert.Contains(t, shown(), "all processes and files of the demo are removed")
		assert.NoError(t, screen.Close())
	})
	kubeconfig := ""
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		select {
		case err := <-ended:
			ended <- err
			return
		default:
		}
		found := printed.FindStringSubmatch(shown())
		require.Len(c, found, 2)
		kubeconfig = found[1]
	}, 5*time.Minute, 200*time.Millisecond, "the demo does not come to its end")
	require.NotEmpty(t, kubeconfig, "the demo failed: %s", shown())
	return kubeconfig
}

// The demo shows all that it promises, and everything that docs/demo.md lets a newcomer enter in another terminal prints something.
func TestTheDemoIsLookedAround(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	image, err := checkout.Path("bin", "live", "live.iso")
	require.NoError(t, err)
	needtest.File(t, image, "there is no live image that machines of the demo boot: make live-image builds it")
	u := newUser(t, startDemo(t))
	entered := blocks(t, demonstration)
	require.NotEmpty(t, entered)
	variables := example.ReplaceAllLiteralString(entered[0].text, "\"$KUBECONFIG\"") + "less() { cat \"$@\"; }\n"
	said := ""
	for _, b := range entered[1:] {
		out := u.sh(variables+b.text, "")
		assert.NotEmpty(t, out, b.text)
		said += out
	}
	var missing []string // with the logs, it is too much to print
	for _, want := range []string{"rack-sn00000001", "links:", "my-cluster", "worker-0", "kube-system", `"level":"info"`} {
		if !strings.Contains(said, want) {
			missing = append(missing, want)
		}
	}
	assert.Empty(t, missing, "what the page lets a newcomer see")
	if strings.Contains(said, "is forbidden") {
		t.Error("an operator lacks a right: see its log")
	}
	images, err := filepath.Glob(filepath.Join(u.dir, "*"))
	require.NoError(t, err)
	assert.Len(t, images, 6, "the directories of the checkout, and the image that was downloaded: %v", images)
}
