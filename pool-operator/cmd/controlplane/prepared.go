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
	"time"

	"github.com/muster-io/muster/pool-operator/internal/controlplane"
)

// unusedFor is for how long a prepared control plane is kept that no start was a copy of.
const unusedFor = 7 * 24 * time.Hour

// prepared returns the data directory of a stopped control plane with the programs and kinds that are wanted. The first call makes it, in the user's
// cache; others that come meanwhile wait for it.
func prepared(ctx context.Context, wanted controlplane.Options, crds []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key, err := keyOf(wanted, crds)
	if err != nil {
		return "", err
	}
	root := filepath.Join(cache, "muster", "prepared")
	dir := filepath.Join(root, key)
	wanted.Dir, wanted.UnsafeNoFsync = dir+".new", false
	for {
		now := time.Now()
		if err := os.Chtimes(dir, now, now); !errors.Is(err, fs.ErrNotExist) {
			return dir, err
		}
		err := prepare(ctx, wanted, crds, dir)
		if _, inUse := errors.AsType[*controlplane.InUseError](err); !inUse {
			return dir, errors.Join(err, removeUnused(root))
		}
	}
}

// prepare runs a control plane until its kinds are served, and gives its directory the name of one that is complete. The lock of the directory lets one
// process do so at a time; another one may have done it before this one has the lock.
func prepare(ctx context.Context, wanted controlplane.Options, crds []string, complete string) (err error) {
	plane, err := controlplane.Open(ctx, wanted)
	if err != nil {
		return err
	}
	if controlplane.HasData(complete) {
		return plane.Destroy()
	}
	defer func() { err = errors.Join(err, plane.Close()) }()
	if err := plane.Start(ctx); err != nil {
		return explain(err)
	}
	if err := provideCRDs(plane, crds, false); err != nil {
		return err
	}
	plane.Stop(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	return os.Rename(wanted.Dir, complete)
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

// removeUnused removes what was prepared and not used for long.
func removeUnused(root string) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < unusedFor {
			continue
		}
		if err := os.RemoveAll(filepath.Join(root, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
