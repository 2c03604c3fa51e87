// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCutCountsNoColours(t *testing.T) {
	assert.Equal(t, "short", cut("short", 10))
	assert.Equal(t, "0123", cut("0123456789", 4))
	assert.Equal(t, green+"0123"+plain, cut(green+"0123456789"+plain, 4))
}

func TestAGridIsAligned(t *testing.T) {
	lines := grid(func(_, text string) string { return text }, []string{"A", "LONG"}, [][]string{{"longer", "x"}, {"y", "-"}})
	assert.Equal(t, []string{"A       LONG", "longer  x", "y       -"}, lines)
}

// Where nothing can be redrawn, the output holds no escape sequences and says each thing once.
func TestPlainOutputIsLines(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	s := newScreen(file)
	s.working("doing it")
	s.show([]string{"a table"})
	s.note("news")
	s.note("news")
	s.done("did it")
	s.close()
	text, err := os.ReadFile(file.Name())
	require.NoError(t, err)
	assert.NotContains(t, string(text), "\x1b")
	assert.NotContains(t, string(text), "a table")
	assert.Regexp(t, `(?s)^ +[0-9.]+s  … doing it\n +[0-9.]+s      news\n +[0-9.]+s  ✓ did it\n$`, string(text))
}
