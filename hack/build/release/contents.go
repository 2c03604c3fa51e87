// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/mod/module"
)

// Package is something that is inside an image: a Go module, or a package of Debian.
type Package struct {
	// Name is a module path, or the name of a Debian package.
	Name string
	// Version is empty for modules of this repository.
	Version string
	// Sum is the hash of a Go module as in go.sum; empty for others.
	Sum string
	// URL is a package URL as of github.com/package-url/purl-spec.
	URL string
	// Licences are files with the texts of its licences.
	Licences []string
}

// File is a file of an image.
type File struct {
	// Name is the path in the image, with a slash at the beginning.
	Name   string
	SHA256 string
}

// Contents is what one file system of an image holds.
type Contents struct {
	Files    []File
	Packages []Package
}

// Sources say where licences are found.
type Sources struct {
	// Modules is the module cache, GOMODCACHE.
	Modules string
	// Debian is a directory into which the Debian packages of the live image were unpacked; empty if there is none.
	Debian string
	// Goroot is that of the toolchain, whose library is in every program.
	Goroot string
}

// Read lists what a staged file system holds. Go programs say themselves which modules they were linked from; a live image holds packages of
// Debian.
func (s Sources) Read(root string) (Contents, error) {
	var out Contents
	packages := map[string]Package{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		sum, err := checksum(path)
		if err != nil {
			return err
		}
		out.Files = append(out.Files, File{"/" + filepath.ToSlash(name), sum})
		found, err := s.inFile(path)
		for _, p := range found {
			packages[p.Name+"@"+p.Version] = p
		}
		return err
	})
	if err != nil {
		return Contents{}, fmt.Errorf("listing %s: %w", root, err)
	}
	for _, key := range sorted(packages) {
		out.Packages = append(out.Packages, packages[key])
	}
	return out, nil
}

func (s Sources) inFile(path string) ([]Package, error) {
	if strings.HasSuffix(path, ".iso") {
		return s.debian()
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, nil //nolint:nilerr // not a Go program
	}
	version := strings.TrimPrefix(info.GoVersion, "go")
	out := []Package{{Name: "stdlib", Version: version, URL: "pkg:golang/stdlib@" + version, Licences: texts(s.Goroot)}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version == "" || m.Version == "(devel)" || strings.HasPrefix(m.Path, ".") {
			continue // of this repository
		}
		escaped, err := module.EscapePath(m.Path)
		if err != nil {
			return nil, err
		}
		found := texts(filepath.Join(s.Modules, escaped+"@"+m.Version))
		if len(found) == 0 {
			return nil, fmt.Errorf("the module %s %s has no text of a licence in %s", m.Path, m.Version, s.Modules)
		}
		out = append(out, Package{m.Path, m.Version, m.Sum, "pkg:golang/" + m.Path + "@" + m.Version, found})
	}
	return out, nil
}

var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|unlicense|patents)([.-].*)?$`)

// texts are the licences at the top of a directory.
func texts(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []string
	for _, entry := range entries {
		if !entry.IsDir() && licence.MatchString(entry.Name()) {
			out = append(out, filepath.Join(dir, entry.Name()))
		}
	}
	return out
}

// debian lists the packages that the live image is built from: each has a directory of documentation.
func (s Sources) debian() ([]Package, error) {
	if s.Debian == "" {
		return nil, errors.New("there is a live image, and it is not known what it is built from")
	}
	found, err := filepath.Glob(filepath.Join(s.Debian, "usr", "share", "doc", "*", "copyright"))
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("%s holds no packages of Debian (%w)", s.Debian, cmp.Or(err, fs.ErrNotExist))
	}
	var out []Package
	for _, file := range found {
		name := filepath.Base(filepath.Dir(file))
		version := debianVersion(filepath.Dir(file))
		licences := []string{file}
		common := regexp.MustCompile(`/usr/share/common-licenses/[A-Za-z0-9.-]*[A-Za-z0-9]`)
		if text, err := os.ReadFile(file); err == nil { // what it refers to is part of it
			for _, path := range slices.Compact(slices.Sorted(slices.Values(common.FindAllString(string(text), -1)))) {
				if _, err := os.Stat(path); err == nil { //nolint:gosec // the pattern holds it below common-licenses
					licences = append(licences, path)
				}
			}
		}
		out = append(out, Package{name, version, "", "pkg:deb/debian/" + name + "@" + version, licences})
	}
	return out, nil
}

var changelog = regexp.MustCompile(`\(([^)]+)\)`)

// debianVersion is that of the newest entry of a package's changelog, or unknown.
func debianVersion(dir string) string {
	for _, name := range []string{"changelog.Debian.gz", "changelog.gz"} {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		defer func() { _ = file.Close() }()
		text, err := gzip.NewReader(file)
		if err != nil {
			continue
		}
		head := make([]byte, 256)
		n, _ := io.ReadFull(text, head)
		if found := changelog.FindSubmatch(head[:n]); found != nil {
			return string(found[1])
		}
	}
	return "unknown"
}

// Offer is what has to be said beside programs whose licence asks for their sources.
const Offer = `Sources
=======
The live image holds a kernel and boot loaders of Debian, some of them under the GNU General Public License, version 2 or 3. They are not
changed. Their complete sources are the Debian source packages of the versions that are listed in LICENCES.txt, which
https://snapshot.debian.org keeps, and which "apt-get source PACKAGE=VERSION" downloads. For three years after this release the Muster
authors give a copy of these sources to everyone who asks for it, at no more than the cost of the copy: write to the address in SECURITY.md.
`

// WriteLicences copies the texts of the licences of all packages below dir, with a list and the offer of sources.
func WriteLicences(dir string, packages []Package) error {
	var list strings.Builder
	for _, p := range packages {
		name := strings.ReplaceAll(p.Name, "/", "_") + "@" + p.Version
		list.WriteString(p.Name + " " + p.Version + "\n")
		for _, from := range p.Licences {
			text, err := os.ReadFile(from)
			if err != nil {
				return fmt.Errorf("reading a licence of %s: %w", p.Name, err)
			}
			to := filepath.Join(dir, name, filepath.Base(from))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // everyone may read it
				return err
			}
			if err := os.WriteFile(to, text, 0o644); err != nil { //nolint:gosec // everyone may read it
				return err
			}
			list.WriteString("  " + name + "/" + filepath.Base(from) + "\n")
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // everyone may read it
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "SOURCES.txt"), []byte(Offer), 0o644); err != nil { //nolint:gosec // everyone may read it
		return err
	}
	return os.WriteFile(filepath.Join(dir, "LICENCES.txt"), []byte(list.String()), 0o644) //nolint:gosec // everyone may read it
}

func checksum(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
