// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeimage builds the node image: a disk with a kernel, a RAM disk and a read-only root file system, made of
// unpacked packages of the distribution and of programs that were built for it. The same parts give the same bytes.
package nodeimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/image"
	"github.com/muster-io/muster/agent-service/internal/liveimage"
	"github.com/muster-io/muster/agent-service/internal/nodeinit"
)

// Parts are what an image is built from.
type Parts struct {
	// Packages is the directory into which packages of the distribution were unpacked.
	Packages string
	// Kernel is the file of the kernel, and Modules the directory of its drivers: lib/modules/<version>.
	Kernel, Modules string
	// Init, Agent and PodNetwork are static programs.
	Init, Agent, PodNetwork string
	// Programs has kubelet, kube-proxy, containerd and containerd-shim-runc-v2, CNI network plugins, and ControlPlane the programs of a control plane; empty for an image that runs none.
	Programs, CNI, ControlPlane string
	// Store is the directory of a content store of containerd with images, Sandbox the name of that of pods' sandboxes.
	Store, Sandbox string
	// Mksquashfs is the program that makes the root file system, and Grub the boot loader.
	Mksquashfs string
	Grub       liveimage.Grub
}

// Programs of packages, where the image has them.
var packaged = []string{"usr/sbin/runc", "usr/sbin/nft", "usr/sbin/mke2fs", "usr/sbin/e2fsck", "usr/bin/mount", "usr/bin/umount", "usr/bin/kmod"}

var (
	built = []string{"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2"}
	cni   = []string{"bridge", "host-local", "loopback", "portmap"}
)

// loaded are drivers that are loaded at the start, beside those for disks and networks.
var loaded = []string{
	"squashfs", "overlay", "ext4", "crc32c_generic", "br_netfilter", "veth", "nf_tables", "nft_chain_nat", "nft_masq", "nft_nat", "nft_redir", "nft_ct", "nft_reject_inet", "nft_fib_inet",
	"nft_numgen", "nft_hash", "nft_limit", "nft_log", "nft_compat", "xt_comment", "xt_mark", "button", "evdev", "virtio_rng",
}

// available are directories of drivers that programs in the cluster ask for.
var available = []string{
	"kernel/net/netfilter", "kernel/net/ipv4", "kernel/net/ipv6", "kernel/net/bridge", "kernel/net/sched", "kernel/drivers/net/vxlan", "kernel/drivers/net/wireguard", "kernel/drivers/net/bonding",
	"kernel/drivers/net/ipvlan", "kernel/fs/nfs", "kernel/fs/fuse", "kernel/fs/xfs",
}

// Build writes the image, packed by zstd, to a file. Work is a directory for its files.
func Build(parts Parts, work, out string) error {
	root := filepath.Join(work, "root")
	if err := assemble(parts, root); err != nil {
		return fmt.Errorf("assembling the root file system: %w", err)
	}
	squashed := filepath.Join(work, "root.squashfs")
	if err := squash(parts.Mksquashfs, root, squashed); err != nil {
		return err
	}
	ramDisk, err := ramDisk(parts)
	if err != nil {
		return fmt.Errorf("packing the RAM disk: %w", err)
	}
	return liveimage.WriteDisk(liveimage.System{
		Kernel: parts.Kernel, RAMDisk: ramDisk, Arguments: liveimage.CommandLine + " quiet", Root: squashed, RootLabel: nodeinit.RootLabel,
	}, parts.Grub, out)
}

// squash makes a read-only file system of a directory.
func squash(program, root, out string) error {
	command := exec.Command(program, root, out, "-comp", "zstd", "-Xcompression-level", "9", "-b", "1M", "-all-root", "-all-time", "0", "-mkfs-time", "0", //nolint:noctx // it is what the caller named
		"-no-xattrs", "-no-exports", "-noappend", "-no-progress", "-quiet")
	command.Env = withoutEpoch(os.Environ())
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("making the root file system: %w: %s", err, said)
	}
	return nil
}

// withoutEpoch leaves out what contradicts the times that are stated.
func withoutEpoch(environment []string) []string {
	return slices.DeleteFunc(environment, func(v string) bool { return strings.HasPrefix(v, "SOURCE_DATE_EPOCH=") })
}

// ramDisk finds the root file system.
func ramDisk(parts Parts) ([]byte, error) {
	modules, err := liveimage.Drivers(parts.Modules, slices.Concat(liveimage.Virtual, liveimage.Real, []string{"squashfs"}))
	if err != nil {
		return nil, err
	}
	files := []image.File{{Path: "dev", Mode: 0o040755}, {Path: "proc", Mode: 0o040755}, {Path: "sys", Mode: 0o040755}}
	var list strings.Builder
	for _, m := range modules {
		if network(m) {
			continue
		}
		f, err := image.ReadFile(m, "lib/modules/"+filepath.Base(m), 0o644)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		fmt.Fprintf(&list, "/%s\n", f.Path)
	}
	initProgram, err := image.ReadFile(parts.Init, "init", 0o755)
	if err != nil {
		return nil, err
	}
	return liveimage.Pack(append(files, initProgram, image.File{Path: "usr/lib/muster/modules", Mode: 0o644, Data: []byte(list.String())}))
}

// network is true for drivers that a RAM disk with its root on a disk does without.
func network(module string) bool { return strings.Contains(module, "/drivers/net/") }

// assemble makes the directory that becomes the root file system.
func assemble(parts Parts, root string) error {
	for _, step := range []func(Parts, string) error{skeleton, programs, libraries, modules, configure, preload} {
		if err := step(parts, root); err != nil {
			return err
		}
	}
	return nil
}

// skeleton has the directories that are mounted on, and the merged /usr of the distribution.
func skeleton(_ Parts, root string) error {
	for _, dir := range []string{
		"boot", "dev", "etc/cni/net.d", "etc/containerd/certs.d", "etc/kubernetes", "etc/ssl/certs", "mnt", "opt/cni/bin", "proc", "root", "run", "sys", "tmp", "usr/bin", "usr/sbin", "usr/lib64",
		libraryPath, "usr/lib/muster", "usr/share/muster", "usr/share/factory/var/log", "usr/share/factory/var/lib/kubelet", "usr/share/factory/var/tmp", "var",
	} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil { //nolint:gosec // as in any system
			return err
		}
	}
	for name, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "etc/mtab": "/proc/self/mounts"} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return nil
}

// programs are those of packages, those that were built, and links to programs with several names.
func programs(parts Parts, root string) error {
	from := map[string]string{"usr/sbin/node-init": parts.Init, "usr/bin/agent": parts.Agent, "usr/bin/pod-network": parts.PodNetwork}
	for _, name := range packaged {
		path, err := unpacked(parts.Packages, name)
		if err != nil {
			return err
		}
		from[name] = path
	}
	for _, name := range built {
		from["usr/bin/"+name] = filepath.Join(parts.Programs, name)
	}
	if parts.ControlPlane != "" {
		for _, name := range controlplane.Programs() {
			from["usr/bin/"+name] = filepath.Join(parts.ControlPlane, name)
		}
	}
	for _, name := range cni {
		from["opt/cni/bin/"+name] = filepath.Join(parts.CNI, name)
	}
	for to, path := range from {
		if err := copyFile(path, filepath.Join(root, to), 0o755); err != nil {
			return err
		}
	}
	return os.Symlink("../bin/kmod", filepath.Join(root, "usr/sbin/modprobe"))
}

// unpacked finds a file of a package, which may have it outside of /usr.
func unpacked(packages, name string) (string, error) {
	for _, candidate := range []string{name, strings.TrimPrefix(name, "usr/")} {
		path, err := filepath.EvalSymlinks(filepath.Join(packages, candidate))
		if err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no package has %s", name)
}

func copyFile(from, to string, mode fs.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, mode)) //nolint:gosec // as in any system
}
