// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"go.yaml.in/yaml/v3"
)

// Program is one that users download, with what goes with it.
type Program struct {
	// Name is that of the program.
	Name string
	// Roots are directories by platform, such as darwin/arm64.
	Roots map[string]string
	// Packed is true for an archive of each directory, NAME_OS_ARCH.tar.gz, and false for the program alone, bin/NAME-OS-ARCH.
	Packed bool
}

// StagePrograms reads the programs of a directory: DIR/NAME/OS_ARCH is what users get.
func StagePrograms(dir string, packed bool) ([]Program, error) {
	images, err := Stage(dir, "")
	if err != nil {
		return nil, err
	}
	out := make([]Program, 0, len(images))
	for _, image := range images {
		out = append(out, Program{Name: image.Name, Roots: image.Roots, Packed: packed})
	}
	return out, nil
}

// write writes the files of a program below dist.
func (p Program) write(dist string) ([]Subject, error) {
	var out []Subject
	for _, platform := range sorted(p.Roots) {
		write, name := p.writeAlone, filepath.Join("bin", p.Name+"-"+strings.ReplaceAll(platform, "/", "-"))
		if p.Packed {
			write, name = p.writePacked, archive(p.Name, platform)
		}
		path := filepath.Join(dist, name)
		if err := write(p.Roots[platform], path); err != nil {
			return nil, fmt.Errorf("%s for %s: %w", p.Name, platform, err)
		}
		sum, err := checksum(path)
		if err != nil {
			return nil, err
		}
		out = append(out, Subject{filepath.ToSlash(name), v1.Hash{Algorithm: "sha256", Hex: sum}})
	}
	return out, nil
}

func archive(name, platform string) string {
	return name + "_" + strings.ReplaceAll(platform, "/", "_") + ".tar.gz"
}

func (p Program) writeAlone(root, path string) error {
	from, err := os.Open(filepath.Join(root, p.Name))
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	return create(path, 0o755, func(to io.Writer) error {
		_, err := io.Copy(to, from)
		return err
	})
}

func (Program) writePacked(root, path string) error {
	return create(path, 0o644, func(to io.Writer) error {
		zipped, err := gzip.NewWriterLevel(to, gzip.BestCompression)
		if err != nil {
			return err
		}
		if err := pack(root, zipped); err != nil {
			return err
		}
		return zipped.Close()
	})
}

func create(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // everyone may read it
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

var platformOf = regexp.MustCompile(`([\w-]+)_([a-z0-9]+)_([a-z0-9]+)\.tar\.gz$`)

// Krew fills in a manifest for krew, whose version is v0.0.0: the version of a release, and the checksums of the archives in dist. Platforms without an archive are left out.
func Krew(manifest []byte, dist, version string) ([]byte, error) {
	var plugin map[string]any
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(manifest), "v0.0.0", version)), &plugin); err != nil {
		return nil, fmt.Errorf("reading the manifest for krew: %w", err)
	}
	spec, _ := plugin["spec"].(map[string]any)
	platforms, _ := spec["platforms"].([]any)
	var with []any
	for _, one := range platforms {
		platform, _ := one.(map[string]any)
		uri, _ := platform["uri"].(string)
		name := platformOf.FindString(uri)
		sum, err := checksum(filepath.Join(dist, name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil || name == "" {
			return nil, fmt.Errorf("the manifest for krew names the archive %q: %w", uri, err)
		}
		platform["sha256"] = sum
		with = append(with, platform)
	}
	archives, err := filepath.Glob(filepath.Join(dist, "*.tar.gz"))
	if err != nil {
		return nil, err
	}
	if len(with) == 0 || len(with) != len(archives) {
		return nil, fmt.Errorf("the manifest for krew names %d of %d archives", len(with), len(archives))
	}
	spec["platforms"] = with
	return yaml.Marshal(plugin)
}
