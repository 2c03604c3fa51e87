// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package release_test

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/hack/build/release"
)

var build = release.Build{
	Version: "v0.2.0", Repository: "https://example.com/muster", Commit: "0123456789abcdef", Builder: "https://example.com/ci", Time: time.Unix(1_700_000_000, 0),
}

// sources are those of the machine that runs the test.
func sources(t *testing.T) release.Sources {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOROOT").Output()
	require.NoError(t, err)
	modules, goroot, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return release.Sources{Modules: modules, Goroot: goroot}
}

// program says, as any Go program does, what it was linked from.
func program(t *testing.T) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "release")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", file, "../cmd/release").CombinedOutput()
	require.NoError(t, err, "%s", out)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return content
}

// stage is a staged image for two platforms.
func stage(t *testing.T) []release.Image {
	t.Helper()
	dir, content := t.TempDir(), program(t)
	for _, platform := range []string{"linux_amd64", "linux_arm64"} {
		bin := filepath.Join(dir, "tool", platform, "usr", "local", "bin")
		require.NoError(t, os.MkdirAll(bin, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(bin, "tool"), content, 0o700))
	}
	images, err := release.Stage(dir, "v0.2.0")
	require.NoError(t, err)
	return images
}

func TestARegistryTakesTheImagesOfARelease(t *testing.T) {
	dist := t.TempDir()
	images := stage(t)
	require.NoError(t, build.Write(dist, images, nil, sources(t)))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	pushed, err := release.Push(dist, strings.TrimPrefix(server.URL, "http://")+"/muster-io")
	require.NoError(t, err)
	require.Len(t, pushed, 1)

	tag, err := name.ParseReference(strings.TrimPrefix(server.URL, "http://") + "/muster-io/tool:v0.2.0")
	require.NoError(t, err)
	index, err := remote.Index(tag)
	require.NoError(t, err)
	digest, err := index.Digest()
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(pushed[0], "/tool@"+digest.String()), pushed[0])
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
	}
	assert.Equal(t, []string{"linux/amd64", "linux/arm64"}, platforms)
	image, err := remote.Image(tag, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: "arm64"}))
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	assert.Equal(t, "arm64", config.Architecture)
	assert.Equal(t, "65532:65532", config.Config.User)
	assert.Equal(t, []string{"/usr/local/bin/tool"}, config.Config.Entrypoint)

	again, err := images[0].Index()
	require.NoError(t, err)
	same, err := again.Digest()
	require.NoError(t, err)
	assert.Equal(t, digest, same, "the same files give the same image")
}

func read(t *testing.T, path ...string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	out := map[string]any{}
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

func TestAReleaseSaysWhatIsInside(t *testing.T) {
	dist := t.TempDir()
	require.NoError(t, build.Write(dist, stage(t), nil, sources(t)))
	sbom := read(t, dist, "sbom", "tool_linux_arm64.spdx.json")
	assert.Equal(t, "SPDX-2.3", sbom["spdxVersion"])
	text, err := json.Marshal(sbom)
	require.NoError(t, err)
	assert.Contains(t, string(text), "pkg:golang/github.com/google/go-containerregistry@v")
	assert.Contains(t, string(text), `"fileName":"./usr/local/bin/tool"`)

	statement := read(t, dist, "provenance", "tool.intoto.json")
	assert.Equal(t, "https://slsa.dev/provenance/v1", statement["predicateType"])
	text, err = json.Marshal(statement)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"gitCommit":"0123456789abcdef"`)

	licences, err := filepath.Glob(filepath.Join(dist, "licences", "github.com_google_go-containerregistry@*", "LICENSE"))
	require.NoError(t, err)
	assert.Len(t, licences, 1)
	list, err := os.ReadFile(filepath.Join(dist, "licences", "LICENCES.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(list), "stdlib ")

	require.NoError(t, release.Checksums(dist))
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = dist
	out, err := check.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

const manifest = `# Manifest of a plugin
kind: Plugin
spec:
  version: v0.0.0
  platforms:
  - {uri: "https://example.com/v0.0.0/tool_linux_arm64.tar.gz", sha256: "0", bin: tool}
  - {uri: "https://example.com/v0.0.0/tool_darwin_arm64.tar.gz", sha256: "0", bin: tool}
`

// stagePrograms is a staged program for two platforms.
func stagePrograms(t *testing.T, packed bool) []release.Program {
	t.Helper()
	dir, content := t.TempDir(), program(t)
	for _, platform := range []string{"linux_arm64", "darwin_arm64"} {
		root := filepath.Join(dir, "tool", platform)
		require.NoError(t, os.MkdirAll(root, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "tool"), content, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, "LICENSE"), []byte("of the tool"), 0o600))
	}
	programs, err := release.StagePrograms(dir, packed)
	require.NoError(t, err)
	return programs
}

// Users download archives of the plugin; krew checks them. What is inside is listed, with its licences, as it is for images.
func TestALargeFileOfAProgramSaysWhatIsInside(t *testing.T) {
	dist := t.TempDir()
	require.NoError(t, build.Write(dist, nil, stagePrograms(t, true), sources(t)))
	listed, err := exec.CommandContext(t.Context(), "tar", "-tzvf", filepath.Join(dist, "tool_darwin_arm64.tar.gz")).CombinedOutput()
	require.NoError(t, err, "%s", listed)
	assert.Regexp(t, `-rwxr-xr-x 0/0 .* tool\n`, string(listed))
	assert.Regexp(t, `-rw-r--r-- 0/0 .* LICENSE\n`, string(listed))

	text, err := json.Marshal(read(t, dist, "sbom", "tool_darwin_arm64.spdx.json"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "pkg:golang/github.com/google/go-containerregistry@v")
	licences, err := filepath.Glob(filepath.Join(dist, "licences", "github.com_google_go-containerregistry@*", "LICENSE"))
	require.NoError(t, err)
	assert.Len(t, licences, 1)

	filled, err := release.Krew([]byte(manifest), dist, "v0.2.0")
	require.NoError(t, err)
	subjects := read(t, dist, "provenance", "tool.intoto.json")["subject"].([]any)
	require.Len(t, subjects, 2)
	for _, subject := range subjects {
		s := subject.(map[string]any)
		assert.Contains(t, string(filled), "sha256: "+s["digest"].(map[string]any)["sha256"].(string))
		assert.Contains(t, string(filled), "https://example.com/v0.2.0/"+s["name"].(string))
	}

	require.NoError(t, os.Remove(filepath.Join(dist, "tool_darwin_arm64.tar.gz")))
	filled, err = release.Krew([]byte(manifest), dist, "v0.2.0")
	require.NoError(t, err)
	assert.NotContains(t, string(filled), "darwin", "a platform without an archive")
	require.NoError(t, os.WriteFile(filepath.Join(dist, "tool_plan9_arm64.tar.gz"), nil, 0o600))
	_, err = release.Krew([]byte(manifest), dist, "v0.2.0")
	require.ErrorContains(t, err, "names 1 of 2 archives")
}

// The program that copies images goes with them, as it is.
func TestAProgramAlone(t *testing.T) {
	dist := t.TempDir()
	require.NoError(t, build.Write(dist, nil, stagePrograms(t, false), sources(t)))
	info, err := os.Stat(filepath.Join(dist, "bin", "tool-linux-arm64"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	assert.FileExists(t, filepath.Join(dist, "sbom", "tool_linux_arm64.spdx.json"))
}

// What is inside a live image is not in its programs: the packages of Debian are listed, with the texts of their licences.
func TestALiveImageListsItsPackages(t *testing.T) {
	dir := t.TempDir()
	root, debian := filepath.Join(dir, "root"), filepath.Join(dir, "debian")
	require.NoError(t, os.MkdirAll(root, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(root, "live.iso"), []byte("x"), 0o600))
	_, err := release.Sources{}.Read(root)
	require.Error(t, err, "nothing is given away without its licence")
	doc := filepath.Join(debian, "usr", "share", "doc", "isolinux")
	require.NoError(t, os.MkdirAll(doc, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(doc, "copyright"), []byte("GPL-2+"), 0o600))
	contents, err := release.Sources{Debian: debian}.Read(root)
	require.NoError(t, err)
	require.Len(t, contents.Packages, 1)
	assert.Equal(t, "isolinux", contents.Packages[0].Name)
	require.NoError(t, release.WriteLicences(filepath.Join(dir, "licences"), contents.Packages))
	offer, err := os.ReadFile(filepath.Join(dir, "licences", "SOURCES.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(offer), "three years")
}

func TestALinkIsRefused(t *testing.T) {
	root := t.TempDir()
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(root, "link")))
	_, err := release.Image{Name: "x", Roots: map[string]string{"linux/amd64": root}}.Index()
	require.ErrorContains(t, err, "neither a file nor a directory")
}

func TestNotesAreThoseOfTheVersion(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n- new\n\n## v0.1.0\n- old\n"
	for version, want := range map[string]string{"v0.1.0": "- old\n", "v0.2.0": "- new\n"} {
		notes, err := release.Notes(changelog, version)
		require.NoError(t, err)
		assert.Equal(t, want, notes)
	}
	_, err := release.Notes("# Changelog\n", "v0.1.0")
	require.Error(t, err)
}
