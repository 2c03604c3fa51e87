// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Scratch is a data directory that ends with its owner: Remove deletes it, and when the owner is killed before that,
// the next call of NewScratch by the same user does.
type Scratch struct {
	// Dir is the directory.
	Dir string
}

// NewScratch makes an empty data directory below the system's directory for temporary files, and removes those whose
// owners are gone.
func NewScratch(ctx context.Context) (*Scratch, error) {
	root := filepath.Join(os.TempDir(), "muster-controlplane-"+strconv.Itoa(os.Getuid()))
	if err := ensurePrivate(root); err != nil {
		return nil, err
	}
	// A new directory is not locked by its control plane yet; the sweep of another process must not see it before.
	guard, err := os.OpenFile(filepath.Join(root, "sweep.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", root, err)
	}
	defer func() { _ = guard.Close() }()
	if err := unix.Flock(int(guard.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("locking %s: %w", root, err)
	}
	sweepErr := sweep(ctx, root)
	dir := filepath.Join(root, "plane-"+strconv.Itoa(os.Getpid()))
	for n := 1; ; n++ {
		err := os.Mkdir(dir, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, os.ErrExist) {
			return nil, errors.Join(asDiskFull(root, fmt.Errorf("making a data directory: %w", err)), sweepErr)
		}
		dir = filepath.Join(root, fmt.Sprintf("plane-%d-%d", os.Getpid(), n))
	}
	d := layout(dir)
	self, err := identify(os.Getpid())
	if err == nil {
		err = d.write(d.owner(), []byte(self.String()))
	}
	return &Scratch{Dir: dir}, err
}

// sweep removes the directories whose owners are gone, after ending what is left of their processes. A directory that cannot be
// removed is left to the next sweep: it may belong to an owner that is just ending.
func sweep(ctx context.Context, root string) error {
	stale, err := filepath.Glob(filepath.Join(root, "plane-*"))
	if err != nil {
		return err
	}
	for _, dir := range stale {
		d := layout(dir)
		if readIdentity(d.owner()).alive() {
			continue
		}
		if err := reapSoon(ctx, dir); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	return nil
}

// reapSoon ends what a killed owner left. Processes that were killed this moment take some milliseconds to go; one that
// hangs in the kernel must not hold up every start.
func reapSoon(ctx context.Context, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	return Reap(ctx, dir)
}

// Remove deletes the directory.
func (s *Scratch) Remove() error { return os.RemoveAll(s.Dir) }

// ensurePrivate makes a directory that only this user can write to. The name is predictable, so one that another user
// made is refused.
func ensurePrivate(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return asDiskFull(dir, fmt.Errorf("making %s: %w", dir, err))
	}
	var info unix.Stat_t
	if err := unix.Lstat(dir, &info); err != nil {
		return fmt.Errorf("inspecting %s: %w", dir, err)
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || int(info.Uid) != os.Getuid() || info.Mode&0o077 != 0 {
		return fmt.Errorf("%s is not a private directory of this user: remove it", dir)
	}
	return nil
}
