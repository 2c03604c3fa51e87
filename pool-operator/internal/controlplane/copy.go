// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// HasData reports whether a data directory holds what etcd stores.
func HasData(dir string) bool { return layout(dir).hasData() }

// LostData returns the directory of what etcd stores where a control plane that was ready once has lost that, although the rest of its data directory is there; else it is empty. etcd would
// begin with nothing. A directory without a record has lost that, too, or was only just made.
func LostData(dir string) string {
	d := layout(dir)
	recorded, err := d.readRecord()
	if err != nil || recorded != (record{}) && !recorded.Served {
		return ""
	}
	if _, err := os.Stat(filepath.Join(d.etcdData(), "member")); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return d.etcdData()
}

func (d layout) hasData() bool {
	_, err := os.Stat(d.etcdData())
	return !errors.Is(err, fs.ErrNotExist)
}

// copyFrom begins the directory with the keys and the data of another one. Data are complete as soon as they have their name, so a copy that was
// interrupted begins anew.
func (d layout) copyFrom(source layout) error {
	incomplete := d.etcdData() + ".new"
	if err := errors.Join(os.RemoveAll(incomplete), os.RemoveAll(d.pki(""))); err != nil {
		return fmt.Errorf("removing an incomplete copy: %w", err)
	}
	if err := d.create(); err != nil {
		return err
	}
	// Files are as private as these two directories.
	err := os.Mkdir(incomplete, 0o700)
	if err == nil {
		err = os.CopyFS(d.pki(""), os.DirFS(source.pki("")))
	}
	if err == nil {
		err = os.CopyFS(incomplete, os.DirFS(source.etcdData()))
	}
	if err == nil {
		err = os.Rename(incomplete, d.etcdData())
	}
	if err != nil {
		return asDiskFull(string(d), fmt.Errorf("copying %s: %w", source, err))
	}
	return nil
}
