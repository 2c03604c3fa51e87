// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
	"time"
)

// maxRendered bounds how many overlays are kept: each is about 256 KiB.
const maxRendered = 256

// rendered is a live image with an overlay, ready to be served.
type rendered struct {
	base    *Base
	archive []byte
	patches []patch
	line    string
	tag     string
	modTime time.Time
	// err is a refusal of the overlay, such as a TooLargeError.
	err error
}

// iso is the whole image.
func (r *rendered) iso() *io.SectionReader {
	return io.NewSectionReader(patched{r.base.file, r.patches}, 0, r.base.size)
}

// initrd is the initial RAM disk with the overlay behind it.
func (r *rendered) initrd() (*io.SectionReader, bool) {
	at, ok := r.base.files[initrdPath]
	if !ok {
		return nil, false
	}
	behind := append(padding(int(at.length)), r.archive...)
	behind = append(behind, padding(len(behind)+int(at.length%4))...)
	first := io.NewSectionReader(r.base.file, at.offset, at.length)
	return io.NewSectionReader(joined{first, at.length, bytes.NewReader(behind)}, 0, at.length+int64(len(behind))), true
}

// cache keeps what was rendered by InfraEnv and revision. Requests for the same wait for one rendering.
type cache struct {
	mu      sync.Mutex
	entries map[string]*entry
	clock   int64
}

type entry struct {
	once     sync.Once
	revision string
	used     int64
	rendered *rendered
	err      error
}

func (c *cache) get(id, revision string, render func() (*rendered, error)) (*rendered, error) {
	c.mu.Lock()
	if c.entries == nil {
		c.entries = map[string]*entry{}
	}
	e := c.entries[id]
	if e == nil || e.revision != revision {
		e = &entry{revision: revision}
		c.entries[id] = e
	}
	c.clock++
	e.used = c.clock
	if len(c.entries) > maxRendered {
		c.forgetOldest()
	}
	c.mu.Unlock()
	e.once.Do(func() { e.rendered, e.err = render() })
	if e.err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.entries[id] == e { // the next request tries again
			delete(c.entries, id)
		}
	}
	return e.rendered, e.err
}

func (c *cache) forgetOldest() {
	oldest := ""
	for id, e := range c.entries {
		if oldest == "" || e.used < c.entries[oldest].used {
			oldest = id
		}
	}
	delete(c.entries, oldest)
}

// render puts an overlay on its live image.
func render(ctx context.Context, catalog *Catalog, source Source, d Description) (*rendered, error) {
	base, err := catalog.Base(ctx, d.Version, d.Architecture)
	if err != nil {
		return nil, err
	}
	overlay, err := source.Overlay(ctx, d)
	if err != nil {
		return nil, err
	}
	r := &rendered{base: base, modTime: d.ModTime}
	if r.archive, err = overlay.archive(); err != nil {
		return nil, err
	}
	r.line = commandLine(base.arguments.Default, overlay.KernelArguments)
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(base.SHA256), r.archive, []byte(r.line)} {
		_, _ = sum.Write(part)
	}
	r.tag = hex.EncodeToString(sum.Sum(nil)[:16])
	r.patches, r.err = base.patches(r.archive, overlay.KernelArguments)
	return r, nil
}
