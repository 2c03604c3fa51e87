// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

func pack(t *testing.T, kind string, plain []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	var into io.WriteCloser
	var err error
	switch kind {
	case "gz":
		into = gzip.NewWriter(&packed)
	case "zst":
		into, err = zstd.NewWriter(&packed)
	case "xz":
		into, err = xz.NewWriter(&packed)
	default:
		return plain
	}
	require.NoError(t, err)
	_, err = into.Write(plain)
	require.NoError(t, err)
	require.NoError(t, into.Close())
	return packed.Bytes()
}

// served is an image behind HTTP.
func served(t *testing.T, name string, content []byte) agentproto.OSImage {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(content)
	return agentproto.OSImage{URL: server.URL + "/" + name, SHA256: hex.EncodeToString(sum[:])}
}

func blank(t *testing.T, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, file.Truncate(size))
	require.NoError(t, file.Close())
	return path
}

// noise repeats itself, so that it is packed quickly, but no two chunks of it are equal: its period divides none.
func noise(size int) []byte {
	period := make([]byte, 4099)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(period)
	return bytes.Repeat(period, size/len(period)+1)[:size]
}

func TestImagesAreWrittenWhateverTheirPacking(t *testing.T) {
	for _, size := range []int{1, chunk, 2*chunk + 17} {
		plain := noise(size)
		for _, kind := range []string{"", "gz", "zst", "xz"} {
			image := served(t, "os.img."+kind, pack(t, kind, plain))
			path := blank(t, 16<<20)
			var told []int
			machine := &Real{Client: http.DefaultClient}
			require.NoError(t, machine.Write(t.Context(), Job{InstallArgs: agentproto.InstallArgs{Device: path, Image: image}}, func(p int) { told = append(told, p) }), kind)
			written, err := os.ReadFile(path)
			require.NoError(t, err)
			assert.True(t, bytes.Equal(plain, written[:size]), kind)
			assert.Equal(t, 100, told[len(told)-1])
			assert.IsIncreasing(t, told)
		}
	}
}

func TestAWrongImageDoesNotBoot(t *testing.T) {
	plain := noise(2 * chunk)
	path := blank(t, 16<<20)
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("old system"), 2<<20), 0o600))
	image := served(t, "os.img.gz", pack(t, "gz", plain))
	image.SHA256 = hex.EncodeToString(make([]byte, 32))
	machine := &Real{Client: http.DefaultClient}
	err := machine.Write(t.Context(), Job{InstallArgs: agentproto.InstallArgs{Device: path, Image: image}}, func(int) {})
	require.ErrorIs(t, err, errChecksum)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, chunk), written[:chunk], "neither the old system nor the new one")

	for _, quarters := range []int{1, 3} { // inside the first chunk and behind it
		cut := pack(t, "gz", plain)
		image = served(t, "os.img.gz", cut[:len(cut)*quarters/4])
		require.Error(t, machine.Write(t.Context(), Job{InstallArgs: agentproto.InstallArgs{Device: path, Image: image}}, func(int) {}), "a part of an image")
	}
}

// image is a disk image with one FAT file system, as small operating systems have for their first boot.
func image(t *testing.T, label string) []byte {
	t.Helper()
	path := blank(t, 64<<20)
	d, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadWrite))
	require.NoError(t, err)
	require.NoError(t, d.Partition(&gpt.Table{LogicalSectorSize: 512, PhysicalSectorSize: 512, ProtectiveMBR: true, Partitions: []*gpt.Partition{
		{Index: 1, Start: 2048, End: 2048 + 40<<11 - 1, Type: gpt.LinuxFilesystem, Name: label},
	}}))
	_, err = d.CreateFilesystem(disk.FilesystemSpec{Partition: 1, FSType: filesystem.TypeFat32, VolumeLabel: label})
	require.NoError(t, err)
	require.NoError(t, d.Close())
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return content
}

func TestFirstBootDataGoesWhereTheSystemLooks(t *testing.T) {
	const network = "version: 2\n"
	for name, c := range map[string]struct {
		kind, label, network string
		holds                map[string]string
	}{
		"ignition":                  {"ignition", "BOOT", network, map[string]string{"ignition/config.ign": `{"first":"boot"}`, "network-config": ""}},
		"cloud-init":                {"cloud-init", "CIDATA", "", map[string]string{"user-data": `{"first":"boot"}`, "network-config": ""}},
		"cloud-init with a network": {"cloud-init", "CIDATA", network, map[string]string{"user-data": `{"first":"boot"}`, "network-config": network}},
	} {
		path := blank(t, 64<<20)
		from := served(t, "os.img.zst", pack(t, "zst", image(t, c.label)))
		from.FirstBoot = c.kind
		args := agentproto.InstallArgs{Device: path, Image: from, HostID: uuid.NewString(), Hostname: "h1", NetworkConfig: c.network}
		require.NoError(t, (&Real{Client: http.DefaultClient}).Write(t.Context(), Job{InstallArgs: args, FirstBoot: []byte(`{"first":"boot"}`)}, func(int) {}), name)

		d, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadOnly))
		require.NoError(t, err)
		found, err := labelled(d, c.label)
		require.NoError(t, err)
		for file, holds := range c.holds {
			content, err := found.ReadFile(file)
			if holds == "" {
				require.ErrorContains(t, err, "does not exist", "%s: %s", name, file)
				continue
			}
			require.NoError(t, err, "%s: %s", name, file)
			assert.Equal(t, holds, string(content), "%s: %s", name, file)
		}
		require.NoError(t, d.Close())
	}
}
