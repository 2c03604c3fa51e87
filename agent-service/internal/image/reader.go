// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import "io"

// patched is a live image with patches. Its memory is that of the patches, which all readers share.
type patched struct {
	io.ReaderAt
	patches []patch
}

// ReadAt implements io.ReaderAt.
func (p patched) ReadAt(into []byte, offset int64) (int, error) {
	n, err := p.ReaderAt.ReadAt(into, offset)
	for _, change := range p.patches {
		begin, end := max(offset, change.offset), min(offset+int64(n), change.offset+int64(len(change.data)))
		if begin < end {
			copy(into[begin-offset:end-offset], change.data[begin-change.offset:end-change.offset])
		}
	}
	return n, err
}

// joined is one file after another.
type joined struct {
	first io.ReaderAt
	size  int64
	then  io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (j joined) ReadAt(into []byte, offset int64) (int, error) {
	n := 0
	if offset < j.size {
		var err error
		n, err = j.first.ReadAt(into[:min(int64(len(into)), j.size-offset)], offset)
		if err != nil && (err != io.EOF || offset+int64(n) < j.size) || n == len(into) {
			return n, err
		}
	}
	more, err := j.then.ReadAt(into[n:], offset+int64(n)-j.size)
	return n + more, err
}
