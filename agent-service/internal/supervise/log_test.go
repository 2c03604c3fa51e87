// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package supervise_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/supervise"
)

func TestALogKeepsTheNewestLinesInABoundedSpace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	log := &supervise.Log{Path: filepath.Join(dir, "kubelet.log"), MaxBytes: 100, Keep: 2}
	for n := range 100 {
		_, err := fmt.Fprintf(log, "line %04d\n", n)
		require.NoError(t, err)
	}
	require.NoError(t, log.Close())
	var kept strings.Builder
	for _, name := range []string{"kubelet.log.2", "kubelet.log.1", "kubelet.log"} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		assert.LessOrEqual(t, len(content), 100)
		kept.Write(content)
	}
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Len(t, files, 3)
	assert.True(t, strings.HasSuffix(kept.String(), "line 0098\nline 0099\n"))
	assert.True(t, strings.HasPrefix(kept.String(), "line 007"), kept.String())
}

func TestALogGoesOnAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	for range 3 {
		log := &supervise.Log{Path: path, MaxBytes: 25}
		_, err := log.Write([]byte("ten bytes\n"))
		require.NoError(t, err)
		require.NoError(t, log.Close())
	}
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "ten bytes\n", string(content), "the third does not fit")
}

func TestAWriteThatIsLargerThanTheLogIsDivided(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.log")
	log := &supervise.Log{Path: path, MaxBytes: 10, Keep: 1}
	n, err := log.Write(bytes.Repeat([]byte("x"), 35))
	require.NoError(t, err)
	assert.Equal(t, 35, n)
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Len(t, content, 5)
}
