// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

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
)

// customization is what the installer arguments of a host ask for.
type customization struct {
	// appended are kernel arguments that the installed system gets, and deleted those that it loses.
	appended, deleted []string
	// copyNetwork gives the first boot the connections that NetworkManager has in the discovery system.
	copyNetwork bool
}

// readInstallerArgs reads those arguments of coreos-installer that make sense for an image that is written whole. Others are refused, before the disk is written.
func readInstallerArgs(args []string) (customization, error) {
	var c customization
	for len(args) > 0 {
		name, value, joined := strings.Cut(args[0], "=")
		args = args[1:]
		var into *[]string
		switch name {
		case "-n", "--copy-network":
			c.copyNetwork = true
			continue
		case "--append-karg":
			into = &c.appended
		case "--delete-karg":
			into = &c.deleted
		default:
			return c, fmt.Errorf("installer argument %q has no meaning for this agent: write --append-karg, --delete-karg or --copy-network", name)
		}
		if !joined {
			if len(args) == 0 {
				return c, fmt.Errorf("installer argument %s has no value", name)
			}
			value, args = args[0], args[1:]
		}
		if value == "" || strings.ContainsAny(value, "\r\n") {
			return c, fmt.Errorf("installer argument %s has an empty value or a line break", name)
		}
		*into = append(*into, value)
	}
	return c, nil
}

// entryDirs are where entries of the boot loader are: that of ostree is a link to one of two, which the driver does not follow.
var entryDirs = []string{"loader/entries", "loader.0/entries", "loader.1/entries"}

// connections is where NetworkManager keeps those of the discovery system.
const connections = "/etc/NetworkManager/system-connections"

// firstBootNetwork is where CoreOS looks for connections at its first boot.
const firstBootNetwork = "coreos-firstboot-network"

// customize changes the image that a disk holds as the installer arguments say. Profiles of connections are in a directory.
func customize(device string, c customization, directory string) (err error) {
	if len(c.appended) == 0 && len(c.deleted) == 0 && !c.copyNetwork {
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
	if len(c.appended) > 0 || len(c.deleted) > 0 {
		if err := c.changeEntries(boot); err != nil {
			return err
		}
	}
	if !c.copyNetwork {
		return nil
	}
	profiles, err := filepath.Glob(filepath.Join(directory, "*.nmconnection"))
	if err != nil {
		return fmt.Errorf("looking for connections: %w", err)
	}
	for _, profile := range profiles {
		content, err := os.ReadFile(profile) //nolint:gosec // of the directory above
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
func (c customization) changeEntries(boot filesystem.FileSystem) error {
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
			after := c.changeEntry(string(content))
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

func (c customization) changeEntry(entry string) string {
	lines := strings.Split(entry, "\n")
	for i, line := range lines {
		options, is := strings.CutPrefix(line, "options ")
		if !is {
			continue
		}
		kept := slices.DeleteFunc(strings.Fields(options), func(argument string) bool { return slices.Contains(c.deleted, argument) })
		lines[i] = "options " + strings.Join(append(kept, c.appended...), " ")
	}
	return strings.Join(lines, "\n")
}
