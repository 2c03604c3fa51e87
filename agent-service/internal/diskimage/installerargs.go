// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/filesystem"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
)

// entryDirs are where entries of the boot loader are: that of ostree is a link to one of two, which the driver does not follow.
var entryDirs = []string{"loader/entries", "loader.0/entries", "loader.1/entries"}

// connections is where NetworkManager keeps those of the discovery system.
const connections = "/etc/NetworkManager/system-connections"

// firstBootNetwork is where CoreOS looks for connections at its first boot.
const firstBootNetwork = "coreos-firstboot-network"

// customize changes the image that a disk holds as the installer arguments say. Profiles of connections are in a directory.
func customize(device string, c agentproto.Customization, directory string) (err error) {
	if len(c.AppendedKargs) == 0 && len(c.DeletedKargs) == 0 && !c.CopyNetwork {
		return nil
	}
	target, err := diskfs.Open(device, diskfs.WithOpenMode(diskfs.ReadWrite))
	if err != nil {
		return fmt.Errorf("opening the written disk: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()
	boot, err := labelled(target, "boot")
	if err != nil {
		return err
	}
	if len(c.AppendedKargs) > 0 || len(c.DeletedKargs) > 0 {
		if err := changeEntries(boot, c); err != nil {
			return err
		}
	}
	if !c.CopyNetwork {
		return nil
	}
	profiles, err := filepath.Glob(filepath.Join(directory, "*.nmconnection"))
	if err != nil {
		return fmt.Errorf("looking for connections: %w", err)
	}
	for _, profile := range profiles {
		content, err := os.ReadFile(profile)
		if err != nil {
			return fmt.Errorf("reading a connection: %w", err)
		}
		if err := putFile(boot, path.Join(firstBootNetwork, filepath.Base(profile)), content); err != nil {
			return fmt.Errorf("copying a connection: %w", err)
		}
	}
	return nil
}

// changeEntries changes the kernel arguments of all entries of the boot loader.
func changeEntries(boot filesystem.FileSystem, c agentproto.Customization) error {
	changed := 0
	for _, dir := range entryDirs {
		entries, err := boot.ReadDir(dir)
		if err != nil {
			continue // the image has another one
		}
		for _, entry := range entries {
			if !strings.HasSuffix(entry.Name(), ".conf") {
				continue
			}
			name := path.Join(dir, entry.Name())
			content, err := fs.ReadFile(boot, name)
			if err != nil {
				return fmt.Errorf("reading an entry of the boot loader: %w", err)
			}
			after := changeEntry(string(content), c)
			after += strings.Repeat("\n", max(0, len(content)-len(after))) // files are not shortened, and empty lines have no meaning
			if err := putFile(boot, name, []byte(after)); err != nil {
				return fmt.Errorf("writing an entry of the boot loader: %w", err)
			}
			changed++
		}
	}
	if changed == 0 {
		return errors.New("the image has no entries of a boot loader: its kernel arguments cannot be changed by installer arguments")
	}
	return nil
}

func changeEntry(entry string, c agentproto.Customization) string {
	lines := strings.Split(entry, "\n")
	for i, line := range lines {
		options, is := strings.CutPrefix(line, "options ")
		if !is {
			continue
		}
		kept := slices.DeleteFunc(strings.Fields(options), func(argument string) bool { return slices.Contains(c.DeletedKargs, argument) })
		lines[i] = "options " + strings.Join(append(kept, c.AppendedKargs...), " ")
	}
	return strings.Join(lines, "\n")
}
