// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// libraryPath is where the distribution's loader looks for libraries.
const libraryPath = "usr/lib/x86_64-linux-gnu"

// libraries adds what the programs of a root file system are linked with, and the loader that they name.
func libraries(parts Parts, root string) error {
	added := map[string]bool{}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		if err := linked(parts.Packages, root, path, added); err != nil {
			return fmt.Errorf("%s: %w", entry.Name(), err)
		}
		return nil
	})
}

// linked adds what one file is linked with, and what that is linked with. A file that is no program needs nothing.
func linked(packages, root, path string, added map[string]bool) error {
	program, err := elf.Open(path)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = program.Close() }()
	needed, err := program.ImportedLibraries()
	if err != nil {
		return err
	}
	wanted := map[string]string{}
	for _, name := range needed {
		wanted[name] = libraryPath + "/" + name
	}
	if loader := interpreter(program); loader != "" {
		wanted[filepath.Base(loader)] = "usr/lib64/" + filepath.Base(loader)
	}
	for name, to := range wanted {
		if added[name] {
			continue
		}
		added[name] = true
		from, err := library(packages, name)
		if err != nil {
			return err
		}
		if err := copyFile(from, filepath.Join(root, to), 0o755); err != nil {
			return err
		}
		if err := linked(packages, root, from, added); err != nil {
			return err
		}
	}
	return nil
}

// interpreter is the loader that a program names; empty for a static one.
func interpreter(program *elf.File) string {
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err == nil && len(name) > 0 {
			return string(name[:len(name)-1])
		}
	}
	return ""
}

// library finds a library of a package.
func library(packages, name string) (string, error) {
	for _, dir := range []string{libraryPath, "usr/lib64"} {
		if path, err := unpacked(packages, dir+"/"+name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no package has the library %s", name)
}
