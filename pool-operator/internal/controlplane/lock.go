// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// leftoverGrace is for how long the processes of a killed owner may take to end after they were killed.
const leftoverGrace = 15 * time.Second

// takeLock makes this process the owner of the directory. The returned file is also handed to every child process: the
// lock becomes free only when the owner and all its children have ended, so holding it proves that none is left.
func (d layout) takeLock(ctx context.Context) (*os.File, error) {
	file, err := os.OpenFile(d.lock(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, asDiskFull(string(d), fmt.Errorf("locking the data directory: %w", err))
	}
	if err := d.waitForLock(ctx, file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if err := d.removeLeftovers(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	self, err := identify(os.Getpid())
	if err == nil {
		err = d.write(d.owner(), []byte(self.String()))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// forkGrace is how long a lock may be held without an owner: a process that is being forked holds it until it executes another program.
const forkGrace = 250 * time.Millisecond

// waitForLock returns once the lock is held. While a living owner holds it that is refused soon; the processes that a
// dead owner left are killed and waited for.
func (d layout) waitForLock(ctx context.Context, file *os.File) error {
	started := time.Now()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("locking %s: %w", d.lock(), err)
		}
		owner := readIdentity(d.owner())
		alive, waited := owner.alive(), time.Since(started)
		if alive && waited > forkGrace || waited > leftoverGrace {
			return &InUseError{Dir: string(d), PID: owner.pid}
		}
		if !alive {
			d.killLeftovers()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// killLeftovers ends the processes that the pid files name.
func (d layout) killLeftovers() {
	for _, name := range d.processNames() {
		readIdentity(d.pid(name)).kill()
	}
}

// removeLeftovers ends what a pid file still names (only where children do not hold the lock can there be any) and
// removes what dead processes left in run/.
func (d layout) removeLeftovers() error {
	d.killLeftovers()
	if err := os.RemoveAll(d.run()); err != nil {
		return fmt.Errorf("clearing %s: %w", d.run(), err)
	}
	return d.create()
}

// Reap ends what a killed owner left running in a data directory, and returns when it is gone. It does nothing while the
// owner lives or when nothing runs; a directory that does not exist is no error.
func Reap(ctx context.Context, dir string) error {
	d := layout(dir)
	if !d.locked() {
		return nil
	}
	file, err := os.OpenFile(d.lock(), os.O_RDWR, 0)
	if err != nil {
		return nil // The directory has just gone.
	}
	defer func() { _ = file.Close() }()
	err = d.waitForLock(ctx, file)
	if _, inUse := errors.AsType[*InUseError](err); inUse && readIdentity(d.owner()).alive() {
		return nil
	}
	return err
}

// Owned reports whether a living process owns a data directory, and which.
func Owned(dir string) (pid int, owned bool) {
	d := layout(dir)
	owner := readIdentity(d.owner())
	return owner.pid, owner.alive() && d.locked()
}

// RecordedPort is the port that a data directory holds on to, 0 when there is none.
func RecordedPort(dir string) int {
	recorded, err := layout(dir).readRecord()
	if err != nil {
		return 0
	}
	return recorded.Port
}

// locked reports whether some living process holds the directory's lock.
func (d layout) locked() bool {
	file, err := os.OpenFile(d.lock(), os.O_RDWR, 0)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil
}
