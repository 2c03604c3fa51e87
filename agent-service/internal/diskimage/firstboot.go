// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
)

// place is where first-boot data goes: the label of a file system on the written disk, and the files in it.
type place struct {
	label string
	files []string
}

// places are those of a kind of first-boot data. The first file system that the disk has is the one: boot is that of CoreOS, OEM that of Flatcar.
var places = map[string][]place{
	"ignition":   {{"boot", []string{"ignition/config.ign"}}, {"OEM", []string{"config.ign"}}},
	"cloud-init": {{"cidata", []string{"user-data", "meta-data", "network-config"}}},
}

// putFirstBoot writes the first-boot data into the image that a disk holds. It needs neither kernel drivers nor mounts.
func putFirstBoot(device string, job Job) error {
	kind := job.Image.FirstBoot
	if kind == "" {
		kind = "ignition"
	}
	known := places[kind]
	if known == nil {
		return fmt.Errorf("first-boot data of kind %q is not known", kind)
	}
	target, err := diskfs.Open(device, diskfs.WithOpenMode(diskfs.ReadWrite))
	if err != nil {
		return fmt.Errorf("opening the written disk: %w", err)
	}
	defer func() { _ = target.Close() }()
	found, files, err := findPlace(target, known)
	if err != nil {
		return err
	}
	contents := [][]byte{job.FirstBoot, []byte("instance-id: " + job.HostID + "\nlocal-hostname: " + job.Hostname + "\n"), []byte(job.NetworkConfig)}
	for i, name := range files {
		if len(contents[i]) == 0 {
			continue
		}
		if err := putFile(found, name, contents[i]); err != nil {
			return fmt.Errorf("writing the first-boot data: %w", err)
		}
	}
	return nil
}

// findPlace finds the first of the places that a disk has. The error is about the usual one.
func findPlace(target *disk.Disk, known []place) (into filesystem.FileSystem, files []string, err error) {
	for _, place := range known {
		found, failed := labelled(target, place.label)
		if failed == nil {
			return found, place.files, nil
		}
		if err == nil {
			err = failed
		}
	}
	return nil, nil, err
}

// labelled finds a file system on the partitions of a disk.
func labelled(target *disk.Disk, label string) (filesystem.FileSystem, error) {
	table, err := target.GetPartitionTable()
	if err != nil {
		return nil, fmt.Errorf("reading the partitions of the image: %w", err)
	}
	for i := range table.GetPartitions() {
		found, err := target.GetFilesystem(i + 1)
		if err == nil && strings.EqualFold(strings.TrimSpace(found.Label()), label) {
			return found, nil
		}
	}
	return nil, fmt.Errorf("the image has no file system %q for first-boot data", label)
}

// putFile writes a file, and its directory where that is missing. The name has no slash at its beginning: the driver of ext4 takes only paths of package fs.
// That driver does not shorten a file either: the content is at least as long as what is there.
func putFile(into filesystem.FileSystem, name string, content []byte) error {
	if at := strings.LastIndex(name, "/"); at > 0 {
		if err := into.Mkdir(name[:at]); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	file, err := into.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	return errors.Join(err, file.Close())
}
