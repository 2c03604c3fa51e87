// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/diskimage"
	"github.com/muster-io/muster/agent-service/internal/hardware"
)

const (
	// wipedEdge is how much is overwritten at both ends of a disk, and wipedSignature at both ends of each partition: there are the signatures of file systems, of
	// volume managers and of software RAIDs.
	wipedEdge      = 64 << 20
	wipedSignature = 1 << 20
)

// blockDevice is an open disk.
type blockDevice interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Number is major:minor of what is open, as the kernel names it in /sys.
	Number() (string, error)
	// Size is in bytes.
	Size() (int64, error)
	// Discard tells the disk that its content is of no use; a disk that cannot do that is left as it is.
	Discard() error
	// Flush writes what is in memory, and forgets it, so that reading asks the disk.
	Flush() error
	// Reread makes the kernel read the partition table again.
	Reread() error
}

// span is a part of a disk.
type span struct{ offset, length int64 }

// wipeTarget is a disk that was found to be the one that was asked for. It is made by openTarget only, and nothing else is ever wiped.
type wipeTarget struct {
	blockDevice
	wanted     hardware.DiskIdentity
	name       string
	size       int64
	partitions []span
}

// wipe erases the disks that were asked for, and no other. None is touched unless each is found once and can be written to. Volumes and arrays made of them are taken apart first.
func (m *Real) wipe(ctx context.Context, step api.Step) (any, error) {
	var wanted agentproto.WipeArgs
	if err := arguments(step, &wanted); err != nil {
		return nil, err
	}
	if len(wanted.Disks) == 0 {
		return nil, errors.New("the step names no disk")
	}
	var targets []*wipeTarget
	defer func() {
		for _, t := range targets {
			_ = t.Close() // it was flushed, or is of no use
		}
	}()
	if err := m.free(wanted.Disks); err != nil {
		return nil, err
	}
	for _, one := range wanted.Disks {
		target, err := m.openTarget(hardware.DiskIdentity(one))
		if err != nil {
			return nil, err
		}
		targets = append(targets, target)
	}
	var done agentproto.WipeReply
	for _, target := range targets {
		if err := target.erase(ctx); err != nil {
			return nil, fmt.Errorf("%s (%s): %w", target.wanted, target.name, err)
		}
		done.Disks = append(done.Disks, agentproto.DiskIdentity(target.wanted))
	}
	return done, nil
}

// free takes apart what is made of disks, when each of them was found.
func (m *Real) free(wanted []agentproto.DiskIdentity) error {
	var names []string
	for _, one := range wanted {
		if !hardware.DiskIdentity(one).Complete() {
			return fmt.Errorf("%s cannot be distinguished from others", hardware.DiskIdentity(one))
		}
		found, err := m.only(hardware.DiskIdentity(one))
		if err != nil {
			return err
		}
		names = append(names, found.Name)
	}
	for i, name := range names {
		if err := m.takeApart(name); err != nil {
			return fmt.Errorf("the %s (%s) cannot be wiped: %s: %w", hardware.DiskIdentity(wanted[i]), name, inUse, err)
		}
	}
	return nil
}

// openTarget finds a disk by its identity and opens it. It compares the open disk once more: a name may be of another disk by then.
func (m *Real) openTarget(wanted hardware.DiskIdentity) (*wipeTarget, error) {
	found, err := m.only(wanted)
	if err != nil {
		return nil, err
	}
	if held := m.holders(found.Name); len(held) > 0 {
		return nil, fmt.Errorf("the %s (%s) cannot be wiped: %s: %s is made of it again", wanted, found.Name, inUse, strings.Join(held, ", "))
	}
	device, err := m.openBlock(found.Name)
	if err != nil {
		return nil, fmt.Errorf("opening the %s (%s): %w", wanted, found.Name, err)
	}
	target := &wipeTarget{blockDevice: device, wanted: wanted, name: found.Name, size: wanted.SizeBytes}
	if err := m.verify(target); err != nil {
		return nil, errors.Join(fmt.Errorf("%s (%s): %w", wanted, found.Name, err), device.Close())
	}
	target.partitions = m.partitions(found.Name)
	return target, nil
}

// only is the one disk with an identity. Another one with its serial number, whatever else differs, is one too many.
func (m *Real) only(wanted hardware.DiskIdentity) (hardware.Disk, error) {
	var same []hardware.Disk
	for _, disk := range m.withUnitSerials(m.disks()) {
		if disk.Identity().Serial == wanted.Serial {
			same = append(same, disk)
		}
	}
	switch {
	case len(same) == 0:
		return hardware.Disk{}, fmt.Errorf("there is no %s", wanted)
	case len(same) > 1:
		return hardware.Disk{}, fmt.Errorf("there is more than one %s: %s and %s", wanted, same[0].Name, same[1].Name)
	case !same[0].Identity().Is(wanted):
		return hardware.Disk{}, fmt.Errorf("the %s (%s) differs from the one that was written: in size, worldwide name or id", wanted, same[0].Name)
	}
	if why := unwipeable(same[0]); len(why) > 0 {
		return hardware.Disk{}, fmt.Errorf("the %s (%s) cannot be wiped: %s", wanted, same[0].Name, strings.Join(why, ", "))
	}
	return same[0], nil
}

// unwipeable is why a disk cannot be wiped. One that is too small for an operating system can, and what is made of it can be taken apart.
func unwipeable(disk hardware.Disk) []string {
	return slices.DeleteFunc(slices.Clone(disk.InstallationEligibility.NotEligibleReasons), func(reason string) bool {
		return reason == tooSmall || reason == inUse && !disk.IsInstallationMedia
	})
}

// verify reads the identity of what is open, by the number that the kernel gave it.
func (m *Real) verify(target *wipeTarget) error {
	number, err := target.Number()
	if err != nil {
		return err
	}
	path, err := filepath.EvalSymlinks(filepath.Join(m.Sys, "dev/block", number))
	if err != nil {
		return fmt.Errorf("the kernel does not know device %s", number)
	}
	if _, err := os.Stat(filepath.Join(path, "partition")); err == nil {
		return errors.New("the opened device is a partition")
	}
	opened := m.withUnitSerials([]hardware.Disk{m.disk(filepath.Base(path), nil)})[0]
	size, err := target.Size()
	if err != nil {
		return err
	}
	identity := opened.Identity()
	if opened.Name != target.name || identity.Serial != target.wanted.Serial || size != target.wanted.SizeBytes || content(filepath.Join(path, "dev")) != number {
		return fmt.Errorf("the opened device is another disk: %s (%s)", identity, opened.Name)
	}
	return nil
}

// partitions are those that the kernel knows.
func (m *Real) partitions(disk string) []span {
	const sector = 512
	entries, _ := filepath.Glob(filepath.Join(m.Sys, "block", disk, "*", "partition"))
	var found []span
	for _, entry := range entries {
		start, errStart := strconv.ParseInt(content(filepath.Join(filepath.Dir(entry), "start")), 10, 64)
		length, errLength := strconv.ParseInt(content(filepath.Join(filepath.Dir(entry), "size")), 10, 64)
		if errStart == nil && errLength == nil && start >= 0 && length > 0 {
			found = append(found, span{start * sector, length * sector})
		}
	}
	return found
}

// erase takes the signatures of partitions first: once the partition table is gone, nothing tells where they are. An interrupted erase can be begun again.
func (t *wipeTarget) erase(ctx context.Context) error {
	var signatures []span
	for _, p := range t.partitions {
		signatures = append(signatures, ends(p, wipedSignature)...)
	}
	edges := ends(span{0, t.size}, wipedEdge)
	if err := t.zero(ctx, signatures); err != nil {
		return fmt.Errorf("erasing the signatures of partitions: %w", err)
	}
	if err := t.Discard(); err != nil {
		return fmt.Errorf("discarding its content: %w", err)
	}
	if err := t.zero(ctx, edges); err != nil {
		return fmt.Errorf("erasing its beginning and its end: %w", err)
	}
	if err := t.Reread(); err != nil {
		return fmt.Errorf("reading its partition table again: %w", err)
	}
	return t.check(append(signatures, edges...))
}

// ends are the first and the last bytes of a part; all of it where it is short.
func ends(p span, length int64) []span {
	if p.length <= 2*length {
		return []span{p}
	}
	return []span{{p.offset, length}, {p.offset + p.length - length, length}}
}

// zero overwrites parts, and does not return before the disk has it.
func (t *wipeTarget) zero(ctx context.Context, parts []span) error {
	zeros := make([]byte, diskimage.Chunk)
	for _, p := range parts {
		for at := p.offset; at < p.offset+p.length; at += diskimage.Chunk {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if _, err := t.WriteAt(zeros[:min(diskimage.Chunk, p.offset+p.length-at)], at); err != nil {
				return err
			}
		}
	}
	return t.Flush()
}

// check reads parts from the disk: a disk that says that it wrote, and did not, is not wiped.
func (t *wipeTarget) check(parts []span) error {
	buffer, zeros := make([]byte, diskimage.Chunk), make([]byte, diskimage.Chunk)
	for _, p := range parts {
		for at := p.offset; at < p.offset+p.length; at += diskimage.Chunk {
			read := buffer[:min(diskimage.Chunk, p.offset+p.length-at)]
			if _, err := t.ReadAt(read, at); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("reading the erased areas: %w", err)
			}
			if !bytes.Equal(read, zeros[:len(read)]) {
				return fmt.Errorf("it still has content at byte %d, which was erased", at)
			}
		}
	}
	return nil
}

// openBlock opens a disk that nothing else uses.
func (m *Real) openBlock(name string) (blockDevice, error) {
	if m.open != nil {
		return m.open(name)
	}
	file, err := diskimage.OpenDisk("/dev/" + name)
	if err != nil {
		return nil, err
	}
	return kernelDevice{file}, nil
}

// kernelDevice is a disk of this machine.
type kernelDevice struct{ *os.File }

// Number implements blockDevice.
func (d kernelDevice) Number() (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &stat); err != nil {
		return "", err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", errors.New("it is no block device")
	}
	return fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)), nil
}

// Size implements blockDevice.
func (d kernelDevice) Size() (int64, error) { return d.Seek(0, io.SeekEnd) }

// Discard implements blockDevice.
func (d kernelDevice) Discard() error {
	size, err := d.Size()
	if err != nil {
		return err
	}
	all := [2]uint64{0, uint64(size)} //nolint:gosec // sizes are positive
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), unix.BLKDISCARD, uintptr(unsafe.Pointer(&all)))
	if errno != 0 && errno != unix.EOPNOTSUPP && errno != unix.ENOTTY {
		return errno
	}
	return nil
}

// Flush implements blockDevice.
func (d kernelDevice) Flush() error {
	if err := d.Sync(); err != nil {
		return err
	}
	return unix.IoctlSetInt(int(d.Fd()), unix.BLKFLSBUF, 0)
}

// Reread implements blockDevice.
func (d kernelDevice) Reread() error { return unix.IoctlSetInt(int(d.Fd()), unix.BLKRRPART, 0) }
