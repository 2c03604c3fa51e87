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
	out := flag.String("out", "live.iso", "image to write")
	flag.Parse()
	if err := run(parts, *out); err != nil {
		fmt.Fprintln(os.Stderr, "live-image:", err)
		os.Exit(1)
	}
}

func run(parts liveimage.Parts, out string) error {
	work, err := os.MkdirTemp("", "live-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	return liveimage.Build(parts, work, out)
}
