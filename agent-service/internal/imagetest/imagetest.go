// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package imagetest makes small images for tests: live ones, and those of operating systems.
package imagetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/image"
)

// List writes a list with one small live image, which may have more files (content by name), and returns its path.
func List(t testing.TB, more ...map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{"images/ignition.img": strings.Repeat("\x00", 64<<10), "images/pxeboot/vmlinuz": "kernel", "images/pxeboot/initrd.img": "initrd"}
	for _, m := range more {
		maps.Copy(files, m)
	}
	for name, content := range files {
		path := filepath.Join(dir, "files", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	iso := filepath.Join(dir, "live.iso")
	storage, err := file.CreateFromPath(iso, 4<<20)
	require.NoError(t, err)
	fs, err := iso9660.Create(storage, 4<<20, 0, 2048, filepath.Join(dir, "files"))
	require.NoError(t, err)
	require.NoError(t, fs.Finalize(iso9660.FinalizeOptions{RockRidge: true, VolumeIdentifier: "live"}))
	require.NoError(t, storage.Close())
	data, err := os.ReadFile(iso)
	require.NoError(t, err)
	sum := sha256.Sum256(data)
	list, err := json.Marshal([]image.Version{{Name: "live", Architecture: "x86_64", URL: iso, SHA256: hex.EncodeToString(sum[:])}})
	require.NoError(t, err)
	path := filepath.Join(dir, "live.json")
	require.NoError(t, os.WriteFile(path, list, 0o600))
	return path
}
