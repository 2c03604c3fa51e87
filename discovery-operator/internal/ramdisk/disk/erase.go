// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// EraseMetadata overwrites the first and the last mebibyte of disks and of their partitions: tables, boot loaders, and what file systems, volumes and RAIDs
// are recognized by. All else on them can still be read. All disks are checked for use before the first is written.
func EraseMetadata(ctx context.Context, disks []Disk) error { return erase(ctx, disks, Disk.edges) }

// Erase overwrites disks with zeros, once.
func Erase(ctx context.Context, disks []Disk) error {
	return erase(ctx, disks, func(d Disk, _ storage) []extent { return []extent{{0, d.Size}} })
}

func erase(ctx context.Context, disks []Disk, what func(Disk, storage) []extent) error {
	for _, d := range disks {
		if err := d.unused(); err != nil {
			return fmt.Errorf("no disk is erased: %w", err)
		}
	}
	for _, d := range disks {
		f, err := d.open()
		if err != nil {
			return err
		}
		err = zero(ctx, f, what(d, f))
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("erasing the disk %s: %w", d.Name, err)
		}
	}
	return nil
}

// edges are the beginnings and ends of a disk and its partitions.
func (d Disk) edges(s storage) []extent {
	whole := []extent{{0, d.Size}}
	if t, err := readTable(s, d.Size, d.Sector); err == nil {
		whole = append(whole, t.used()...)
	}
	// Partitions first: without the table of an erasure that was cut off, the next one would not find them.
	slices.Reverse(whole)
	var out []extent
	for _, w := range whole {
		w.from, w.to = max(w.from, 0), min(w.to, d.Size)
		if w.from < w.to {
			out = append(out, extent{w.from, min(w.from+mebibyte, w.to)}, extent{max(w.to-mebibyte, w.from), w.to})
		}
	}
	return out
}

func zero(ctx context.Context, w io.WriterAt, places []extent) error {
	zeros := make([]byte, mebibyte)
	for _, p := range places {
		for at := p.from; at < p.to; at += mebibyte {
			if err := ctx.Err(); err != nil {
				return err
			}
			if _, err := w.WriteAt(zeros[:min(mebibyte, p.to-at)], at); err != nil {
				return err
			}
		}
	}
	return nil
}

// Sync has the kernel write what it keeps of a disk in memory.
func (d Disk) Sync() error {
	f, err := os.OpenFile(d.Name, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("flushing the disk %s: %w", d.Name, err)
	}
	return errors.Join(f.Sync(), f.Close())
}
