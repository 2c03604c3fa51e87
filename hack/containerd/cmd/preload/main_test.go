// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/platforms"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"
)

// built is a directory with an image of some program.
func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "pause")
	require.NoError(t, os.WriteFile(program, []byte("a program"), 0o700))
	dir := filepath.Join(t.TempDir(), "containerd")
	require.NoError(t, run(t.Context(), dir, []string{"muster.local/pause:1=" + program}))
	return dir
}

func TestContainerdFindsTheImageAndAllOfItsContent(t *testing.T) {
	dir := built(t)
	blobs, err := local.NewStore(filepath.Join(dir, contentPath))
	require.NoError(t, err)
	bolt, err := bbolt.Open(filepath.Join(dir, databasePath), 0o600, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = bolt.Close() })
	db := metadata.NewDB(bolt, blobs, nil)
	ctx := namespaces.WithNamespace(context.Background(), namespace)
	require.NoError(t, db.Init(ctx))
	image, err := metadata.NewImageStore(db).Get(ctx, "muster.local/pause:1")
	require.NoError(t, err)
	available, required, _, missing, err := images.Check(ctx, db.ContentStore(), image.Target, platforms.OnlyStrict(platforms.MustParse("linux/amd64")))
	require.NoError(t, err)
	assert.True(t, available)
	assert.Len(t, required, 2, "configuration and layer, beside the manifest")
	assert.Empty(t, missing)
	_, err = db.GarbageCollect(ctx)
	require.NoError(t, err)
	left := 0
	require.NoError(t, db.ContentStore().Walk(ctx, func(content.Info) error { left++; return nil }))
	assert.Equal(t, 3, left, "no image is garbage")
}

func TestTheSameProgramGivesTheSameBytes(t *testing.T) {
	read := func(dir string) map[string]string {
		files := map[string]string{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			name, _ := filepath.Rel(dir, path)
			files[name] = string(data)
			return err
		}))
		return files
	}
	first, second := read(built(t)), read(built(t))
	require.Len(t, first, 4)
	for name := range first {
		assert.True(t, first[name] == second[name], name) //nolint:testifylint // a database is no text to show
	}
}
