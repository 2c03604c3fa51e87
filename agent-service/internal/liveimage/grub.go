// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveimage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
)

// Grub is where the distribution's boot loader is: the directory of its platforms (usr/lib/grub), and the program that puts its parts together.
type Grub struct {
	Platforms, Mkimage string
}

const (
	firmwareUEFI = "x86_64-efi"
	firmwareBIOS = "i386-pc"
	// loaderPath is where firmware looks for a program on media that it does not know.
	loaderPath   = "/EFI/BOOT/BOOTX64.EFI"
	loaderFSSize = 4 << 20
	// configPath is of GRUB's configuration; the directory is its prefix.
	configPath = "/boot/grub/grub.cfg"
	grubPrefix = "/boot/grub"
)

// loader puts a loader together. Early is what it does first, empty to read the configuration in its prefix.
func (g Grub) loader(firmware, prefix, early string, modules ...string) ([]byte, error) {
	work, err := os.MkdirTemp("", "grub-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	out, config := filepath.Join(work, "out"), filepath.Join(work, "early.cfg")
	arguments := []string{"-O", firmware, "-d", filepath.Join(g.Platforms, firmware), "-p", prefix, "-o", out}
	if early != "" {
		if err := os.WriteFile(config, []byte(early), 0o600); err != nil {
			return nil, err
		}
		arguments = append(arguments, "-c", config)
	}
	if said, err := exec.Command(g.Mkimage, append(arguments, modules...)...).CombinedOutput(); err != nil { //nolint:noctx // it is what the caller named, and is quick
		return nil, fmt.Errorf("making the loader for %s: %w: %s", firmware, err, said)
	}
	return os.ReadFile(out)
}

// loaderFS is a file system with a loader, as El Torito wants it for UEFI.
func (g Grub) loaderFS(work string) ([]byte, error) {
	// The medium is found by its configuration, whatever the firmware calls it.
	loader, err := g.loader(firmwareUEFI, grubPrefix, "search --no-floppy --set=root --file /coreos/kargs.json\nconfigfile "+configPath+"\n",
		"iso9660", "fat", "part_gpt", "part_msdos", "search", "search_fs_file", "normal", "configfile", "linux", "efi_gop")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(work, "efiboot.img")
	defer func() { _ = os.Remove(path) }()
	d, err := diskfs.Create(path, loaderFSSize, diskfs.SectorSize512)
	if err != nil {
		return nil, err
	}
	fs, err := d.CreateFilesystem(disk.FilesystemSpec{FSType: filesystem.TypeFat12, VolumeLabel: "EFI", Reproducible: true})
	if err == nil {
		err = put(fs, map[string][]byte{loaderPath: loader})
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, fmt.Errorf("making the file system for UEFI: %w", err)
	}
	return os.ReadFile(path)
}

const (
	sectorSize = 512
	// bootCodeSize is the room for a program in the first sector of a disk.
	bootCodeSize = 440
	// Fields of GRUB's programs that its own installer fills in: where the first sector of the core is, and where the rest of it.
	coreField = 0x5c
	restField = sectorSize - 12
)

// bootCode is what goes into the first sector of a disk, and the core that it loads, for a core that begins at the sector at.
func (g Grub) bootCode(at uint64, prefix string, modules ...string) (first, core []byte, err error) {
	if first, err = os.ReadFile(filepath.Join(g.Platforms, firmwareBIOS, "boot.img")); err != nil {
		return nil, nil, err
	}
	if core, err = g.loader(firmwareBIOS, prefix, "", modules...); err != nil {
		return nil, nil, err
	}
	if len(first) < bootCodeSize || len(core) < sectorSize {
		return nil, nil, errors.New("this is no boot loader that can be installed")
	}
	binary.LittleEndian.PutUint64(first[coreField:], at)
	binary.LittleEndian.PutUint64(core[restField:], at+1)
	return first[:bootCodeSize], core, nil
}
