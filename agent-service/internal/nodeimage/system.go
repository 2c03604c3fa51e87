// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-io/muster/agent-service/internal/liveimage"
)

// modules adds drivers, what they need, the list of those that are loaded at the start, and what modprobe reads.
func modules(parts Parts, root string) error {
	early := slices.Concat(liveimage.Virtual, liveimage.Real, loaded)
	later, err := below(parts.Modules, available)
	if err != nil {
		return err
	}
	all, err := liveimage.Drivers(parts.Modules, slices.Concat(early, later))
	if err != nil {
		return err
	}
	version := filepath.Base(parts.Modules)
	for _, m := range all {
		relative, err := filepath.Rel(parts.Modules, m)
		if err != nil {
			return err
		}
		if err := copyFile(m, filepath.Join(root, "usr/lib/modules", version, relative), 0o644); err != nil {
			return err
		}
	}
	first, err := liveimage.Drivers(parts.Modules, early)
	if err != nil {
		return err
	}
	var list strings.Builder
	for _, m := range first {
		relative, err := filepath.Rel(parts.Modules, m)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "/usr/lib/modules/%s/%s\n", version, relative)
	}
	if err := os.WriteFile(filepath.Join(root, "usr/lib/muster/modules"), []byte(list.String()), 0o644); err != nil { //nolint:gosec // as in any system
		return err
	}
	return depmod(parts, root, version)
}

// below are the names of drivers in directories.
func below(modules string, directories []string) ([]string, error) {
	var names []string
	for _, dir := range directories {
		err := filepath.WalkDir(filepath.Join(modules, dir), func(path string, _ fs.DirEntry, err error) error {
			if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
				names = append(names, strings.ReplaceAll(name, "-", "_"))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// depmod has the program of the packages write the dependencies of drivers.
func depmod(parts Parts, root, version string) error {
	for _, name := range []string{"modules.builtin", "modules.builtin.modinfo", "modules.order"} {
		if err := copyFile(filepath.Join(parts.Modules, name), filepath.Join(root, "usr/lib/modules", version, name), 0o644); err != nil {
			return err
		}
	}
	program, err := unpacked(parts.Packages, "usr/bin/kmod")
	if err != nil {
		return err
	}
	command := exec.Command(program, "-b", root, version) //nolint:noctx // it is what the caller named, and is quick
	command.Args[0] = "depmod"
	command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(parts.Packages, "lib/x86_64-linux-gnu")+":"+filepath.Join(parts.Packages, libraryPath))
	if said, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("writing the dependencies of drivers: %w: %s", err, said)
	}
	return nil
}

// containerdConfig is containerd's; the first value is the image of pods' sandboxes, the second more of the CRI's network.
const containerdConfig = `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = -999
disabled_plugins = [
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs",
  "io.containerd.snapshotter.v1.zfs", "io.containerd.differ.v1.erofs", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
]

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = %q

[plugins."io.containerd.cri.v1.images".registry]
config_path = "/etc/containerd/certs.d"

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"
%s
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
`

// networkTemplate is the network of pods on a node; containerd fills in the node's range when the kubelet tells it. The program
// pod-network masquerades, as the plugin would do it between nodes, too.
const networkTemplate = `{"cniVersion": "1.0.0", "name": "muster", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
            "routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}]}},
  {"type": "portmap", "backend": "nftables", "capabilities": {"portMappings": true}}
]}
`

// configure writes the files of the system that are the same on all machines.
func configure(parts Parts, root string) error {
	certificates, err := authorities(parts.Packages)
	if err != nil {
		return err
	}
	const template = "usr/share/muster/cni.conflist.template"
	for name, content := range map[string][]byte{
		"etc/passwd": []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\n"), "etc/group": []byte("root:x:0:\nnogroup:x:65534:\n"),
		"etc/nsswitch.conf": []byte("hosts: files dns\n"), "etc/hosts": []byte("127.0.0.1 localhost\n::1 localhost\n"),
		"etc/os-release":                           []byte("NAME=Muster\nID=muster\nPRETTY_NAME=\"Muster node image\"\n"),
		"etc/ssl/certs/ca-certificates.crt":        certificates,
		"usr/share/muster/ca-certificates.crt":     certificates,
		"usr/share/muster/containerd.toml":         fmt.Appendf(nil, containerdConfig, parts.Sandbox, ""),
		"usr/share/muster/containerd-network.toml": fmt.Appendf(nil, containerdConfig, parts.Sandbox, fmt.Sprintf("conf_template = %q\n", "/"+template)),
		template: []byte(networkTemplate),
	} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil { //nolint:gosec // as in any system
			return err
		}
	}
	return nil
}

// authorities are the certificates that the distribution trusts.
func authorities(packages string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(packages, "usr/share/ca-certificates/mozilla/*.crt"))
	if err == nil && len(files) == 0 {
		err = errors.New("no package has certificates of authorities")
	}
	var all bytes.Buffer
	for _, path := range files {
		content, readErr := os.ReadFile(path)
		if readErr != nil {
			return nil, readErr
		}
		all.Write(content)
	}
	return all.Bytes(), err
}

// preload puts the content store where the first boot copies it from.
func preload(parts Parts, root string) error {
	to := filepath.Join(root, "usr/share/factory/var/lib/containerd")
	return filepath.WalkDir(parts.Store, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(parts.Store, path)
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
