// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package checkout finds what the repository holds: manifests and built binaries.
package checkout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Root returns the directory of the repository: the nearest one above the working directory, or above the running program, that holds go.work.
func Root() (string, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if program, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(program))
	}
	for _, start := range starts {
		for dir := start; ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("this is not inside a checkout of Muster: no go.work above the working directory or the program")
}

// Path returns the absolute path of something in the repository.
func Path(elements ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	return filepath.Join(append([]string{root}, elements...)...), nil
}

// Binary returns the path of a program in bin/. The error says how to build it.
func Binary(name string) (string, error) {
	path, err := Path("bin", name)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("bin/%s is not there: run 'make controlplane build' first", name)
	}
	return path, nil
}
