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

// unpack runs hack/unpack with an apt-get whose archive has the packages of its lists where fresh says so, or after an update where updates says so.
func unpack(t *testing.T, fresh, updates string) (dir, out string, err error) {
	t.Helper()
	tools := t.TempDir()
	for tool, script := range map[string]string{
		"apt-cache": `echo "  Depends: linux-image-6.1.0-1-amd64"`,
		"apt-get": `case $1 in
update) ` + updates + ` && touch ` + tools + `/fresh ;;
download) shift 2
	if ` + fresh + ` || [ -e ` + tools + `/fresh ]; then touch $(printf '%s.deb ' "$@"); else echo "E: Failed to fetch $1: 404 Not Found" >&2; exit 100; fi ;;
esac`,
		"dpkg-deb": `touch "$3/$(basename "$2" .deb)"`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(tools, tool), []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	}
	dir = filepath.Join(t.TempDir(), "root")
	cmd := exec.CommandContext(t.Context(), hack(t, "unpack"), dir, "linux-image-amd64", "isolinux")
	cmd.Env = append(cmd.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
	said, err := cmd.CombinedOutput()
	return dir, string(said), err
}

// Packages of Debian are downloaded and unpacked, the kernel by its present name. Lists that are older than the archive are read anew.
func TestPackagesAreUnpacked(t *testing.T) {
	for name, lists := range map[string]struct{ fresh, updates string }{"fresh lists": {"true", "false"}, "lists that are older than the archive": {"false", "true"}} {
		t.Run(name, func(t *testing.T) {
			dir, out, err := unpack(t, lists.fresh, lists.updates)
			require.NoError(t, err, out)
			assert.Empty(t, out)
			assert.FileExists(t, filepath.Join(dir, "linux-image-6.1.0-1-amd64"))
			assert.FileExists(t, filepath.Join(dir, "isolinux"))
			assert.NoDirExists(t, dir+".packages")
		})
	}
}

// A download that fails says why: without a way to the archive, nothing was printed.
func TestPackagesThatCannotBeDownloadedAreNamed(t *testing.T) {
	dir, out, err := unpack(t, "false", "false")
	require.Error(t, err)
	assert.Contains(t, out, "E: Failed to fetch linux-image-6.1.0-1-amd64: 404 Not Found")
	assert.Contains(t, out, "unpack: packages of Debian cannot be downloaded")
	assert.NoDirExists(t, dir)
	assert.NoDirExists(t, dir+".packages")
}
