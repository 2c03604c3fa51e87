// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package release assembles what a release is made of from staged file systems: container images as OCI layouts, and what says where they come
// from and under which licences they are.
package release

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user runs the programs: an account without rights.
const user = "65532:65532"

// Image is a container image for one or more platforms.
type Image struct {
	// Name is the last part of the repository, such as pool-operator.
	Name string
	// Tag is the version of the image.
	Tag string
	// Roots are staged file systems by platform, such as linux/amd64.
	Roots map[string]string
	// Entrypoint is the program that runs, with an absolute path; empty if the user of the image names it.
	Entrypoint string
}

// Index builds the index of the image: one manifest for each platform. The same file systems give the same digests.
func (i Image) Index() (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range sorted(i.Roots) {
		parsed, err := v1.ParsePlatform(platform)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Name, err)
		}
		image, err := i.image(i.Roots[platform], parsed)
		if err != nil {
			return nil, fmt.Errorf("image %s for %s: %w", i.Name, platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: parsed}})
	}
	return mutate.Annotations(index, map[string]string{
		"org.opencontainers.image.title": i.Name, "org.opencontainers.image.version": i.Tag, "org.opencontainers.image.licenses": "Apache-2.0",
	}).(v1.ImageIndex), nil
}

func (i Image) image(root string, platform *v1.Platform) (v1.Image, error) {
	layer, err := layerOf(root)
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Variant = platform.OS, platform.Architecture, platform.Variant
	file.Config = v1.Config{User: user, Env: []string{"PATH=/usr/local/bin"}, WorkingDir: "/", Labels: map[string]string{
		"org.opencontainers.image.title": i.Name, "org.opencontainers.image.version": i.Tag, "org.opencontainers.image.licenses": "Apache-2.0",
	}}
	if i.Entrypoint != "" {
		file.Config.Entrypoint = []string{i.Entrypoint}
	}
	return mutate.ConfigFile(image, file)
}

// layerOf packs a file system with neither times nor owners.
func layerOf(root string) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := pack(root, &packed); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

func pack(root string, out io.Writer) error {
	writer := tar.NewWriter(out)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		return add(writer, root, path, entry)
	})
	if err != nil {
		return fmt.Errorf("packing %s: %w", root, err)
	}
	return writer.Close()
}

func add(writer *tar.Writer, root, path string, entry fs.DirEntry) error {
	name, err := filepath.Rel(root, path)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	switch {
	case entry.IsDir():
		return writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: filepath.ToSlash(name) + "/", Mode: 0o755, Format: tar.FormatPAX})
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a directory", name)
	}
	mode := int64(0o644)
	if info.Mode()&0o111 != 0 {
		mode = 0o755
	}
	if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.ToSlash(name), Mode: mode, Size: info.Size(), Format: tar.FormatPAX}); err != nil {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(writer, file)
	return err
}

// WriteLayout writes the image as an OCI layout to a new directory, and returns the digest of its index.
func (i Image) WriteLayout(dir string) (v1.Hash, error) {
	index, err := i.Index()
	if err != nil {
		return v1.Hash{}, err
	}
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("writing %s: %w", dir, err)
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": i.Tag})); err != nil {
		return v1.Hash{}, fmt.Errorf("writing %s: %w", dir, err)
	}
	return index.Digest()
}

// Stage reads the images that hack/images/build --stage made: DIR/NAME/OS_ARCH is a file system. Programs have the name of their image.
func Stage(dir, tag string) ([]Image, error) {
	roots, err := filepath.Glob(filepath.Join(dir, "*", "*_*"))
	if err != nil {
		return nil, err
	}
	byName := map[string]*Image{}
	for _, root := range roots {
		name := filepath.Base(filepath.Dir(root))
		if byName[name] == nil {
			byName[name] = &Image{Name: name, Tag: tag, Roots: map[string]string{}}
		}
		byName[name].Roots[strings.ReplaceAll(filepath.Base(root), "_", "/")] = root
		program := "/usr/local/bin/" + name
		if _, err := os.Stat(filepath.Join(root, program)); err == nil {
			byName[name].Entrypoint = program
		}
	}
	var out []Image
	for _, name := range sorted(byName) {
		out = append(out, *byName[name])
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s holds no staged image", dir)
	}
	return out, nil
}
