// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A page may link to the Internet, but loads nothing from it.
func TestTheSiteNeedsNoNetwork(t *testing.T) {
	mkdocs, err := exec.LookPath("mkdocs")
	if err != nil && os.Getenv("CI") != "true" {
		t.Skip("mkdocs is not installed: install the package mkdocs of Debian")
	}
	require.NoError(t, err)
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), mkdocs, "build", "--quiet", "--site-dir="+dir)
	cmd.Dir = hack(t, "..")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"index.html", "operations.html", filepath.Join("spec", "clusterpool.html")} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.NotRegexp(t, `<(script|img)[^>]+src="(https?:)?//|<link[^>]+rel="stylesheet"[^>]+href="(https?:)?//|<link[^>]+href="(https?:)?//[^"]+[.]css`, string(page), name)
	}
}
