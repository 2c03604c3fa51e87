// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/image"
)

// withMinimal is a live image that knows its minimal form, and that form.
func withMinimal(t *testing.T, change func(recipe []byte)) (full image.Version, minimal []byte) {
	t.Helper()
	minimal, err := os.ReadFile(liveImage(t, map[string][]byte{"images/pxeboot/rootfs.img": nil}).URL)
	require.NoError(t, err)
	full = liveImage(t, map[string][]byte{image.MinimalPath: make([]byte, 16<<10)})
	content, err := os.ReadFile(full.URL)
	require.NoError(t, err)
	recipe, err := image.PackMinimal(content, minimal)
	require.NoError(t, err)
	change(recipe)
	require.NoError(t, image.ReplaceFile(content, image.MinimalPath, recipe))
	require.NoError(t, os.WriteFile(full.URL, content, 0o600))
	sum := sha256.Sum256(content)
	full.SHA256 = hex.EncodeToString(sum[:])
	return full, minimal
}

func asItIs([]byte) {}

func TestAMinimalImageIsTheSameWithoutItsRootFileSystem(t *testing.T) {
	version, before := withMinimal(t, asItIs)
	s := &source{minimal: true, overlay: image.Overlay{Ignition: []byte(`{"mine":true}`), KernelArguments: []image.KernelArgument{{Operation: "append", Value: "ip=dhcp"}}}}
	url := serve(t, version, s)
	response, got := fetch(t, url+"/images/one/discovery.iso")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Len(t, got, len(before))
	assert.NotContains(t, string(got), "rootfsrootfs")
	const line = "quiet console=ttyS0 coreos.live.rootfs_url=http://images/boot-artifacts/1/x86_64/rootfs ip=dhcp\n#"
	assert.Contains(t, string(got), config+line)
	_, rootfs := fetch(t, url+"/boot-artifacts/1/x86_64/rootfs")
	assert.Len(t, rootfs, 600000)
	begin := bytes.Index(got, []byte{0x1f, 0x8b, 8})
	assert.Contains(t, unpack(t, got[begin:begin+areaSize]), `{"mine":true}`)

	at := bytes.Index(before, []byte(config)) + len(config)
	copy(got[at:at+1024], before[at:at+1024])
	clear(got[begin : begin+areaSize])
	assert.True(t, bytes.Equal(before, got), "only the two areas may change")

	for _, part := range []string{"bytes=0-99", "bytes=34816-69999", "bytes=-5000"} {
		ranged, piece := fetch(t, url+"/images/one/discovery.iso", "Range", part)
		assert.Equal(t, http.StatusPartialContent, ranged.StatusCode)
		_, again := fetch(t, url+"/images/one/discovery.iso")
		assert.Contains(t, string(again), string(piece), part)
	}
	unchanged, _ := fetch(t, url+"/images/one/discovery.iso", "If-None-Match", response.Header.Get("ETag"))
	assert.Equal(t, http.StatusNotModified, unchanged.StatusCode)

	s.mu.Lock()
	s.minimal = false
	s.mu.Unlock()
	whole, full := fetch(t, url+"/images/one/discovery.iso")
	assert.Contains(t, string(full), "rootfsrootfs")
	assert.NotEqual(t, response.Header.Get("ETag"), whole.Header.Get("ETag"))
}

func TestImagesWithoutAMinimalForm(t *testing.T) {
	url := serve(t, liveImage(t, nil), &source{minimal: true, overlay: image.Overlay{Ignition: []byte("{}")}})
	refused, reason := fetch(t, url+"/images/one/discovery.iso")
	assert.Equal(t, http.StatusConflict, refused.StatusCode)
	assert.Contains(t, string(reason), "full-iso")
	network, _ := fetch(t, url+"/images/one/pxe-initrd")
	assert.Equal(t, http.StatusOK, network.StatusCode, "network boot is minimal anyway")

	small := liveImage(t, map[string][]byte{"images/pxeboot/rootfs.img": nil})
	_, got := fetch(t, serve(t, small, &source{minimal: true, overlay: image.Overlay{Ignition: []byte("{}")}})+"/images/one/discovery.iso")
	info, err := os.Stat(small.URL)
	require.NoError(t, err)
	assert.Len(t, got, int(info.Size()), "it is minimal as it is")
}

func TestADamagedRecipeIsNoImage(t *testing.T) {
	for name, change := range map[string]func(recipe []byte){
		"its magic": func(recipe []byte) { recipe[0]++ },
		"version":   func(recipe []byte) { recipe[8]++ },
		"files":     func(recipe []byte) { recipe[17]++ },
		"content":   func(recipe []byte) { recipe[len(recipe)/2]++ },
		"end":       func(recipe []byte) { clear(recipe[len(recipe)-40:]) },
	} {
		t.Run(name, func(t *testing.T) {
			version, _ := withMinimal(t, change)
			url := serve(t, version, &source{minimal: true, overlay: image.Overlay{Ignition: []byte("{}")}})
			refused, _ := fetch(t, url+"/images/one/discovery.iso")
			assert.Equal(t, http.StatusServiceUnavailable, refused.StatusCode)
		})
	}
}
