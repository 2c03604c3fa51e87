// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package imagetest

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

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"github.com/ulikunitz/xz"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// Pack packs an image: gz, zst or xz; plain for any other kind.
func Pack(t testing.TB, kind string, plain []byte) []byte {
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

// Serve serves an image over HTTP until the test ends.
func Serve(t testing.TB, name string, content []byte) agentproto.OSImage {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(content) }))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(content)
	return agentproto.OSImage{URL: server.URL + "/" + name, SHA256: hex.EncodeToString(sum[:])}
}

// Disk makes an empty disk of a size in bytes, and returns its path.
func Disk(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	file, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, file.Truncate(size))
	require.NoError(t, file.Close())
	return path
}

// Noise is an image of a size in bytes. It repeats itself, so that it is packed quickly, but no two chunks of it are equal: its period divides none.
func Noise(size int) []byte {
	period := make([]byte, 4099)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(period)
	return bytes.Repeat(period, size/len(period)+1)[:size]
}
