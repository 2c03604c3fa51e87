// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command live-image builds Muster's own live image out of its parts.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/muster-io/muster/agent-service/internal/liveimage"
)

func main() {
	var parts liveimage.Parts
	flag.StringVar(&parts.Kernel, "kernel", "", "kernel")
	flag.StringVar(&parts.Modules, "modules", "", "directory of the kernel's drivers")
	flag.StringVar(&parts.Init, "init", "", "static live-init")
	flag.StringVar(&parts.Agent, "agent", "", "static agent")
	flag.StringVar(&parts.Isolinux, "isolinux", "", "isolinux.bin")
	flag.StringVar(&parts.Ldlinux, "ldlinux", "", "ldlinux.c32")
	flag.StringVar(&parts.Grub.Platforms, "grub", "", "directory of GRUB's platforms")
	flag.StringVar(&parts.Grub.Mkimage, "grub-mkimage", "", "program that makes GRUB's loaders")
	out := flag.String("out", "live.iso", "image to write")
	disk := flag.String("disk", "", "disk image of a small system to install, packed by zstd; empty for none")
	ramdisk := flag.String("ramdisk", "", "RAM disk to write for machines that boot over the network, in the place of an image; empty for none")
	flag.Parse()
	var err error
	if *ramdisk != "" {
		err = liveimage.BuildRAMDisk(parts, *ramdisk)
	} else {
		err = run(parts, *out, *disk)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "live-image:", err)
		os.Exit(1)
	}
}

func run(parts liveimage.Parts, out, disk string) error {
	work, err := os.MkdirTemp("", "live-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := liveimage.Build(parts, work, out); err != nil || disk == "" {
		return err
	}
	return liveimage.BuildDisk(parts, disk)
}
