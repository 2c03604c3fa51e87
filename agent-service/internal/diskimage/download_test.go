// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
)

// torn lets only so many bytes through before it cuts the connection off.
type torn struct {
	http.ResponseWriter
	left int
}

// Write implements http.ResponseWriter.
func (w *torn) Write(p []byte) (int, error) {
	if len(p) > w.left {
		_, _ = w.ResponseWriter.Write(p[:w.left])
		panic(http.ErrAbortHandler)
	}
	w.left -= len(p)
	return w.ResponseWriter.Write(p)
}

func TestADownloadThatIsCutOffGoesOn(t *testing.T) {
	t.Parallel()
	plain := make([]byte, 3*Chunk)
	_, _ = rand.NewChaCha8([32]byte{}).Read(plain) // it does not get smaller when it is packed
	packed := imagetest.Pack(t, "zst", plain)
	var requests atomic.Int64
	version := func(int64) string { return `"one"` }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := requests.Add(1)
		if n == 2 {
			http.Error(w, "away", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("ETag", version(n))
		if n < 4 {
			w = &torn{w, len(packed) / 3}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packed))
	}))
	t.Cleanup(server.Close)
	sum := sha256.Sum256(packed)
	job := Job{InstallArgs: agentproto.InstallArgs{Device: imagetest.Disk(t, 16<<20), Image: agentproto.OSImage{URL: server.URL + "/os.img.zst", SHA256: hex.EncodeToString(sum[:])}}}
	require.NoError(t, Install(t.Context(), http.DefaultClient, job, func(int) {}))
	written, err := os.ReadFile(job.Device)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(plain, written[:len(plain)]))
	assert.Equal(t, int64(4), requests.Load(), "one that was cut off, one that was refused, one that was cut off, and the rest")

	requests.Store(0)
	version = func(n int64) string { return `"` + string(rune('0'+n)) + `"` }
	err = Install(t.Context(), http.DefaultClient, job, func(int) {})
	require.ErrorContains(t, err, "does not send the rest of what it began")
}
