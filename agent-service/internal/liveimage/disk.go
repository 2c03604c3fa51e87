// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveimage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/klauspost/compress/zstd"

	"github.com/muster-io/muster/agent-service/internal/liveinit"
)

// The disk of an installed system, in sectors: the core of the boot loader for BIOS, and a file system for all the rest, which is that of UEFI too.
const (
	coreStart = 34
	fsStart   = 2048
	fsSectors = 64 << 11
	diskSize  = (fsStart + fsSectors + 2048) * sectorSize
)

// BuildDisk writes a small operating system as a disk image, packed by zstd: kernel, init and agent of the live image, which read first-boot data and report. It boots by BIOS and UEFI.
// It is what machines are installed with where nothing else is at hand: in tests and demonstrations.
func BuildDisk(parts Parts, out string) error {
	initrd, err := ramDisk(parts, virtual, true)
	if err != nil {
		return fmt.Errorf("packing the RAM disk: %w", err)
	}
	kernel, err := os.ReadFile(parts.Kernel)
	if err != nil {
		return err
	}
	const prefix = "(,gpt2)" + grubPrefix
	loader, err := parts.Grub.loader(firmwareUEFI, prefix, "", "part_gpt", "fat", "normal", "linux", "efi_gop")
	if err != nil {
		return err
	}
	first, core, err := parts.Grub.bootCode(coreStart, prefix, "biosdisk", "part_gpt", "fat", "normal", "linux")
	if err != nil {
		return err
	}
	if len(core) > (fsStart-coreStart)*sectorSize {
		return fmt.Errorf("the boot loader has %d bytes, which is too much", len(core))
	}
	plain := filepath.Join(filepath.Dir(out), "."+filepath.Base(out)+".plain")
	defer func() { _ = os.Remove(plain) }()
	err = fillDisk(plain, map[string][]byte{
		loaderPath: loader, "/boot/vmlinuz": kernel, "/boot/initrd.img": initrd,
		configPath: []byte("set gfxpayload=keep\nlinux /boot/vmlinuz " + CommandLine + " " + liveinit.Installed + "\ninitrd /boot/initrd.img\nboot\n"),
	})
	if err != nil {
		return fmt.Errorf("filling the disk: %w", err)
	}
	if err := bootable(plain, first, core); err != nil {
		return err
	}
	return compress(plain, out)
}

func fillDisk(to string, files map[string][]byte) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	d, err := diskfs.Create(to, diskSize, diskfs.SectorSize512)
	if err != nil {
		return err
	}
	err = d.Partition(&gpt.Table{LogicalSectorSize: sectorSize, PhysicalSectorSize: sectorSize, ProtectiveMBR: true, Partitions: []*gpt.Partition{
		{Index: 1, Start: coreStart, End: fsStart - 1, Type: gpt.BIOSBoot, Name: "core"},
		{Index: 2, Start: fsStart, End: fsStart + fsSectors - 1, Type: gpt.EFISystemPartition, Name: liveinit.Label},
	}})
	var fs filesystem.FileSystem
	if err == nil {
		fs, err = d.CreateFilesystem(disk.FilesystemSpec{Partition: 2, FSType: filesystem.TypeFat16, VolumeLabel: liveinit.Label, Reproducible: true})
	}
	if err == nil {
		err = put(fs, files)
	}
	return errors.Join(err, d.Close())
}

// put writes files into a file system, with the directories above them.
func put(fs filesystem.FileSystem, files map[string][]byte) error {
	for name, content := range files {
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
