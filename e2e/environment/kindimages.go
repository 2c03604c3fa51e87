// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// containerdName names an image of an OCI layout for containerd.
const containerdName = "io.containerd.image.name"

// Load puts the images of an archive on every node: one of docker, or an OCI layout.
func (k *Kind) Load(ctx context.Context, archive string) error {
	k.say("loading " + filepath.Base(archive))
	_, err := run(ctx, k.program, "load", "image-archive", archive, "--name", k.name)
	return err
}

// LoadLayout puts the image of an OCI layout on every node, as repository:tag, with the tag that the layout states. It returns that name.
func (k *Kind) LoadLayout(ctx context.Context, layout, repository string) (string, error) {
	index, name, err := named(layout, repository)
	if err != nil {
		return "", err
	}
	archive := filepath.Join(k.dir, filepath.Base(layout)+".tar")
	if err := packLayout(layout, archive, index); err != nil {
		return "", fmt.Errorf("packing %s: %w", layout, err)
	}
	defer func() { _ = os.Remove(archive) }()
	return name, k.Load(ctx, archive)
}

// named returns the index of a layout with the name of its only image.
func named(layout, repository string) (index []byte, name string, err error) {
	text, err := os.ReadFile(filepath.Join(layout, "index.json"))
	if err != nil {
		return nil, "", err
	}
	var content struct {
		SchemaVersion int              `json:"schemaVersion"`
		MediaType     string           `json:"mediaType"`
		Manifests     []map[string]any `json:"manifests"`
	}
	if err := json.Unmarshal(text, &content); err != nil {
		return nil, "", fmt.Errorf("reading the index of %s: %w", layout, err)
	}
	if len(content.Manifests) != 1 {
		return nil, "", fmt.Errorf("%s holds %d images, want 1", layout, len(content.Manifests))
	}
	annotations, _ := content.Manifests[0]["annotations"].(map[string]any)
	tag, _ := annotations["org.opencontainers.image.ref.name"].(string)
	if tag == "" {
		return nil, "", fmt.Errorf("%s states no tag", layout)
	}
	name = repository + ":" + tag
	annotations[containerdName] = name
	index, err = json.Marshal(content)
	return index, name, err
}

// packLayout writes an archive of a layout with another index.
func packLayout(layout, archive string, index []byte) error {
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	writer := tar.NewWriter(file)
	err = fs.WalkDir(os.DirFS(layout), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if path == "index.json" {
			if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644, Size: int64(len(index))}); err != nil {
				return err
			}
			_, err := writer.Write(index)
			return err
		}
		return packFile(writer, layout, path, entry)
	})
	if err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return file.Close()
}

func packFile(writer *tar.Writer, layout, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	file, err := os.Open(filepath.Join(layout, filepath.FromSlash(path)))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(writer, file)
	return err
}

// Import makes an image of a file system, an archive as tar makes it, and puts it on every node. Changes are instructions such as USER 65532.
func (k *Kind) Import(ctx context.Context, archive, image string, changes ...string) error {
	args := []string{"import"}
	for _, change := range changes {
		args = append(args, "--change", change)
	}
	if _, err := run(ctx, "docker", append(args, archive, image)...); err != nil {
		return err
	}
	k.say("loading " + image)
	_, err := run(ctx, k.program, "load", "docker-image", image, "--name", k.name)
	return err
}
