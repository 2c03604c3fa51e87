// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveimage

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// Virtual are drivers for networks and disks of virtual machines, and Real those for common real ones beside.
var (
	Virtual = []string{"virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi", "e1000", "e1000e", "vmxnet3", "ahci", "ata_piix", "nvme", "sd_mod", "vfat", "nls_cp437", "nls_ascii"}
	Real    = []string{
		"igb", "igc", "ixgbe", "i40e", "ice", "tg3", "bnxt_en", "mlx5_core", "r8169", "8021q", "bonding", "sr_mod", "megaraid_sas", "mpt3sas", "usb_storage", "xhci_pci", "ehci_pci",
	}
)

// Drivers are the files of the wanted modules and of those that they need, each after what it needs. Modules that the kernel has built in are left out.
func Drivers(directory string, wanted []string) ([]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(path), ".ko"); ok {
			files[strings.ReplaceAll(name, "-", "_")] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no drivers in %s", directory)
	}
	var ordered []string
	added := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		path := files[name]
		if path == "" || added[name] {
			return nil
		}
		added[name] = true
		needed, err := depends(path)
		if err != nil {
			return err
		}
		for _, other := range needed {
			if err := add(strings.ReplaceAll(other, "-", "_")); err != nil {
				return err
			}
		}
		ordered = append(ordered, path)
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// depends reads what a module says that it needs.
func depends(path string) ([]string, error) {
	file, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the driver %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	section := file.Section(".modinfo")
	if section == nil {
		return nil, nil
	}
	data, err := section.Data()
	if err != nil {
		return nil, err
	}
	for line := range bytes.SplitSeq(data, []byte{0}) {
		if list, ok := strings.CutPrefix(string(line), "depends="); ok && list != "" {
			return strings.Split(list, ","), nil
		}
	}
	return nil, nil
}
