// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"sync"
	"time"
)

// maxRendered bounds how many overlays are kept: each is about 256 KiB.
const maxRendered = 256

// rendered is a live image with an overlay, ready to be served.
type rendered struct {
	base *Base
	// medium is what the ISO is made of: the base, or its minimal form.
	medium  *Base
	archive []byte
	patches []patch
	line    string
	tag     string
	modTime time.Time
	// err is a refusal of the overlay, such as a TooLargeError.
	err error
	// sums is checksums, once.
	sums func() (sums, error)
}

// iso is the whole image.
func (r *rendered) iso() *io.SectionReader {
	return io.NewSectionReader(patched{r.medium.file, r.patches}, 0, r.medium.size)
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

// render puts an overlay on its live image. Parts of live images are served below an address.
func render(ctx context.Context, catalog *Catalog, source Source, d Description, parts string) (*rendered, error) {
	base, err := catalog.Base(ctx, d.Version, d.Architecture)
	if err != nil {
		return nil, err
	}
	overlay, err := source.Overlay(ctx, d)
	if err != nil {
		return nil, err
	}
	r := &rendered{base: base, medium: base, modTime: d.ModTime}
	r.sums = sync.OnceValues(r.checksums)
	if r.archive, err = overlay.archive(); err != nil {
		return nil, err
	}
	r.line = commandLine(base.arguments.Default, overlay.KernelArguments)
	changes := overlay.KernelArguments
	if d.Minimal {
		minimal, err := base.minimal()
		if r.err = err; err == nil && minimal != base {
			r.medium, changes = minimal, slices.Concat(fromAddress(parts+base.path()+"/rootfs"), changes)
		}
	}
	sum := sha256.New()
	for _, part := range [][]byte{[]byte(r.medium.SHA256), r.archive, []byte(commandLine(base.arguments.Default, changes))} {
		_, _ = sum.Write(part)
	}
	r.tag = hex.EncodeToString(sum.Sum(nil)[:16])
	if r.err == nil {
		r.patches, r.err = r.medium.patches(r.archive, changes)
	}
	return r, nil
}

// fromAddress are the kernel arguments by which the live system fetches its root file system.
func fromAddress(rootfs string) []KernelArgument {
	return []KernelArgument{{Operation: "delete", Value: "coreos.liveiso"}, {Operation: "replace", Value: "coreos.live.rootfs_url=" + rootfs}}
}
