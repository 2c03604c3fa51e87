// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
)

// Paths in a live image.
const (
	ignitionInfoPath = "coreos/igninfo.json"
	argumentsPath    = "coreos/kargs.json"
	ignitionPath     = "images/ignition.img"
	kernelPath       = "images/pxeboot/vmlinuz"
	initrdPath       = "images/pxeboot/initrd.img"
	rootfsPath       = "images/pxeboot/rootfs.img"
)

// Base is a live image that overlays are put on. It is safe for concurrent use.
type Base struct {
	Version
	file      io.ReaderAt
	size      int64
	files     map[string]extent
	ignition  extent
	arguments arguments
	// minimal is Minimal, once.
	minimal func() (*Base, error)
}

// arguments says where the kernel command line stands in a live image.
type arguments struct {
	// Default is the command line of the image as it is.
	Default string
	// Size is of each area.
	Size  int64
	areas []area
}

type area struct {
	extent
	end string
	pad byte
}

// open finds, once, where an overlay goes in the image.
func open(version Version, path string) (*Base, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	var b *Base
	if err == nil {
		b, err = read(version, file, info.Size())
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("reading the live image %s: %w", version, err)
	}
	b.minimal = sync.OnceValues(b.Minimal)
	return b, nil
}

func read(version Version, file io.ReaderAt, size int64) (b *Base, err error) {
	b = &Base{Version: version, file: file, size: size}
	if b.files, err = files(file); err != nil {
		return nil, err
	}
	if b.ignition, err = b.ignitionArea(); err != nil {
		return nil, err
	}
	if b.arguments, err = b.argumentAreas(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Base) ignitionArea() (extent, error) {
	var info struct {
		File   string `json:"file"`
		Offset int64  `json:"offset"`
		Length int64  `json:"length"`
	}
	info.File = ignitionPath
	if err := b.readJSON(ignitionInfoPath, &info); err != nil {
		return extent{}, err
	}
	return b.within(info.File, info.Offset, info.Length)
}

func (b *Base) argumentAreas() (arguments, error) {
	var info struct {
		Default string `json:"default"`
		Size    int64  `json:"size"`
		Files   []struct {
			Path   string `json:"path"`
			Offset int64  `json:"offset"`
			End    string `json:"end"`
			Pad    string `json:"pad"`
		} `json:"files"`
	}
	if err := b.readJSON(argumentsPath, &info); err != nil {
		return arguments{}, err
	}
	found := arguments{Default: strings.TrimSpace(info.Default), Size: info.Size}
	for _, f := range info.Files {
		at, err := b.within(f.Path, f.Offset, info.Size)
		if err != nil {
			return arguments{}, err
		}
		a := area{extent: at, end: "\n", pad: '#'}
		if f.End != "" {
			a.end = f.End
		}
		if f.Pad != "" {
			a.pad = f.Pad[0]
		}
		found.areas = append(found.areas, a)
	}
	return found, nil
}

// readJSON leaves into alone where the image has no such file.
func (b *Base) readJSON(path string, into any) error {
	at, ok := b.files[path]
	if !ok {
		return nil
	}
	if at.length > 1<<20 {
		return fmt.Errorf("%s is too large", path)
	}
	data := make([]byte, at.length)
	if _, err := b.file.ReadAt(data, at.offset); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// within is a part of a file; without a length, all that follows the offset.
func (b *Base) within(path string, offset, length int64) (extent, error) {
	at, ok := b.files[strings.ToLower(strings.TrimPrefix(path, "/"))]
	if !ok {
		return extent{}, fmt.Errorf("there is no %s", path)
	}
	if length == 0 {
		length = at.length - offset
	}
	if offset < 0 || length <= 0 || offset+length > at.length || at.offset+at.length > b.size {
		return extent{}, fmt.Errorf("the area of %s is not inside of it", path)
	}
	return extent{offset: at.offset + offset, length: length}, nil
}

// part is a file of the image, such as the kernel.
func (b *Base) part(path string) (*io.SectionReader, bool) {
	at, ok := b.files[path]
	return io.NewSectionReader(b.file, at.offset, at.length), ok
}

// path names the image in addresses of its parts, without what means something to boot loaders.
func (b *Base) path() string { return url.PathEscape(b.Name) + "/" + url.PathEscape(b.Architecture) }
