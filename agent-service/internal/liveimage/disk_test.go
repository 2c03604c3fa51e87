// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveimage

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// filled is the content of a disk with some files and a root file system.
func filled(t *testing.T, root []byte) (string, []byte) {
	t.Helper()
	dir := t.TempDir()
	rootPath, path := filepath.Join(dir, "root"), filepath.Join(dir, "disk")
	require.NoError(t, os.WriteFile(rootPath, root, 0o600))
	files := map[string][]byte{}
	for n := range 20 {
		files[fmt.Sprintf("/boot/%d/file", n)] = bytes.Repeat([]byte{byte(n)}, 5000*n)
	}
	require.NoError(t, fillDisk(path, System{Root: rootPath, RootLabel: "root"}, files))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return path, content
}

func TestTheSameSystemGivesTheSameDisk(t *testing.T) {
	root := bytes.Repeat([]byte("a root file system\n"), 100_000)
	_, first := filled(t, root)
	_, second := filled(t, root)
	assert.True(t, bytes.Equal(first, second))
}

func TestFilesOfADiskHaveNoTimesOfTheirOwn(t *testing.T) {
	path, _ := filled(t, []byte("a root file system\n"))
	disk, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadOnly))
	require.NoError(t, err)
	defer func() { _ = disk.Close() }()
	boot, err := disk.GetFilesystem(2)
	require.NoError(t, err)
	for _, dir := range []string{".", "boot", "boot/7"} {
		entries, err := boot.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			info, err := entry.Info()
			require.NoError(t, err)
			assert.EqualValues(t, epoch, info.ModTime().Unix(), "%s in %s", entry.Name(), dir)
		}
	}
}

func TestTheRootFileSystemHasAPartition(t *testing.T) {
	root := bytes.Repeat([]byte("a root file system\n"), 100_000)
	path, content := filled(t, root)
	disk, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadOnly))
	require.NoError(t, err)
	defer func() { _ = disk.Close() }()
	table, err := disk.GetPartitionTable()
	require.NoError(t, err)
	require.NoError(t, table.Verify(disk.Backend, uint64(len(content))))
	partition, ok := table.GetPartitions()[2].(*gpt.Partition)
	require.True(t, ok)
	assert.Equal(t, "root", partition.Name)
	assert.GreaterOrEqual(t, partition.GetSize(), int64(len(root)))
	assert.True(t, bytes.HasPrefix(content[partition.GetStart():], root))
}
