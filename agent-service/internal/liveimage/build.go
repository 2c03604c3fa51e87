// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package liveimage builds Muster's own live image: a kernel of the distribution, its drivers for networks and disks, live-init and the agent. It takes overlays as
// CoreOS live images do. Of the same parts it builds a small system to install.
package liveimage

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
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
	headOfConfig  = "default live\ntimeout 1\nprompt 0\nlabel live\n  kernel /images/pxeboot/vmlinuz\n  initrd /images/pxeboot/initrd.img,/images/ignition.img\n  append "
	headOfGrub    = "set gfxpayload=keep\nlinux /images/pxeboot/vmlinuz "
	tailOfGrub    = "initrd /images/pxeboot/initrd.img /images/ignition.img\nboot\n"
	loaderFSPath  = "/images/efiboot.img"
	isoSize       = 512 << 20
)

// Build writes the image to a file. Work is a directory for its files.
func Build(parts Parts, work, out string) error {
	initrd, err := ramDisk(parts, slices.Concat(virtual, real))
	if err != nil {
		return fmt.Errorf("packing the RAM disk: %w", err)
	}
	kernel, err := os.ReadFile(parts.Kernel)
	if err != nil {
		return err
	}
	isolinux, err := os.ReadFile(parts.Isolinux)
	if err != nil {
		return err
	}
	ldlinux, err := os.ReadFile(parts.Ldlinux)
	if err != nil {
		return err
	}
	loader, err := parts.Grub.loaderFS(work)
	if err != nil {
		return err
	}
	arguments, err := json.Marshal(map[string]any{"default": CommandLine, "size": argumentsSize, "files": []map[string]any{
		{"path": "isolinux/isolinux.cfg", "offset": len(headOfConfig), "end": "\n", "pad": "#"},
		{"path": strings.TrimPrefix(configPath, "/"), "offset": len(headOfGrub), "end": "\n", "pad": "#"},
	}})
	if err != nil {
		return err
	}
	area := CommandLine + "\n" + strings.Repeat("#", argumentsSize-len(CommandLine)-2) + "\n"
	for name, data := range map[string][]byte{
		"images/pxeboot/vmlinuz": kernel, "images/pxeboot/initrd.img": initrd, "images/ignition.img": make([]byte, ignitionSize),
		"isolinux/isolinux.bin": isolinux, "isolinux/ldlinux.c32": ldlinux, "isolinux/isolinux.cfg": []byte(headOfConfig + area),
		strings.TrimPrefix(loaderFSPath, "/"): loader, strings.TrimPrefix(configPath, "/"): []byte(headOfGrub + area + tailOfGrub),
		"coreos/kargs.json": arguments, "coreos/igninfo.json": []byte(`{"file": "images/ignition.img"}`),
	} {
		path := filepath.Join(work, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, data, 0o600)); err != nil {
			return err
		}
	}
	return finish(work, out)
}

func finish(work, out string) error {
	if err := os.Remove(out); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
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

func ramDisk(parts Parts, wanted []string) ([]byte, error) {
	modules, err := drivers(parts.Modules, wanted)
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
	for to, from := range map[string]string{"init": parts.Init, "usr/bin/agent": parts.Agent} {
		f, err := image.ReadFile(from, to, 0o755)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	var packed bytes.Buffer
	compressor, err := zstd.NewWriter(&packed, zstd.WithEncoderLevel(zstd.SpeedBetterCompression))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(image.WriteArchive(compressor, files), compressor.Close()); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
