// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Write writes images and programs, their SBOMs and provenance, and the licences of what is inside below dist: images/NAME, NAME_OS_ARCH.tar.gz or
// bin/NAME-OS-ARCH, sbom, provenance, licences.
func (b Build) Write(dist string, images []Image, programs []Program, from Sources) error {
	all := map[string]Package{}
	for _, image := range images {
		packages, err := b.sboms(dist, image.Name, image.Roots, from)
		if err != nil {
			return err
		}
		digest, err := image.WriteLayout(filepath.Join(dist, "images", image.Name))
		if err != nil {
			return err
		}
		if err := b.state(dist, image.Name, []Subject{{image.Name, digest}}, packages); err != nil {
			return err
		}
		maps.Copy(all, packages)
	}
	for _, program := range programs {
		packages, err := b.sboms(dist, program.Name, program.Roots, from)
		if err != nil {
			return err
		}
		files, err := program.write(dist)
		if err != nil {
			return err
		}
		if err := b.state(dist, program.Name, files, packages); err != nil {
			return err
		}
		maps.Copy(all, packages)
	}
	return WriteLicences(filepath.Join(dist, "licences"), values(all))
}

// state writes the provenance of an image or a program.
func (b Build) state(dist, name string, of []Subject, packages map[string]Package) error {
	statement, err := b.Provenance(of, values(packages))
	if err != nil {
		return err
	}
	return put(statement, dist, "provenance", name+".intoto.json")
}

// sboms writes the SBOM of each platform of an image or a program and returns what all of them hold.
func (b Build) sboms(dist, name string, roots map[string]string, from Sources) (map[string]Package, error) {
	packages := map[string]Package{}
	for _, platform := range sorted(roots) {
		contents, err := from.Read(roots[platform])
		if err != nil {
			return nil, fmt.Errorf("%s for %s: %w", name, platform, err)
		}
		document, err := b.SBOM(name, platform, contents)
		if err != nil {
			return nil, err
		}
		if err := put(document, dist, "sbom", name+"_"+strings.ReplaceAll(platform, "/", "_")+".spdx.json"); err != nil {
			return nil, err
		}
		for _, p := range contents.Packages {
			packages[p.Name+"@"+p.Version] = p
		}
	}
	return packages, nil
}

func values(packages map[string]Package) []Package {
	out := make([]Package, 0, len(packages))
	for _, key := range sorted(packages) {
		out = append(out, packages[key])
	}
	return out
}

func put(content []byte, path ...string) error {
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // everyone may read it
		return err
	}
	return os.WriteFile(file, append(content, '\n'), 0o644) //nolint:gosec // everyone may read it
}

// Push copies the images of a release to a registry, as REGISTRY/NAME:TAG, and returns their references by digest. Credentials are those of the
// user's configuration of Docker.
func Push(dist, registry string, options ...remote.Option) ([]string, error) {
	dirs, err := filepath.Glob(filepath.Join(dist, "images", "*"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, dir := range dirs {
		reference, err := push(dir, registry+"/"+filepath.Base(dir), options)
		if err != nil {
			return nil, fmt.Errorf("pushing %s: %w", dir, err)
		}
		out = append(out, reference)
	}
	return out, nil
}

func push(dir, repository string, options []remote.Option) (string, error) {
	outer, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return "", err
	}
	manifest, err := outer.IndexManifest()
	if err != nil {
		return "", err
	}
	if len(manifest.Manifests) != 1 {
		return "", fmt.Errorf("the layout holds %d images, want 1", len(manifest.Manifests))
	}
	found := manifest.Manifests[0]
	index, err := outer.ImageIndex(found.Digest)
	if err != nil {
		return "", err
	}
	tag, err := name.ParseReference(repository + ":" + found.Annotations["org.opencontainers.image.ref.name"])
	if err != nil {
		return "", err
	}
	if err := remote.WriteIndex(tag, index, options...); err != nil {
		return "", err
	}
	return digestOf(repository, found.Digest), nil
}

func digestOf(repository string, digest v1.Hash) string { return repository + "@" + digest.String() }
