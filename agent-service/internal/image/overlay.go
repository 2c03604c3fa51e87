// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"strings"
	"time"
)

// Source knows what is put on live images. It is asked for Describe on each request and for Overlay once for each revision.
type Source interface {
	// Describe says which overlay a key of an address means. Errors with a method StatusCode() int are answered with that status.
	Describe(ctx context.Context, key string) (Description, error)
	// Overlay renders what Describe described.
	Overlay(ctx context.Context, d Description) (Overlay, error)
}

// Description names an overlay without rendering it.
type Description struct {
	// Key is what a Remote was asked by; empty from other sources.
	Key string `json:"-"`
	// ID of the InfraEnv.
	ID string
	// Revision changes whenever the content does.
	Revision string
	// Version and Architecture choose the live image.
	Version, Architecture string
	// Minimal leaves the root file system out of the ISO: machines fetch it.
	Minimal bool
	// ModTime is when the content last changed, as far as that is known.
	ModTime time.Time
}

// Overlay is what is put on a live image.
type Overlay struct {
	// Ignition is the JSON of the ignition configuration.
	Ignition []byte
	// Files go into the initial RAM disk beside the ignition, such as a static network.
	Files []File
	// KernelArguments change the command line, in this order.
	KernelArguments []KernelArgument
}

// File is a file of an initial RAM disk.
type File struct {
	// Path without a leading slash.
	Path string
	Mode uint32
	Data []byte
}

// KernelArgument is one change of the kernel command line.
type KernelArgument struct {
	// Operation is append, replace (the first argument of that name, else it is appended) or delete (the argument, or all of that name).
	Operation string
	Value     string
}

// archive is the overlay as a part of an initial RAM disk.
func (o Overlay) archive() ([]byte, error) {
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	all := append([]File{{Path: "config.ign", Mode: 0o600, Data: o.Ignition}}, o.Files...)
	if err := WriteArchive(compressor, all); err != nil {
		return nil, err
	}
	if err := compressor.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// commandLine is what becomes of a command line.
func commandLine(line string, changes []KernelArgument) string {
	arguments := strings.Fields(line)
	for _, change := range changes {
		switch change.Operation {
		case "delete":
			arguments = without(arguments, change.Value)
		case "replace":
			arguments = replaced(arguments, change.Value)
		default:
			arguments = append(arguments, change.Value)
		}
	}
	return strings.Join(arguments, " ")
}

func without(arguments []string, value string) []string {
	var kept []string
	for _, a := range arguments {
		if name, _, _ := strings.Cut(a, "="); a != value && name != value {
			kept = append(kept, a)
		}
	}
	return kept
}

func replaced(arguments []string, value string) []string {
	name, _, _ := strings.Cut(value, "=")
	for i, a := range arguments {
		if other, _, _ := strings.Cut(a, "="); other == name {
			arguments[i] = value
			return arguments
		}
	}
	return append(arguments, value)
}

// patch replaces bytes of an image; its length never changes.
type patch struct {
	offset int64
	data   []byte
}

// TooLargeError says that an overlay does not fit into the live image.
type TooLargeError struct {
	What      string
	Size, Max int64
	// Advice is what to do.
	Advice string
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%s take %d bytes, the live image has room for %d: %s", e.What, e.Size, e.Max, e.Advice)
}

// Room is what live images have for an overlay: those of CoreOS, and ours.
const Room = 256 << 10

// spare is room for parts of an overlay that change by themselves, such as tokens.
const spare = 4 << 10

// Check says before there is a live image whether the overlay will fit into one: a TooLargeError where it will not.
func (o Overlay) Check() error {
	archive, err := o.archive()
	if err == nil && len(archive) > Room-spare {
		return tooLarge(len(archive), Room-spare)
	}
	return err
}

func tooLarge(size int, room int64) error {
	return &TooLargeError{
		What: "ignition and static network", Size: int64(size), Max: room,
		Advice: "make the override or the certificates shorter, or give some of the networks to another InfraEnv",
	}
}

// patches are the overlay as changes of the image.
func (b *Base) patches(archive []byte, changes []KernelArgument) ([]patch, error) {
	if int64(len(archive)) > b.ignition.length {
		return nil, tooLarge(len(archive), b.ignition.length)
	}
	padded := make([]byte, b.ignition.length)
	copy(padded, archive)
	all := []patch{{offset: b.ignition.offset, data: padded}}
	if len(changes) == 0 {
		return all, nil
	}
	line := commandLine(b.arguments.Default, changes)
	for _, a := range b.arguments.areas {
		room := a.length - int64(len(a.end))
		if int64(len(line)) > room {
			return nil, &TooLargeError{What: "kernel arguments", Size: int64(len(line)), Max: room, Advice: "use fewer"}
		}
		data := bytes.Repeat([]byte{a.pad}, int(a.length))
		copy(data, line+a.end)
		// A comment that is cut off must still end with its line.
		if strings.HasSuffix(a.end, "\n") {
			data[len(data)-1] = '\n'
		}
		all = append(all, patch{offset: a.offset, data: data})
	}
	if len(b.arguments.areas) == 0 {
		return nil, &TooLargeError{What: "kernel arguments", Size: int64(len(line)), Advice: "use none"}
	}
	return all, nil
}
