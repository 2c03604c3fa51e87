// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command node-image builds the node image out of its parts.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/muster-io/muster/agent-service/internal/nodeimage"
)

func main() {
	var parts nodeimage.Parts
	flag.StringVar(&parts.Packages, "packages", "", "directory of unpacked packages")
	flag.StringVar(&parts.Kernel, "kernel", "", "kernel")
	flag.StringVar(&parts.Modules, "modules", "", "directory of the kernel's drivers")
	flag.StringVar(&parts.Init, "init", "", "static node-init")
	flag.StringVar(&parts.Agent, "agent", "", "static agent")
	flag.StringVar(&parts.PodNetwork, "pod-network", "", "static pod-network")
	flag.StringVar(&parts.Programs, "programs", "", "directory of kubelet, kube-proxy and containerd")
	flag.StringVar(&parts.ControlPlane, "control-plane", "", "directory of etcd, kube-apiserver, kube-controller-manager and kube-scheduler; empty for an image that runs no control plane")
	flag.StringVar(&parts.CNI, "cni", "", "directory of network plugins")
	flag.StringVar(&parts.Store, "store", "", "directory with the content store and the database of containerd")
	flag.StringVar(&parts.Sandbox, "sandbox", "", "image of pods' sandboxes in the content store")
	flag.StringVar(&parts.Mksquashfs, "mksquashfs", "mksquashfs", "program that makes the root file system")
	flag.StringVar(&parts.Grub.Platforms, "grub", "", "directory of GRUB's platforms")
	flag.StringVar(&parts.Grub.Mkimage, "grub-mkimage", "", "program that makes GRUB's loaders")
	out := flag.String("out", "node.img.zst", "image to write, packed by zstd")
	flag.Parse()
	if err := run(parts, *out); err != nil {
		fmt.Fprintln(os.Stderr, "node-image:", err)
		os.Exit(1)
	}
}

func run(parts nodeimage.Parts, out string) error {
	work, err := os.MkdirTemp("", "node-image-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	return nodeimage.Build(parts, work, out)
}
