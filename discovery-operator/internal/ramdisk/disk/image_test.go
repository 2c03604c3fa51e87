// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/apis/needtest"
)

// mbr is a table with one partition.
func mbr(first, sectors uint32) []byte {
	b := make([]byte, 512)
	copy(b, "a boot loader")
	e := b[446:]
	e[0], e[4] = 0x80, linuxKind
	binary.LittleEndian.PutUint32(e[8:], first)
	binary.LittleEndian.PutUint32(e[12:], sectors)
	b[510], b[511] = 0x55, 0xAA
	return b
}

// gpt is a disk of 4 MiB with one partition of 1 MiB.
func gpt() []byte {
	b := make([]byte, 4*mebibyte)
	b[446+4], b[510], b[511] = gptKind, 0x55, 0xAA
	entries := b[1024 : 1024+128*128]
	copy(entries, linuxData)
	binary.LittleEndian.PutUint64(entries[32:], 2048)
	binary.LittleEndian.PutUint64(entries[40:], 4095)
	h := b[512:]
	copy(h, "EFI PART\x00\x00\x01\x00\x5c\x00\x00\x00")
	binary.LittleEndian.PutUint64(h[24:], 1)
	binary.LittleEndian.PutUint64(h[32:], 8191)
	binary.LittleEndian.PutUint64(h[40:], 34)
	binary.LittleEndian.PutUint64(h[48:], 8191-33)
	binary.LittleEndian.PutUint64(h[72:], 2)
	binary.LittleEndian.PutUint32(h[80:], 128)
	binary.LittleEndian.PutUint32(h[84:], 128)
	binary.LittleEndian.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	binary.LittleEndian.PutUint32(h[16:], crc32.ChecksumIEEE(h[:headerSize]))
	return b
}

func packed(t *testing.T, content string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(content))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func sum(content []byte) string {
	s := sha256.Sum256(content)
	return hex.EncodeToString(s[:])
}

// served is a server of images.
func served(t *testing.T, content map[string][]byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := content[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if r.URL.RawQuery != "length=unknown" {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

var writer = Writer{Client: http.DefaultClient}

func TestAnImageIsWrittenWithItsConfigDrive(t *testing.T) {
	const size = 16 * mebibyte
	content := mbr(2048, 2048)
	content = append(content, bytes.Repeat([]byte{9}, 2*mebibyte)...)
	address := served(t, map[string][]byte{"/a.raw": content, "/sums": fmt.Appendf(nil, "%064d other\n%s *a.raw\n", 0, sum(content)), "/config": []byte(packed(t, "a drive"))})
	sha512 := sha512.Sum512(content)
	for name, change := range map[string]func(*Image){
		"SHA-256":             func(*Image) {},
		"SHA-512":             func(i *Image) { i.Algorithm, i.Checksum = "sha512", hex.EncodeToString(sha512[:]) },
		"a file of checksums": func(i *Image) { i.Algorithm, i.Checksum = "", address+"/sums" },
		"no format":           func(i *Image) { i.Format = "" },
		"a drive by URL":      func(i *Image) { i.Config = address + "/config" },
	} {
		t.Run(name, func(t *testing.T) {
			d := file(t, size, 7)
			image := Image{URL: address + "/a.raw", Format: "raw", Algorithm: "sha256", Checksum: sum(content), Config: packed(t, "a drive")}
			change(&image)
			require.NoError(t, writer.Write(t.Context(), image, d))
			got := read(t, d)
			assert.Equal(t, content[:462], got[:462], "the boot loader and the first partition")
			assert.True(t, bytes.Equal(content[512:], got[512:len(content)]))
			e := got[462:478]
			assert.EqualValues(t, linuxKind, e[4])
			assert.EqualValues(t, 15*mebibyte/512, binary.LittleEndian.Uint32(e[8:]))
			assert.EqualValues(t, mebibyte/512, binary.LittleEndian.Uint32(e[12:]))
			assert.Equal(t, "a drive", string(got[15*mebibyte:15*mebibyte+7]))
			assert.Len(t, got, size)
		})
	}
}

func TestAGPTReachesToTheEndOfTheDisk(t *testing.T) {
	const size, last = 16 * mebibyte, 16*mebibyte/512 - 1
	content := gpt()
	address := served(t, map[string][]byte{"/a.raw": content})
	for _, config := range []string{"", packed(t, "a drive")} {
		d := file(t, size, 7)
		require.NoError(t, writer.Write(t.Context(), Image{URL: address + "/a.raw", Checksum: sum(content), Config: config}, d))
		got := read(t, d)
		for _, at := range []int{1, last} {
			h := got[at*512:][:512]
			assert.Equal(t, "EFI PART", string(h[:8]))
			assert.EqualValues(t, at, binary.LittleEndian.Uint64(h[24:]))
			assert.EqualValues(t, 1+last-at, binary.LittleEndian.Uint64(h[32:]))
			assert.EqualValues(t, last-33, binary.LittleEndian.Uint64(h[48:]))
			entries := got[512*binary.LittleEndian.Uint64(h[72:]):][:128*128]
			assert.Equal(t, crc32.ChecksumIEEE(entries), binary.LittleEndian.Uint32(h[88:]))
			assert.Equal(t, content[1024:1024+128], entries[:128], "the partition of the image")
			second := entries[128:256]
			if config == "" {
				assert.Equal(t, make([]byte, 128), second)
				continue
			}
			first := binary.LittleEndian.Uint64(second[32:])
			assert.EqualValues(t, 14*mebibyte/512, first)
			assert.EqualValues(t, 15*mebibyte/512-1, binary.LittleEndian.Uint64(second[40:]))
			assert.Equal(t, "c\x00o\x00n\x00f\x00i\x00g\x00-\x002\x00", string(second[56:72]))
			assert.Equal(t, "a drive", string(got[512*first:512*first+7]))
		}
		table, err := readTable(bytesStorage(got), size, 512)
		require.NoError(t, err, "both checksums are right")
		assert.NotEmpty(t, table.used())
		assert.EqualValues(t, last, binary.LittleEndian.Uint32(got[446+12:]), "the MBR protects all of it")
	}
}

type bytesStorage []byte

func (b bytesStorage) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(b).ReadAt(p, at)
}
func (b bytesStorage) WriteAt(p []byte, at int64) (int, error) { return copy(b[at:], p), nil }

func TestImagesThatAreRefused(t *testing.T) {
	content := append(mbr(2048, 2048), make([]byte, 2*mebibyte)...)
	full := append(mbr(0, 1), make([]byte, 2*mebibyte)...)
	for i := range 4 {
		full[446+16*i+4] = linuxKind
	}
	none, broken := []byte("QFI\xfb and more"), gpt()
	broken[1024]++
	address := served(t, map[string][]byte{
		"/a.raw": content, "/full": full, "/text": []byte(strings.Repeat("text ", 1000)), "/a.qcow2": none, "/broken": broken, "/sums": []byte("no checksum here\n"),
	})
	for name, c := range map[string]struct {
		image Image
		says  string
		// written says that the disk was written to before.
		written bool
	}{
		"another checksum":            {Image{URL: address + "/a.raw", Checksum: strings.Repeat("0", 64)}, "has the checksum (SHA-256) " + sum(content), true},
		"no checksum":                 {Image{URL: address + "/a.raw"}, "has no checksum", false},
		"MD5":                         {Image{URL: address + "/a.raw", Checksum: strings.Repeat("0", 32)}, "of the kind md5", false},
		"a checksum of another kind":  {Image{URL: address + "/a.raw", Algorithm: "sha512", Checksum: sum(content)}, "is no SHA-512", false},
		"a list without it":           {Image{URL: address + "/a.raw", Checksum: address + "/sums"}, "has no checksum of " + address + "/a.raw", false},
		"it is not there":             {Image{URL: address + "/b.raw?secret=1", Checksum: sum(content)}, "from " + address + "/b.raw: the server answers 404", false},
		"no server":                   {Image{URL: "http://user:secret@127.0.0.1:1/b.raw", Checksum: sum(content)}, "http://127.0.0.1:1/b.raw", false},
		"another scheme":              {Image{URL: "file:///etc/passwd", Checksum: sum(content)}, "no URL of http or https", false},
		"larger than the disk":        {Image{URL: address + "/a.raw", Checksum: sum(content)}, "larger than the disk", false},
		"larger, found out late":      {Image{URL: address + "/a.raw?length=unknown", Checksum: sum(content)}, "larger than the disk", true},
		"qcow2 that is none":          {Image{URL: address + "/a.qcow2", Checksum: sum(none), Format: "qcow2"}, "as qcow2: its header is cut off", false},
		"qcow2 that is not called so": {Image{URL: address + "/a.qcow2", Checksum: sum(none)}, "as qcow2: its header is cut off", false},
		"another format":              {Image{URL: address + "/a.raw", Checksum: sum(content), Format: "vmdk"}, "writes raw and qcow2", false},
		"a drive that is not packed":  {Image{URL: address + "/a.raw", Checksum: sum(content), Config: "aGVsbG8="}, "not packed by gzip", false},
		"no table for the drive":      {Image{URL: address + "/text", Checksum: sum([]byte(strings.Repeat("text ", 1000))), Config: packed(t, "a")}, "no place for the config drive: there is no partition table", true},
		"a full table":                {Image{URL: address + "/full", Checksum: sum(full), Config: packed(t, "a")}, "all four partitions", true},
		"a GPT with wrong checksums":  {Image{URL: address + "/broken", Checksum: sum(broken)}, "checksums of the GPT are wrong", true},
	} {
		t.Run(name, func(t *testing.T) {
			size := 8 * mebibyte
			if strings.HasPrefix(name, "larger") {
				size = mebibyte
			}
			d := file(t, size, 7)
			err := writer.Write(t.Context(), c.image, d)
			require.ErrorContains(t, err, c.says)
			assert.NotContains(t, err.Error(), "secret")
			got := read(t, d)
			assert.Len(t, got, size)
			if !c.written {
				assert.True(t, bytes.Equal(bytes.Repeat([]byte{7}, size), got), "nothing was written")
			} else {
				assert.Equal(t, make([]byte, 512), got[:512], "it does not start")
			}
		})
	}
}

func TestADownloadThatStallsFails(t *testing.T) {
	content := append(mbr(2048, 2048), make([]byte, 2*mebibyte)...)
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content[:mebibyte])
		_ = http.NewResponseController(w).Flush()
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(release) })
	for _, path := range []string{"/a.raw", "/sums"} {
		d := file(t, 8*mebibyte, 7)
		image := Image{URL: s.URL + path, Checksum: sum(content)}
		if path == "/sums" {
			image.Checksum = s.URL + path
		}
		err := Writer{Client: http.DefaultClient, Stall: 200 * time.Millisecond}.Write(t.Context(), image, d)
		require.ErrorContains(t, err, "the server has sent nothing for 200ms")
		if path == "/a.raw" {
			assert.Equal(t, make([]byte, 512), read(t, d)[:512], "it does not start")
		}
	}
}

func TestQcow2(t *testing.T) {
	program, err := exec.LookPath("qemu-img")
	needtest.Part(t, err == nil, "there is no qemu-img (Debian: qemu-utils) to make images of qcow2 with")
	dir := t.TempDir()
	content := append(mbr(2048, 2048), bytes.Repeat([]byte{9}, 2*mebibyte)...)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.raw"), content, 0o600))
	run := func(args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), program, args...)
		command.Dir = dir
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("convert", "-f", "raw", "-O", "qcow2", "-c", "a.raw", "a.qcow2")
	run("create", "-q", "-f", "qcow2", "-F", "raw", "-b", "/etc/passwd", "backed.qcow2")
	run("create", "-q", "-f", "qcow2", "large.qcow2", "1G")
	run("create", "-q", "-f", "qcow2", "-o", "data_file=other.raw,data_file_raw=on", "elsewhere.qcow2", "1M")
	run("convert", "-f", "raw", "-O", "qcow2", "-o", "compat=0.10", "a.raw", "old.qcow2")
	files := map[string][]byte{}
	for _, name := range []string{"a", "old", "backed", "elsewhere", "large"} {
		files["/"+name], err = os.ReadFile(filepath.Join(dir, name+".qcow2"))
		require.NoError(t, err)
	}
	address := served(t, files)
	image := func(name string) Image {
		return Image{URL: address + "/" + name, Checksum: sum(files["/"+name]), Format: qcow2, Config: packed(t, "a drive")}
	}
	w := Writer{Client: http.DefaultClient, Temporary: t.TempDir()}
	for _, name := range []string{"a", "old"} {
		d := file(t, 16*mebibyte, 7)
		require.NoError(t, w.Write(t.Context(), image(name), d))
		got := read(t, d)
		assert.True(t, bytes.Equal(content[512:], got[512:len(content)]), name)
		assert.Equal(t, "a drive", string(got[15*mebibyte:15*mebibyte+7]), name)
	}
	d := file(t, 16*mebibyte, 7)
	for _, name := range []string{"backed", "elsewhere"} {
		require.ErrorContains(t, w.Write(t.Context(), image(name), d), "refers to another file", name)
	}
	require.ErrorContains(t, w.Write(t.Context(), image("large"), d), "larger than the disk")
	wrong := image("a")
	wrong.Checksum = strings.Repeat("0", 64)
	require.ErrorContains(t, w.Write(t.Context(), wrong, d), "has the checksum")
	assert.True(t, bytes.Equal(bytes.Repeat([]byte{7}, 16*mebibyte), read(t, d)), "nothing was written")
	left, err := os.ReadDir(w.Temporary)
	require.NoError(t, err)
	assert.Empty(t, left)
}

func FuzzTables(f *testing.F) {
	f.Add(gpt()[:1024+16384])
	f.Add(append(mbr(2048, 2048), make([]byte, 1024)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := make(bytesStorage, 4*mebibyte)
		copy(s, data)
		d := Disk{Size: 4 * mebibyte, Sector: 512}
		for _, e := range d.edges(s) {
			if e.from < 0 || e.to > d.Size || e.from >= e.to {
				t.Fatalf("%v is no part of the disk", e)
			}
		}
		_ = finish(s, d, []byte("a drive"))
	})
}
