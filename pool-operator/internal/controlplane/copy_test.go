// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAnInterruptedCopyBeginsAnew(t *testing.T) {
	source, target := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	write := func(content string, elements ...string) {
		path := filepath.Join(elements...)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	}
	write("key", source, "pki", "ca.key")
	write("data", source, "etcd", "member", "snap", "db")
	write("k", target, "pki", "ca.key")
	write("d", target, "etcd.new", "member", "snap", "db")
	require.False(t, HasData(target), "a copy without all data has none")

	require.NoError(t, layout(target).copyFrom(layout(source)))
	assert.True(t, HasData(target))
	for want, path := range map[string]string{"key": "pki/ca.key", "data": "etcd/member/snap/db"} {
		got, err := os.ReadFile(filepath.Join(target, path))
		require.NoError(t, err)
		assert.Equal(t, want, string(got))
	}
	assert.NoDirExists(t, filepath.Join(target, "etcd.new"))
	for _, dir := range []string{"pki", "etcd"} {
		info, err := os.Stat(filepath.Join(target, dir))
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o700), info.Mode().Perm(), dir)
	}
}

func TestDataThatWasThereIsMissed(t *testing.T) {
	dir := t.TempDir()
	d := layout(dir)
	assert.Equal(t, d.etcdData(), LostData(dir), "nothing says that it was never ready")
	require.NoError(t, d.writeRecord(record{Port: 1, Begun: true}))
	assert.Empty(t, LostData(dir), "it was never ready")
	require.NoError(t, d.writeRecord(record{Port: 1, Served: true}))
	assert.Equal(t, d.etcdData(), LostData(dir))
	require.NoError(t, os.MkdirAll(d.etcdData(), 0o700))
	assert.Equal(t, d.etcdData(), LostData(dir), "it is empty")
	require.NoError(t, os.MkdirAll(filepath.Join(d.etcdData(), "member", "wal"), 0o700))
	assert.Empty(t, LostData(dir))
}
