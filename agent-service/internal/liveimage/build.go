// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package liveimage builds Muster's own live image: a kernel of the distribution, its drivers for networks and disks, live-init and the agent. It takes overlays as
// CoreOS live images do. Of the same parts it builds a small system to install.
package liveimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	"github.com/klauspost/compress/zstd"

	"github.com/muster-io/muster/agent-service/internal/image"
)

// Parts are what an image is built from.
type Parts struct {
	// Kernel is the file of the kernel, and Modules the directory of its drivers: lib/modules/<version>.
	Kernel, Modules string
	// Init and Agent are static programs.
	Init, Agent string
	// Isolinux is isolinux.bin and Ldlinux is ldlinux.c32, the boot loader of media for BIOS.
	Isolinux, Ldlinux string
	// Grub is the boot loader for UEFI, and of disks.
	Grub Grub
}

const (
	// CommandLine is how the kernel is started.
	CommandLine = "console=tty0 console=ttyS0,115200 panic=30"
	// argumentsSize is the room for a changed command line: isolinux reads lines of at most 2047 bytes.
	argumentsSize = 1024
	ignitionSize  = 256 << 10
	// recipeSize is the room for how the minimal form comes out of the image.
	recipeSize   = 64 << 10
	headOfGrub   = "set gfxpayload=keep\nlinux /images/pxeboot/vmlinuz "
	initrdPath   = "/images/pxeboot/initrd.img"
	rootfsPath   = "/images/pxeboot/rootfs.img"
	ignitionPath = "/images/ignition.img"
	loaderFSPath = "/images/efiboot.img"
	isoSize      = 512 << 20
)

// Build writes the image to a file. Work is a directory for its files.
func Build(parts Parts, work, out string) error {
	initrd, err := ramDisk(parts, slices.Concat(Virtual, Real), false)
	if err != nil {
		return fmt.Errorf("packing the RAM disk: %w", err)
	}
	rootfs, err := agentAlone(parts)
	if err != nil {
		return fmt.Errorf("packing the root file system: %w", err)
	}
	loader, err := parts.Grub.loaderFS(work)
	if err != nil {
		return err
	}
	common := map[string][]byte{initrdPath: initrd, ignitionPath: make([]byte, ignitionSize), loaderFSPath: loader, "/coreos/igninfo.json": []byte(`{"file": "images/ignition.img"}`)}
	for to, from := range map[string]string{"/images/pxeboot/vmlinuz": parts.Kernel, "/isolinux/isolinux.bin": parts.Isolinux, "/isolinux/ldlinux.c32": parts.Ldlinux} {
		if common[to], err = os.ReadFile(from); err != nil {
			return err
		}
	}
	minimal := maps.Clone(common)
	maps.Copy(minimal, started(initrdPath, ignitionPath))
	full := maps.Clone(common)
	maps.Copy(full, started(initrdPath, rootfsPath, ignitionPath))
	full[rootfsPath], full["/"+image.MinimalPath] = rootfs, make([]byte, recipeSize)
	small, err := iso(minimal, filepath.Join(work, "minimal"))
	if err != nil {
		return err
	}
	whole, err := iso(full, filepath.Join(work, "full"))
	if err != nil {
		return err
	}
	recipe, err := image.PackMinimal(whole, small)
	if err != nil {
		return fmt.Errorf("describing the minimal form: %w", err)
	}
	if err := image.ReplaceFile(whole, image.MinimalPath, recipe); err != nil {
		return err
	}
	return os.WriteFile(out, whole, 0o644) //nolint:gosec // world-readable
}

// BuildRAMDisk writes the RAM disk of a machine that boots over the network: init, drivers and an agent, in one archive. The kernel is a file beside it.
func BuildRAMDisk(parts Parts, out string) error {
	initrd, err := ramDisk(parts, slices.Concat(Virtual, Real), true)
	if err != nil {
		return fmt.Errorf("packing the RAM disk: %w", err)
	}
	return os.WriteFile(out, initrd, 0o644) //nolint:gosec // world-readable
}

// started are the configurations of the boot loaders for a kernel with these RAM disks, and where the kernel's command line is in them.
func started(disks ...string) map[string][]byte {
	headOfConfig := "default live\ntimeout 1\nprompt 0\nlabel live\n  kernel /images/pxeboot/vmlinuz\n  initrd " + strings.Join(disks, ",") + "\n  append "
	area := CommandLine + "\n" + strings.Repeat("#", argumentsSize-len(CommandLine)-2) + "\n"
	places := fmt.Appendf(nil, `{"default": %q, "size": %d, "files": [
  {"path": "isolinux/isolinux.cfg", "offset": %d, "end": "\n", "pad": "#"},
  {"path": %q, "offset": %d, "end": "\n", "pad": "#"}
]}`, CommandLine, argumentsSize, len(headOfConfig), strings.TrimPrefix(configPath, "/"), len(headOfGrub))
	return map[string][]byte{
		"/isolinux/isolinux.cfg": []byte(headOfConfig + area), configPath: []byte(headOfGrub + area + "initrd " + strings.Join(disks, " ") + "\nboot\n"), "/coreos/kargs.json": places,
	}
}

// iso is a bootable image of files.
func iso(files map[string][]byte, work string) ([]byte, error) {
	for name, data := range files {
		path := filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, data, 0o600)); err != nil {
			return nil, err
		}
	}
	out := work + ".iso"
	if err := finish(work, out); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}

func finish(work, out string) error {
	storage, err := file.CreateFromPath(out, isoSize)
	if err != nil {
		return err
	}
	fs, err := iso9660.Create(storage, isoSize, 0, 2048, work)
	if err != nil {
		return errors.Join(err, storage.Close())
	}
	entry := &iso9660.ElToritoEntry{Platform: iso9660.BIOS, Emulation: iso9660.NoEmulation, BootFile: "/isolinux/isolinux.bin", BootTable: true}
	entry.SetLoadSize(4)
	uefi := &iso9660.ElToritoEntry{Platform: iso9660.EFI, Emulation: iso9660.NoEmulation, BootFile: loaderFSPath}
	err = fs.Finalize(iso9660.FinalizeOptions{
		RockRidge: true, VolumeIdentifier: "MUSTER", ElTorito: &iso9660.ElTorito{BootCatalog: "/isolinux/boot.cat", Entries: []*iso9660.ElToritoEntry{entry, uefi}},
	})
	if err := errors.Join(err, storage.Close()); err != nil {
		return err
	}
	return trim(out)
}

// trim cuts off what is behind the volume.
func trim(out string) error {
	iso, err := os.OpenFile(out, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	blocks := make([]byte, 4)
	_, err = iso.ReadAt(blocks, 16*2048+80)
	if err == nil {
		err = iso.Truncate(int64(binary.LittleEndian.Uint32(blocks)) * 2048)
	}
	return errors.Join(err, iso.Close())
}

// ramDisk is what the kernel starts with. Without the agent it needs the root file system.
func ramDisk(parts Parts, wanted []string, agent bool) ([]byte, error) {
	modules, err := Drivers(parts.Modules, wanted)
	if err != nil {
		return nil, err
	}
	files := []image.File{{Path: "dev", Mode: 0o040755}}
	var list strings.Builder
	for _, m := range modules {
		f, err := image.ReadFile(m, "lib/modules/"+filepath.Base(m), 0o644)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		fmt.Fprintf(&list, "/%s\n", f.Path)
	}
	files = append(files, image.File{Path: "etc/modules", Mode: 0o644, Data: []byte(list.String())})
	programs := map[string]string{"init": parts.Init}
	if agent {
		programs[agentPath] = parts.Agent
	}
	for to, from := range programs {
		f, err := image.ReadFile(from, to, 0o755)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return Pack(files)
}

const agentPath = "usr/bin/agent"

// agentAlone is the root file system: what is not needed to fetch it.
func agentAlone(parts Parts) ([]byte, error) {
	agent, err := image.ReadFile(parts.Agent, agentPath, 0o755)
	if err != nil {
		return nil, err
	}
	return Pack([]image.File{agent})
}

// Pack returns files as a RAM disk, packed by zstd.
func Pack(files []image.File) ([]byte, error) {
	var packed bytes.Buffer
	compressor, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(image.WriteArchive(compressor, files), compressor.Close()); err != nil {
		return nil, err
	}
	// The next archive begins at a multiple of four, as the kernel requires.
	return append(packed.Bytes(), make([]byte, (4-packed.Len()%4)%4)...), nil
}
