// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveimage

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/muster-io/muster/agent-service/internal/liveinit"
)

// The disk of an installed system, in sectors: the core of the boot loader for BIOS, a file system for what is started, which is that of UEFI too, and, where the system has one, its root file system.
const (
	coreStart  = 34
	fsStart    = 2048
	fsSectors  = 64 << 11
	rootStart  = fsStart + fsSectors
	alignment  = 2048
	diskPrefix = "(,gpt2)" + grubPrefix
)

// System is what a disk starts.
type System struct {
	// Kernel is its file, and RAMDisk is packed.
	Kernel  string
	RAMDisk []byte
	// Arguments are of the kernel.
	Arguments string
	// Root is a file with the root file system, and RootLabel the name of its partition; empty for a system that runs from its RAM disk.
	Root, RootLabel string
}

// BuildDisk writes a small operating system as a disk image, packed by zstd: kernel, init and agent of the live image, which read first-boot data and report. It boots by BIOS and UEFI.
// It is what machines are installed with where nothing else is at hand: in tests and demonstrations.
func BuildDisk(parts Parts, out string) error {
	initrd, err := ramDisk(parts, Virtual, true)
	if err != nil {
		return fmt.Errorf("packing the RAM disk: %w", err)
	}
	return WriteDisk(System{Kernel: parts.Kernel, RAMDisk: initrd, Arguments: CommandLine + " " + liveinit.Installed}, parts.Grub, out)
}

// WriteDisk writes a system as a disk image, packed by zstd. It boots by BIOS and UEFI. The same system gives the same bytes.
func WriteDisk(s System, grub Grub, out string) error {
	kernel, err := os.ReadFile(s.Kernel)
	if err != nil {
		return err
	}
	loader, err := grub.loader(firmwareUEFI, diskPrefix, "", "part_gpt", "fat", "normal", "linux", "efi_gop")
	if err != nil {
		return err
	}
	first, core, err := grub.bootCode(coreStart, diskPrefix, "biosdisk", "part_gpt", "fat", "normal", "linux")
	if err != nil {
		return err
	}
	if len(core) > (fsStart-coreStart)*sectorSize {
		return fmt.Errorf("the boot loader has %d bytes, which is too much", len(core))
	}
	plain := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".plain")
	defer func() { _ = os.Remove(plain) }()
	err = fillDisk(plain, s, map[string][]byte{
		loaderPath: loader, "/boot/vmlinuz": kernel, "/boot/initrd.img": s.RAMDisk,
		configPath: []byte("set gfxpayload=keep\nlinux /boot/vmlinuz " + s.Arguments + "\ninitrd /boot/initrd.img\nboot\n"),
	})
	if err != nil {
		return fmt.Errorf("filling the disk: %w", err)
	}
	if err := bootable(plain, first, core); err != nil {
		return err
	}
	return compress(plain, out)
}

// guid is the same for the same name: images are reproducible.
func guid(name string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("muster disk image "+name)).String()
}

// epoch is when all files of a disk were made, in seconds: the first day that FAT knows.
const epoch = 315532800

func fillDisk(to string, s System, files map[string][]byte) error {
	// The file system has no other way to set its times.
	if err := os.Setenv("SOURCE_DATE_EPOCH", strconv.Itoa(epoch)); err != nil {
		return err
	}
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	partitions := []*gpt.Partition{
		{Index: 1, Start: coreStart, End: fsStart - 1, Type: gpt.BIOSBoot, Name: liveinit.CoreLabel, GUID: guid(liveinit.CoreLabel)},
		{Index: 2, Start: fsStart, End: fsStart + fsSectors - 1, Type: gpt.EFISystemPartition, Name: liveinit.Label, GUID: guid(liveinit.Label)},
	}
	end := int64(rootStart)
	if s.Root != "" {
		info, err := os.Stat(s.Root)
		if err != nil {
			return err
		}
		sectors := (info.Size() + sectorSize - 1) / sectorSize
		end += (sectors + alignment - 1) / alignment * alignment
		partitions = append(partitions, &gpt.Partition{Index: 3, Start: rootStart, End: uint64(end - 1), Type: gpt.LinuxFilesystem, Name: s.RootLabel, GUID: guid(s.RootLabel)}) //nolint:gosec // sectors of a disk
	}
	d, err := diskfs.Create(to, (end+alignment)*sectorSize, diskfs.SectorSize512)
	if err != nil {
		return err
	}
	err = d.Partition(&gpt.Table{LogicalSectorSize: sectorSize, PhysicalSectorSize: sectorSize, ProtectiveMBR: true, GUID: guid("disk"), Partitions: partitions})
	var fs filesystem.FileSystem
	if err == nil {
		fs, err = d.CreateFilesystem(disk.FilesystemSpec{Partition: 2, FSType: filesystem.TypeFat16, VolumeLabel: liveinit.Label, Reproducible: true})
	}
	if err == nil {
		err = put(fs, files)
	}
	if err == nil && s.Root != "" {
		err = putRoot(d, s.Root)
	}
	return errors.Join(err, d.Close())
}

func putRoot(d *disk.Disk, root string) error {
	from, err := os.Open(root)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := d.Backend.Writable()
	if err != nil {
		return err
	}
	_, err = io.Copy(io.NewOffsetWriter(to, rootStart*sectorSize), from)
	return err
}

// put writes files into a file system, with the directories above them.
func put(fs filesystem.FileSystem, files map[string][]byte) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := files[name]
		if err := fs.Mkdir(path.Dir(name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		f, err := fs.OpenFile(name, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return err
		}
		_, err = f.Write(content)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

func bootable(plain string, first, core []byte) error {
	f, err := os.OpenFile(plain, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(first, 0)
	_, coreErr := f.WriteAt(core, coreStart*sectorSize)
	return errors.Join(err, coreErr, f.Close())
}

func compress(plain, out string) error {
	from, err := os.Open(plain)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.Create(out)
	if err != nil {
		return err
	}
	packed, err := zstd.NewWriter(to)
	if err != nil {
		return errors.Join(err, to.Close())
	}
	_, err = io.Copy(packed, from)
	return errors.Join(err, packed.Close(), to.Close())
}
