// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

const (
	// unusedFor is for how long a prepared control plane is kept that no start was a copy of.
	unusedFor = 7 * 24 * time.Hour
	// preparedInterval is how often it is looked whether another process has prepared one.
	preparedInterval = 50 * time.Millisecond
)

// copyPrepared begins a data directory as a copy of a prepared control plane, unless it holds data already.
func copyPrepared(ctx context.Context, wanted controlplane.Options, crds []string) error {
	if _, err := os.Stat(filepath.Join(wanted.Dir, "etcd")); err == nil {
		return nil
	}
	dir, err := prepared(ctx, wanted, crds)
	if err != nil {
		return err
	}
	return controlplane.Copy(dir, wanted.Dir)
}

// prepared returns the data directory of a stopped control plane with the programs and kinds that are wanted. The first call makes it, in the user's
// cache; others that come meanwhile wait for it.
func prepared(ctx context.Context, wanted controlplane.Options, crds []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "muster", "prepared")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", err
	}
	key, err := keyOf(wanted, crds)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, key)
	unlock, err := lock(ctx, dir+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		now := time.Now()
		return dir, os.Chtimes(dir, now, now)
	}
	if err := removeUnused(root); err != nil {
		return "", err
	}
	wanted.Dir, wanted.UnsafeNoFsync = dir+".new", false
	if err := prepare(ctx, wanted, crds); err != nil {
		return "", err
	}
	return dir, os.Rename(wanted.Dir, dir)
}

// prepare runs a control plane until its kinds are served. What a killed process left is removed before.
func prepare(ctx context.Context, wanted controlplane.Options, crds []string) (err error) {
	if err := errors.Join(controlplane.Reap(ctx, wanted.Dir), os.RemoveAll(wanted.Dir)); err != nil {
		return err
	}
	plane, err := controlplane.Open(ctx, wanted)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	if err := plane.Start(ctx); err != nil {
		return explain(err)
	}
	if err := installCRDs(plane, crds); err != nil {
		return err
	}
	plane.Stop(ctx)
	return ctx.Err()
}

// keyOf names what a control plane is made of.
func keyOf(wanted controlplane.Options, crds []string) (string, error) {
	sum := sha256.New()
	sum.Write(fmt.Appendln(nil, wanted.Host, wanted.ServiceClusterIPRange, wanted.EmulatedVersion))
	for _, program := range []string{wanted.Binaries.Etcd, wanted.Binaries.APIServer, wanted.Binaries.ControllerManager} {
		info, err := os.Stat(program)
		if err != nil {
			return "", err
		}
		sum.Write(fmt.Appendln(nil, program, info.Size(), info.ModTime().UnixNano()))
	}
	for _, dir := range crds {
		if err := addFiles(sum, os.DirFS(dir)); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// addFiles adds what the files of a directory hold, in the order of their names.
func addFiles(sum hash.Hash, dir fs.FS) error {
	return fs.WalkDir(dir, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(dir, path)
		sum.Write(fmt.Appendf(nil, "%s %d\n%s", path, len(content), content))
		return err
	})
}

// lock waits until no other process holds the file's lock.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(err, file.Close())
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(preparedInterval):
		}
	}
}

// removeUnused removes what was prepared and not used for long.
func removeUnused(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || strings.HasSuffix(entry.Name(), ".lock") || time.Since(info.ModTime()) < unusedFor {
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
