// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/liveinit"
)

const (
	bootPath      = "/boot"
	firstBootPath = bootPath + "/ignition/config.ign"
	dataPath      = "/var"
	// preparedPath says that the factory's content is whole.
	preparedPath = dataPath + "/lib/muster/prepared"
	// factoryPath has what the file system for data begins with.
	factoryPath = "/usr/share/factory/var"
	sectorSize  = 512
	// alignment of partitions, in sectors.
	alignment = 2048
)

// data mounts the partitions beside the root, on the disk that the system runs from: at the first boot it makes the one for data.
func data() error {
	root, err := mounted("/sys/dev/block", "/")
	if err != nil {
		return fmt.Errorf("finding the disk of the system: %w", err)
	}
	number, err := grow(root)
	if err != nil {
		return fmt.Errorf("making the partition for data: %w", err)
	}
	device := partitionDevice(root, number)
	if err := mountData(device); err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return fmt.Errorf("preparing %s: %w", dataPath, err)
	}
	for _, dir := range []string{"/etc", "/opt"} {
		if err := overlay(dir); err != nil {
			return err
		}
	}
	name := liveinit.Beside(liveinit.Devices, filepath.Base(root), liveinit.Label)
	if name == "" {
		return fmt.Errorf("the disk of the system has no partition %q", liveinit.Label)
	}
	boot := "/dev/" + name
	if err := unix.Mount(boot, bootPath, "vfat", unix.MS_SYNCHRONOUS|safe, "umask=0077"); err != nil {
		return fmt.Errorf("mounting %s: %w", boot, err)
	}
	return nil
}

// mounted is the device that a directory is mounted from. Numbers is where the kernel lists devices by their numbers.
func mounted(numbers, at string) (string, error) {
	var stat unix.Stat_t
	if err := unix.Stat(at, &stat); err != nil {
		return "", err
	}
	device, err := filepath.EvalSymlinks(filepath.Join(numbers, fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev))))
	if err != nil {
		return "", err
	}
	return "/dev/" + filepath.Base(device), nil
}

// grow makes a partition of what is free behind the others, if there is none yet, and returns its number.
func grow(root string) (int, error) {
	name := filepath.Base(root)
	disk, err := diskOf(liveinit.Devices, name)
	if err != nil {
		return 0, err
	}
	device, err := os.OpenFile("/dev/"+disk, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = device.Close() }()
	size, err := device.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	added, number, err := addPartition(device, size)
	if err != nil || added == nil {
		return number, err
	}
	say("the partition %d for data has %d MiB", number, added.Size>>20)
	if err := announce(device, added, number); err != nil {
		return 0, fmt.Errorf("telling the kernel of it: %w", err)
	}
	return number, nil
}

// addPartition adds the partition for data to the table of a disk; nil if it has one. The table says then how large the disk
// is, and has ids of its own: all disks that an image is written to begin with the same.
func addPartition(device *os.File, size int64) (*gpt.Partition, int, error) {
	storage := file.New(device, false)
	table, err := gpt.Read(storage, sectorSize, sectorSize)
	if err != nil {
		return nil, 0, err
	}
	var last uint64
	number := 1
	for _, p := range table.Partitions {
		if p.Name == dataLabel {
			return nil, p.Index, nil
		}
		if p.Type != gpt.Unused {
			last, number = max(last, p.End), max(number, p.Index+1)
		}
	}
	table.Resize(uint64(size) / sectorSize * sectorSize) //nolint:gosec // sizes are positive
	start := (last/alignment + 1) * alignment
	end := table.LastDataSector()
	if end < start+minimum/sectorSize {
		return nil, 0, fmt.Errorf("the disk has %d MiB behind the system, and needs %d", (max(end, start)-start)*sectorSize>>20, minimum>>20)
	}
	added := &gpt.Partition{Index: number, Start: start, End: end, Size: (end - start + 1) * sectorSize, Type: gpt.LinuxFilesystem, Name: dataLabel, GUID: uuid.NewString()}
	// Signatures of an earlier file system would be taken for ours.
	if _, err := device.WriteAt(make([]byte, 1<<20), int64(start)*sectorSize); err != nil {
		return nil, 0, err
	}
	table.GUID, table.ProtectiveMBR, table.Partitions = uuid.NewString(), true, append(table.Partitions, added)
	writable, err := storage.Writable()
	if err != nil {
		return nil, 0, err
	}
	return added, number, table.Write(writable, size)
}

// minimum is the size of a file system for data.
const minimum = 512 << 20

// diskOf is the disk that a partition is on.
func diskOf(devices, partition string) (string, error) {
	target, err := filepath.EvalSymlinks(filepath.Join(devices, partition))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(target, "partition")); err != nil {
		return "", fmt.Errorf("%s is no partition", partition)
	}
	return filepath.Base(filepath.Dir(target)), nil
}

// partitionDevice is the device of another partition on the same disk: vda2 and nvme0n1p2 have theirs by number.
func partitionDevice(of string, number int) string {
	return strings.TrimRight(of, "0123456789") + strconv.Itoa(number)
}

// announce tells the kernel of a partition on a disk that is in use (BLKPG).
func announce(device *os.File, p *gpt.Partition, number int) error {
	const add = 1
	partition := struct {
		start, length int64
		number        int32
		names         [128]byte
	}{int64(p.Start) * sectorSize, int64(p.Size), int32(number), [128]byte{}} //nolint:gosec // a disk has less
	request := struct {
		op, flags, length int32
		data              unsafe.Pointer
	}{add, 0, int32(unsafe.Sizeof(partition)), unsafe.Pointer(&partition)}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, device.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&request)))
	if errno != 0 && errno != unix.EBUSY {
		return errno
	}
	return nil
}

// mountData mounts the file system for data, which is made where there is none. One that is there is checked, never replaced.
func mountData(device string) error {
	there, err := hasExt4(device)
	if err != nil {
		return err
	}
	tool := []string{"/usr/sbin/e2fsck", "-p", device}
	if !there {
		tool = []string{"/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-L", dataLabel, "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", device}
	}
	output, err := exec.Command(tool[0], tool[1:]...).CombinedOutput() //nolint:noctx // nothing goes on without it
	var status *exec.ExitError
	// 1 and 2 say that errors were corrected.
	if errors.As(err, &status) && there && status.ExitCode() <= 2 {
		err = nil
	}
	if err != nil {
		say("%s: %v: %s", filepath.Base(tool[0]), err, strings.TrimSpace(string(output)))
	}
	if err := unix.Mount(device, dataPath, "ext4", unix.MS_NOATIME|unix.MS_NODEV, ""); err != nil {
		return fmt.Errorf("mounting %s: %w", device, err)
	}
	return nil
}

// hasExt4 looks for the magic number of the file system.
func hasExt4(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	magic := make([]byte, 2)
	if _, err := f.ReadAt(magic, 1024+56); err != nil {
		return false, err
	}
	return binary.LittleEndian.Uint16(magic) == 0xEF53, nil
}

// prepare copies the factory's content. A copy that was interrupted is made again.
func prepare() error {
	if _, err := os.Stat(preparedPath); err == nil {
		return nil
	}
	if err := copyTree(factoryPath, dataPath); err != nil {
		return err
	}
	unix.Sync()
	if err := os.MkdirAll(filepath.Dir(preparedPath), 0o755); err != nil { //nolint:gosec // world-readable
		return err
	}
	return os.WriteFile(preparedPath, nil, 0o600)
}

// copyTree copies directories and files.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		target := filepath.Join(to, relative)
		if entry.IsDir() {
			return os.MkdirAll(target, info.Mode().Perm())
		}
		return copyFile(path, target, info.Mode().Perm())
	})
}

func copyFile(from, to string, mode os.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode|0o200)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Chmod(mode), target.Close())
}

// overlay keeps changes of a directory on the file system for data.
func overlay(dir string) error {
	upper, work := dataPath+"/lib/muster/overlay"+dir, dataPath+"/lib/muster/overlay-work"+dir
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil { //nolint:gosec // world-readable
		return err
	}
	if err := unix.Mount("overlay", dir, "overlay", 0, "lowerdir="+dir+",upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mounting the overlay of %s: %w", dir, err)
	}
	return nil
}
