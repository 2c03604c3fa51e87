// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"io"
	"os"
	"path"
	"slices"
)

const (
	regularFile = 0o100000
	directory   = 0o040000
	typeMask    = 0o170000
)

// WriteArchive writes files in the format of initial RAM disks (cpio, newc). Directories above files are made.
func WriteArchive(w io.Writer, files []File) error {
	made := map[string]bool{}
	for _, f := range files {
		for _, above := range parents(f.Path) {
			if made[above] {
				continue
			}
			made[above] = true
			if err := writeEntry(w, File{Path: above, Mode: directory | 0o755}); err != nil {
				return err
			}
		}
		if f.Mode&typeMask == 0 {
			f.Mode |= regularFile
		}
		made[f.Path] = f.Mode&typeMask == directory
		if err := writeEntry(w, f); err != nil {
			return err
		}
	}
	return writeEntry(w, File{Path: "TRAILER!!!"})
}

func parents(name string) []string {
	var above []string
	for dir := path.Dir(name); dir != "." && dir != "/"; dir = path.Dir(dir) {
		above = append(above, dir)
	}
	slices.Reverse(above)
	return above
}

func writeEntry(w io.Writer, f File) error {
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		0, f.Mode, 0, 0, 1, 0, len(f.Data), 0, 0, 0, 0, len(f.Path)+1, 0, f.Path)
	for _, part := range [][]byte{[]byte(header), padding(len(header)), f.Data, padding(len(f.Data))} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// padding brings a length to a multiple of four.
func padding(length int) []byte { return make([]byte, (4-length%4)%4) }

// ReadFile is a file of this machine as one of a RAM disk.
func ReadFile(from, to string, mode uint32) (File, error) {
	data, err := os.ReadFile(from)
	return File{Path: to, Mode: mode, Data: data}, err
}
