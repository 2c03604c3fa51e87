// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// Chunk is how many bytes of a disk are written at once.
const Chunk = 4 << 20

// Target is where an image is written to: a disk, or for a generated machine nowhere.
type Target interface {
	io.WriterAt
	Sync() error
	Close() error
}

// errChecksum says that what was downloaded is not what was announced.
var errChecksum = errors.New("the checksum of the image is wrong")

// Write streams the image onto the target: nothing is kept in memory or in a file between. The beginning, which makes a disk bootable, is written
// last, after the checksum was found right; so a disk with half an image or a wrong one does not boot.
func Write(ctx context.Context, client *http.Client, image agentproto.OSImage, into Target, progress func(percent int)) error {
	from, err := Open(ctx, client, image.URL)
	if err != nil {
		return fmt.Errorf("downloading the image: %w", err)
	}
	defer func() { _ = from.Close() }()
	sum := sha256.New()
	raw := &counted{from: io.TeeReader(from, sum), total: from.total, tell: progress}
	plain, err := unpack(raw, image)
	if err != nil {
		return fmt.Errorf("unpacking the image: %w", err)
	}
	head, err := copyButHead(into, plain)
	if err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return fmt.Errorf("downloading the image: %w", err)
	}
	if image.SHA256 != "" && !strings.EqualFold(image.SHA256, hex.EncodeToString(sum.Sum(nil))) {
		return errChecksum
	}
	if err := into.Sync(); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	if _, err := into.WriteAt(head, 0); err != nil {
		return fmt.Errorf("writing the image: %w", err)
	}
	progress(100)
	return into.Sync()
}

// copyButHead writes everything but the first chunk, which it returns.
func copyButHead(into io.WriterAt, from io.Reader) ([]byte, error) {
	// Not io.ReadFull: an image that is cut off and one that is short would look alike.
	head, err := io.ReadAll(io.LimitReader(from, Chunk))
	switch {
	case err != nil:
		return nil, err
	case len(head) == 0:
		return nil, errors.New("the image is empty")
	case len(head) < Chunk:
		return head, nil
	}
	// A disk that was bootable before must not boot half overwritten.
	if _, err := into.WriteAt(make([]byte, Chunk), 0); err != nil {
		return nil, err
	}
	_, err = io.CopyBuffer(onlyWriter{io.NewOffsetWriter(into, Chunk)}, onlyReader{from}, make([]byte, Chunk))
	return head, err
}

// onlyWriter and onlyReader hide methods by which io.CopyBuffer would go around the buffer.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)

// unpack reads gz, zst or xz, by the image's word or by the end of its address.
func unpack(from io.Reader, image agentproto.OSImage) (io.Reader, error) {
	kind := image.Compression
	if kind == "" {
		if parsed, err := url.Parse(image.URL); err == nil {
			kind = strings.TrimPrefix(path.Ext(parsed.Path), ".")
		}
	}
	switch kind {
	case "gz", "gzip":
		return gzip.NewReader(from)
	case "zst", "zstd":
		decoder, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		return decoder.IOReadCloser(), nil
	case "xz":
		return xz.NewReader(from)
	}
	return from, nil
}

// counted tells how much of a download has come.
type counted struct {
	from  io.Reader
	total int64
	come  int64
	last  int
	tell  func(percent int)
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.come += int64(n)
	if c.total > 0 {
		if percent := int(c.come * 99 / c.total); percent > c.last {
			c.last = percent
			c.tell(percent)
		}
	}
	return n, err
}

// OpenDisk opens a disk for writing, if nothing else uses it.
func OpenDisk(device string) (*os.File, error) {
	disk, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		return nil, fmt.Errorf("opening the disk: %w", err)
	}
	return disk, nil
}
