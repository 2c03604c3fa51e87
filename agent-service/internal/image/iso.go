// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	sector = 2048
	// maxDirectory bounds how much is read of one directory: boot images have few files.
	maxDirectory = 1 << 20
)

// extent is where a file lies in an image, in bytes.
type extent struct {
	offset, length int64
}

// files lists the files of an ISO 9660 image by their path in lower case, such as "images/ignition.img".
func files(r io.ReaderAt) (map[string]extent, error) {
	descriptor := make([]byte, sector)
	if _, err := r.ReadAt(descriptor, 16*sector); err != nil {
		return nil, fmt.Errorf("reading the volume descriptor: %w", err)
	}
	if string(descriptor[1:6]) != "CD001" || descriptor[0] != 1 {
		return nil, errors.New("this is no ISO 9660 image")
	}
	found := map[string]extent{}
	if err := list(r, "", recordExtent(descriptor[156:190]), found, 0); err != nil {
		return nil, err
	}
	return found, nil
}

func list(r io.ReaderAt, prefix string, directory extent, found map[string]extent, depth int) error {
	if depth > 8 || directory.length > maxDirectory {
		return fmt.Errorf("directory %q is deeper or larger than in any boot image", prefix)
	}
	data := make([]byte, directory.length)
	if _, err := r.ReadAt(data, directory.offset); err != nil {
		return fmt.Errorf("reading directory %q: %w", prefix, err)
	}
	for at := 0; at < len(data); {
		length := int(data[at])
		if length == 0 { // records do not cross sectors
			at = (at/sector + 1) * sector
			continue
		}
		if length < 34 || at+length > len(data) || 33+int(data[at+32]) > length {
			return fmt.Errorf("directory %q is damaged", prefix)
		}
		record := data[at : at+length]
		at += length
		if name := record[33 : 33+record[32]]; len(name) == 1 && name[0] < 2 { // itself and its parent
			continue
		}
		path := prefix + recordName(record)
		if record[25]&2 == 0 {
			found[path] = recordExtent(record)
		} else if err := list(r, path+"/", recordExtent(record), found, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func recordExtent(record []byte) extent {
	return extent{offset: int64(binary.LittleEndian.Uint32(record[2:])) * sector, length: int64(binary.LittleEndian.Uint32(record[10:]))}
}

// recordName prefers the name of the Rock Ridge extension to the short one.
func recordName(record []byte) string {
	length := int(record[32])
	system := record[33+length:]
	if length%2 == 0 && len(system) > 0 {
		system = system[1:]
	}
	name := ""
	for len(system) >= 5 && system[2] >= 5 && int(system[2]) <= len(system) {
		if system[0] == 'N' && system[1] == 'M' {
			name += string(system[5:system[2]])
		}
		system = system[system[2]:]
	}
	if name == "" {
		name, _, _ = strings.Cut(string(record[33:33+length]), ";")
		name = strings.TrimSuffix(name, ".")
	}
	return strings.ToLower(name)
}
