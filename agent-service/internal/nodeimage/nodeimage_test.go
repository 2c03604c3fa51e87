// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"debug/elf"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/template"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// shell is a program of this machine that is linked with libraries.
func shell(t *testing.T) string {
	t.Helper()
	program, err := elf.Open("/bin/sh")
	if err != nil || interpreter(program) == "" || program.Machine != elf.EM_X86_64 {
		t.Skip("the shell of this machine is not a program that is linked with libraries")
	}
	require.NoError(t, program.Close())
	path, err := filepath.EvalSymlinks("/bin/sh")
	require.NoError(t, err)
	return path
}

func TestProgramsComeWithTheirLibraries(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, copyFile(shell(t), filepath.Join(root, "usr/bin/sh"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "empty"), nil, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "text"), []byte("a text that is no program at all"), 0o600))
	packages := t.TempDir()
	require.ErrorContains(t, libraries(Parts{Packages: packages}, root), "no package has the library")

	var library string
	for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"} {
		if _, err := os.Stat(dir + "/libc.so.6"); err == nil {
			library = dir
		}
	}
	if library == "" {
		t.Skip("this machine does not have its libraries where Debian has them")
	}
	require.NoError(t, libraries(Parts{Packages: "/"}, root))
	assert.FileExists(t, filepath.Join(root, libraryPath, "libc.so.6"))
	loaders, err := filepath.Glob(filepath.Join(root, "usr/lib64/ld-*"))
	require.NoError(t, err)
	assert.Len(t, loaders, 1, "the loader is where programs look for it")
}

func TestTheNetworkOfPodsHasTheRangesOfTheNode(t *testing.T) {
	text := template.Must(template.New("").Parse(networkTemplate))
	for _, ranges := range [][]string{{"10.244.1.0/24"}, {"10.244.1.0/24", "fd00:1::/64"}} {
		var out strings.Builder
		require.NoError(t, text.Execute(&out, map[string][]string{"PodCIDRRanges": ranges, "Routes": []string{"0.0.0.0/0", "::/0"}[:len(ranges)]}))
		var network struct {
			Plugins []struct {
				IPAM struct {
					Ranges [][]struct {
						Subnet string `json:"subnet"`
					} `json:"ranges"`
				} `json:"ipam"`
			} `json:"plugins"`
		}
		require.NoError(t, json.Unmarshal([]byte(out.String()), &network), out.String())
		var found []string
		for _, r := range network.Plugins[0].IPAM.Ranges {
			found = append(found, r[0].Subnet)
		}
		assert.Equal(t, ranges, found)
	}
}

func TestAPackageThatIsMissingIsNamed(t *testing.T) {
	_, err := unpacked(t.TempDir(), "usr/sbin/runc")
	require.EqualError(t, err, "no package has usr/sbin/runc")
	_, err = authorities(t.TempDir())
	require.ErrorContains(t, err, "no package has certificates")
}
