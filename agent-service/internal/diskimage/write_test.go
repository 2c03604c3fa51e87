// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"bytes"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
)

func TestImagesAreWrittenWhateverTheirPacking(t *testing.T) {
	for _, size := range []int{1, Chunk, 2*Chunk + 17} {
		plain := imagetest.Noise(size)
		for _, kind := range []string{"", "gz", "zst", "xz"} {
			image := imagetest.Serve(t, "os.img."+kind, imagetest.Pack(t, kind, plain))
			path := imagetest.Disk(t, 16<<20)
			var reported []int
			require.NoError(t, Install(t.Context(), http.DefaultClient, Job{InstallArgs: agentproto.InstallArgs{Device: path, Image: image}}, func(p int) { reported = append(reported, p) }), kind)
			assert.True(t, bytes.Equal(plain, head(t, path, size)), kind)
			assert.Equal(t, 100, reported[len(reported)-1])
			assert.IsIncreasing(t, reported)
		}
	}
}

// head is how a disk begins.
func head(t *testing.T, path string, size int) []byte {
	t.Helper()
	disk, err := os.Open(path)
	require.NoError(t, err)
	defer disk.Close() //nolint:errcheck // it is only read
	begin := make([]byte, size)
	_, err = io.ReadFull(disk, begin)
	require.NoError(t, err)
	return begin
}

func TestAWrongImageDoesNotBoot(t *testing.T) {
	plain := imagetest.Noise(2 * Chunk)
	path := imagetest.Disk(t, 16<<20)
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte("old system"), 2<<20), 0o600))
	image := imagetest.Serve(t, "os.img.gz", imagetest.Pack(t, "gz", plain))
	image.SHA256 = hex.EncodeToString(make([]byte, 32))
	err := Install(t.Context(), http.DefaultClient, Job{InstallArgs: agentproto.InstallArgs{Device: path, Image: image}}, func(int) {})
	require.ErrorIs(t, err, errChecksum)
	assert.Equal(t, make([]byte, Chunk), head(t, path, Chunk), "neither the old system nor the new one")

	for _, quarters := range []int{1, 3} { // inside the first chunk and behind it
		cut := imagetest.Pack(t, "gz", plain)
		image = imagetest.Serve(t, "os.img.gz", cut[:len(cut)*quarters/4])
		require.Error(t, Install(t.Context(), http.DefaultClient, Job{InstallArgs: agentproto.InstallArgs{Device: path, Image: image}}, func(int) {}), "a part of an image")
	}
}

// image is a disk image with one FAT file system, as small operating systems have for their first boot.
func image(t *testing.T, label string) []byte {
	t.Helper()
	path := imagetest.Disk(t, 64<<20)
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
		"ignition of Flatcar":       {"ignition", "OEM", network, map[string]string{"config.ign": `{"first":"boot"}`, "network-config": ""}},
		"cloud-init":                {"cloud-init", "CIDATA", "", map[string]string{"user-data": `{"first":"boot"}`, "network-config": ""}},
		"cloud-init with a network": {"cloud-init", "CIDATA", network, map[string]string{"user-data": `{"first":"boot"}`, "network-config": network}},
	} {
		path := imagetest.Disk(t, 64<<20)
		from := imagetest.Serve(t, "os.img.zst", imagetest.Pack(t, "zst", image(t, c.label)))
		from.FirstBoot = c.kind
		args := agentproto.InstallArgs{Device: path, Image: from, HostID: uuid.NewString(), Hostname: "h1", NetworkConfig: c.network}
		require.NoError(t, Install(t.Context(), http.DefaultClient, Job{InstallArgs: args, FirstBoot: []byte(`{"first":"boot"}`)}, func(int) {}), name)

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
