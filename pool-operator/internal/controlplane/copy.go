// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Copy makes a data directory of a copy of the keys and of what etcd holds in another one, whose control plane was stopped. Whoever may do something in
// one may do so in the other, and both have the same UIDs. The new one has a port of its own. Errors: DiskFullError, or those of the file system.
func Copy(from, to string) error {
	source, target := layout(from), layout(to)
	if err := target.create(); err != nil {
		return err
	}
	for _, tree := range [][2]string{{source.pki(""), target.pki("")}, {source.etcdData(), target.etcdData()}} {
		if err := copyTree(tree[0], tree[1]); err != nil {
			return asDiskFull(to, fmt.Errorf("copying %s: %w", tree[0], err))
		}
	}
	return nil
}

// copyTree copies directories and files, private to the user.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o700)
		}
		return copyFile(path, filepath.Join(to, below))
	})
}

// copyFile copies a file without the blocks that hold only zeros: etcd reserves 64 MiB for a log of which it has written little.
func copyFile(from, to string) (err error) {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	block := make([]byte, 64<<10)
	empty := make([]byte, len(block))
	for size := int64(0); ; {
		n, err := io.ReadFull(source, block)
		if n > 0 && !bytes.Equal(block[:n], empty[:n]) {
			if _, err := target.WriteAt(block[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return target.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}
