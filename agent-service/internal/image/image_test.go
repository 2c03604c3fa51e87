// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/image"
)

const (
	areaSize    = 64 << 10
	defaultLine = "quiet console=ttyS0 coreos.liveiso=x"
	config      = "linux /images/pxeboot/vmlinuz "
)

// liveImage makes an ISO with the files of a live image, and more; those without content are left out.
func liveImage(t *testing.T, more map[string][]byte) image.Version {
	t.Helper()
	area := defaultLine + "\n" + strings.Repeat("#", 1024-len(defaultLine)-1)
	content := map[string][]byte{
		"images/ignition.img":        make([]byte, areaSize),
		"images/pxeboot/vmlinuz":     bytes.Repeat([]byte("kernel"), 1000),
		"images/pxeboot/initrd.img":  bytes.Repeat([]byte("initrd"), 1001)[:6001],
		"images/pxeboot/rootfs.img":  bytes.Repeat([]byte("rootfs"), 100000),
		"efi/boot/grub.cfg":          []byte(config + area + "\ninitrd /images/pxeboot/initrd.img\n"),
		"coreos/kargs.json":          fmt.Appendf(nil, `{"default": %q, "size": 1024, "files": [{"path": "EFI/boot/grub.cfg", "offset": %d}]}`, defaultLine, len(config)),
		"a_long_name_of_a_file.data": []byte("long"),
	}
	maps.Copy(content, more)
	maps.DeleteFunc(content, func(_ string, data []byte) bool { return data == nil })
	dir := t.TempDir()
	workspace := filepath.Join(dir, "files")
	for name, data := range content {
		path := filepath.Join(workspace, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, data, 0o600))
	}
	path := filepath.Join(dir, "live.iso")
	storage, err := file.CreateFromPath(path, 32<<20)
	require.NoError(t, err)
	fs, err := iso9660.Create(storage, 32<<20, 0, 2048, workspace)
	require.NoError(t, err)
	require.NoError(t, fs.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: "live"}))
	require.NoError(t, storage.Close())
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data = data[:binary.LittleEndian.Uint32(data[16*2048+80:])*2048] // what is behind the volume
	require.NoError(t, os.WriteFile(path, data, 0o600))
	sum := sha256.Sum256(data)
	return image.Version{Name: "1", Architecture: "x86_64", URL: path, SHA256: hex.EncodeToString(sum[:])}
}

// source describes one overlay for any key but "unknown".
type source struct {
	mu       sync.Mutex
	revision string
	overlay  image.Overlay
	minimal  bool
	renders  atomic.Int64
}

type refusal struct{}

func (refusal) Error() string   { return "there is no such InfraEnv" }
func (refusal) StatusCode() int { return http.StatusNotFound }

func (s *source) Describe(_ context.Context, key string) (image.Description, error) {
	if key == "unknown" {
		return image.Description{}, refusal{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return image.Description{ID: key, Revision: s.revision, Minimal: s.minimal, ModTime: time.Unix(1_700_000_000, 0)}, nil
}

func (s *source) Overlay(context.Context, image.Description) (image.Overlay, error) {
	s.renders.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overlay, nil
}

func (s *source) set(revision string, overlay image.Overlay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.overlay = revision, overlay
}

func serve(t *testing.T, version image.Version, s image.Source) string {
	t.Helper()
	catalog := &image.Catalog{Directory: t.TempDir(), Versions: []image.Version{version}}
	server := httptest.NewServer(image.New(image.Options{Catalog: catalog, Source: s, URL: "http://images"}))
	t.Cleanup(server.Close)
	return server.URL
}

// answer is what matters of a response.
type answer struct {
	StatusCode int
	Header     http.Header
}

func fetch(t *testing.T, url string, headers ...string) (answer, []byte) {
	t.Helper()
	var body bytes.Buffer
	got, err := download(t.Context(), &body, url, headers...)
	require.NoError(t, err)
	return got, body.Bytes()
}

func download(ctx context.Context, into io.Writer, url string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	_, err = io.Copy(into, response.Body)
	return answer{response.StatusCode, response.Header}, errors.Join(err, response.Body.Close())
}

// unpack reads what is in a compressed RAM disk.
func unpack(t *testing.T, data []byte) string {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	reader.Multistream(false)
	content, err := io.ReadAll(reader)
	require.NoError(t, err)
	return string(content)
}

func TestTheImageCarriesTheOverlayAndNothingElseChanges(t *testing.T) {
	version := liveImage(t, nil)
	s := &source{revision: "1", overlay: image.Overlay{
		Ignition: []byte(`{"ignition":{"version":"3.1.0"}}`),
		Files:    []image.File{{Path: "etc/net/eth0", Mode: 0o600, Data: []byte("static")}},
		KernelArguments: []image.KernelArgument{
			{Operation: "delete", Value: "quiet"}, {Operation: "replace", Value: "console=tty1"}, {Operation: "append", Value: "ip=dhcp"},
		},
	}}
	url := serve(t, version, s)
	response, got := fetch(t, url+"/images/one/full.iso")
	assert.Equal(t, http.StatusOK, response.StatusCode)
	before, err := os.ReadFile(version.URL)
	require.NoError(t, err)
	require.Len(t, got, len(before))

	at := bytes.Index(before, make([]byte, areaSize))
	begin := bytes.Index(got, []byte{0x1f, 0x8b, 8})
	require.GreaterOrEqual(t, begin, at)
	content := unpack(t, got[begin:begin+areaSize])
	assert.Contains(t, content, `config.ign`)
	assert.Contains(t, content, `{"ignition":{"version":"3.1.0"}}`)
	assert.Contains(t, content, "etc/net/eth0")

	line := bytes.Index(got, []byte(config)) + len(config)
	assert.True(t, bytes.HasPrefix(got[line:], []byte("console=tty1 coreos.liveiso=x ip=dhcp\n#")), "%q", got[line:line+80])
	copy(got[line:line+1024], before[line:line+1024])
	copy(got[begin:begin+areaSize], before[begin:begin+areaSize])
	assert.True(t, bytes.Equal(before, got), "only the two areas may change")
}

func TestPartsForNetworkBoot(t *testing.T) {
	version := liveImage(t, nil)
	url := serve(t, version, &source{overlay: image.Overlay{Ignition: []byte("{}")}})
	_, kernel := fetch(t, url+"/boot-artifacts/kernel?version=1&arch=x86_64")
	assert.True(t, bytes.HasPrefix(kernel, []byte("kernelkernel")))
	_, rootfs := fetch(t, url+"/boot-artifacts/rootfs")
	assert.Len(t, rootfs, 600000)
	_, initrd := fetch(t, url+"/images/one/pxe-initrd")
	assert.True(t, bytes.HasPrefix(initrd, []byte("initrdinitrd")))
	assert.Contains(t, unpack(t, initrd[6004:]), "config.ign")
	assert.Zero(t, len(initrd)%4)
	_, script := fetch(t, url+"/images/one/ipxe-script")
	assert.Equal(t, "#!ipxe\ninitrd --name initrd http://images/images/one/pxe-initrd\nkernel http://images/boot-artifacts/kernel?version=1&arch=x86_64 initrd=initrd "+
		"quiet console=ttyS0 coreos.live.rootfs_url=http://images/boot-artifacts/rootfs?version=1&arch=x86_64\nboot\n", string(script))
}

func TestScriptsNameVersionsAsAddressesDo(t *testing.T) {
	version := liveImage(t, nil)
	version.Name = "4.20+okd&scos=1 ä"
	at := serve(t, version, &source{overlay: image.Overlay{Ignition: []byte("{}")}})
	_, script := fetch(t, at+"/images/one/ipxe-script")
	found := regexp.MustCompile(`http://images(/boot-artifacts/\S+)`).FindAllStringSubmatch(string(script), -1)
	require.Len(t, found, 2, string(script))
	for _, part := range found {
		response, _ := fetch(t, at+part[1])
		assert.Equal(t, http.StatusOK, response.StatusCode, part[1])
	}
}

func TestTheAreaOfTheIgnitionCanBeNamed(t *testing.T) {
	info, err := json.Marshal(map[string]any{"file": "a_long_name_of_a_file.data", "offset": 512, "length": 2048})
	require.NoError(t, err)
	version := liveImage(t, map[string][]byte{"coreos/igninfo.json": info, "a_long_name_of_a_file.data": bytes.Repeat([]byte("x"), 4096)})
	_, got := fetch(t, serve(t, version, &source{overlay: image.Overlay{Ignition: []byte("{}")}})+"/images/one/full.iso")
	before := bytes.Index(got, bytes.Repeat([]byte("x"), 512))
	assert.Contains(t, unpack(t, got[before+512:before+512+2048]), "config.ign")
	assert.Equal(t, byte('x'), got[before+512+2048])
}

func TestRefusals(t *testing.T) {
	version := liveImage(t, nil)
	s := &source{revision: "1", overlay: image.Overlay{Ignition: random(2 * areaSize)}}
	url := serve(t, version, s)
	for path, status := range map[string]int{
		"/images/one/full.iso": http.StatusConflict, "/images/unknown/full.iso": http.StatusNotFound, "/images/one/other": http.StatusNotFound,
		"/boot-artifacts/kernel?version=2": http.StatusNotFound, "/boot-artifacts/other": http.StatusNotFound,
	} {
		response, _ := fetch(t, url+path)
		assert.Equal(t, status, response.StatusCode, path)
	}
	_, body := fetch(t, url+"/images/one/full.iso")
	assert.Contains(t, string(body), "the live image has room for 65536")

	version.SHA256 = strings.Repeat("0", 64)
	response, _ := fetch(t, serve(t, version, s)+"/images/one/full.iso")
	assert.Equal(t, http.StatusServiceUnavailable, response.StatusCode, "another image than the configured one is not served")
	assert.NotEmpty(t, response.Header.Get("Retry-After"))
}

func TestAnImageCanBeTriedFromAfar(t *testing.T) {
	version := liveImage(t, nil)
	s := &source{revision: "1", overlay: image.Overlay{Ignition: []byte("{}")}}
	url := serve(t, version, s)
	assert.Nil(t, image.Try(t.Context(), http.DefaultClient, url, "one"))
	s.set("2", image.Overlay{Ignition: random(2 * areaSize)})
	found := image.Try(t.Context(), http.DefaultClient, url, "one")
	require.NotNil(t, found)
	assert.True(t, found.Lasting)
	assert.Contains(t, found.Reason, "the live image has room for 65536: make")

	version.URL = "/nowhere"
	found = image.Try(t.Context(), http.DefaultClient, serve(t, version, s), "one")
	require.NotNil(t, found)
	assert.False(t, found.Lasting)
	assert.Contains(t, found.Reason, "cannot be fetched")

	proxy := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(proxy.Close)
	assert.Nil(t, image.Try(t.Context(), http.DefaultClient, proxy.URL, "one"), "an answer of a proxy is not about images")
	proxy.Close()
	assert.Nil(t, image.Try(t.Context(), http.DefaultClient, proxy.URL, "one"))
}

func TestAThousandRangesCostOneRendering(t *testing.T) {
	version := liveImage(t, nil)
	s := &source{revision: "1", overlay: image.Overlay{Ignition: []byte("{}")}}
	url := serve(t, version, s) + "/images/one/full.iso"
	whole, all := fetch(t, url)
	tag := whole.Header.Get("ETag")
	require.NotEmpty(t, tag)
	var group sync.WaitGroup
	for worker := range 10 {
		group.Go(func() {
			for i := range 100 {
				from := (worker*100 + i) * 509
				var part bytes.Buffer
				response, err := download(t.Context(), &part, url, "Range", fmt.Sprintf("bytes=%d-%d", from, from+4000), "If-Range", tag)
				assert.NoError(t, err) //nolint:testifylint // not in the goroutine of the test
				assert.Equal(t, http.StatusPartialContent, response.StatusCode)
				assert.True(t, bytes.Equal(all[from:from+4001], part.Bytes()))
			}
		})
	}
	group.Wait()
	assert.EqualValues(t, 1, s.renders.Load())

	unchanged, _ := fetch(t, url, "If-None-Match", tag)
	assert.Equal(t, http.StatusNotModified, unchanged.StatusCode)
	s.set("2", image.Overlay{Ignition: []byte(`{"changed":true}`)})
	changed, _ := fetch(t, url, "If-None-Match", tag)
	assert.Equal(t, http.StatusOK, changed.StatusCode)
	s.set("3", image.Overlay{Ignition: []byte("{}")})
	again, _ := fetch(t, url)
	assert.Equal(t, tag, again.Header.Get("ETag"), "the tag is of the content")
}

func TestMemoryIsFlatWithParallelDownloads(t *testing.T) {
	version := liveImage(t, map[string][]byte{"images/pxeboot/rootfs.img": make([]byte, 16<<20)})
	url := serve(t, version, &source{overlay: image.Overlay{Ignition: []byte("{}")}}) + "/images/one/full.iso"
	fetch(t, url)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var group sync.WaitGroup
	const downloads = 50
	for range downloads {
		group.Go(func() {
			var size count
			_, err := download(t.Context(), &size, url)
			assert.NoError(t, err) //nolint:testifylint // not in the goroutine of the test
			assert.Greater(t, int64(size), int64(16<<20))
		})
	}
	group.Wait()
	runtime.ReadMemStats(&after)
	each := (after.TotalAlloc - before.TotalAlloc) / downloads
	assert.Less(t, each, uint64(1<<20), "a download of 17 MB allocates its buffers only")
}

// count is a writer that keeps nothing.
type count int64

func (c *count) Write(data []byte) (int, error) {
	*c += count(len(data))
	return len(data), nil
}

// random is data that does not compress.
func random(n int) []byte {
	data := make([]byte, 0, n)
	for i := 0; len(data) < n; i++ {
		sum := sha256.Sum256(fmt.Append(nil, i))
		data = append(data, sum[:]...)
	}
	return data[:n]
}

func FuzzReadImage(f *testing.F) {
	f.Add([]byte("CD001"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "fuzzed.iso")
		content := append(make([]byte, 16*2048), data...)
		require.NoError(t, os.WriteFile(path, content, 0o600))
		sum := sha256.Sum256(content)
		catalog := &image.Catalog{Directory: t.TempDir(), Versions: []image.Version{{Architecture: "x86_64", URL: path, SHA256: hex.EncodeToString(sum[:])}}}
		_, err := catalog.Base(t.Context(), "", "")
		assert.Error(t, err)
	})
}
