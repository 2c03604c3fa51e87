// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Command preload writes container images of one static program each into containerd's stores of content and metadata.
//
//	preload DIRECTORY IMAGE=PROGRAM...
//
// DIRECTORY becomes /var/lib/containerd. The same programs give the same bytes: layers, blobs and the database have no times.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/log"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"go.etcd.io/bbolt"
)

const (
	contentPath  = "io.containerd.content.v1.content"
	databasePath = "io.containerd.metadata.v1.bolt/meta.db"
	// namespace is that of the kubelet's images, and the label is what it lists them by.
	namespace    = "k8s.io"
	managedLabel = "io.cri-containerd.image"
)

// epoch is when everything was made.
var epoch = time.Unix(0, 0).UTC()

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: preload DIRECTORY IMAGE=PROGRAM...")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "preload:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, wanted []string) error {
	// Features that the file system of the build lacks do not matter: machines use another.
	if err := errors.Join(log.SetLevel("error"), os.RemoveAll(dir)); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "preload-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	written := filepath.Join(work, "meta.db")
	if err := write(ctx, filepath.Join(dir, contentPath), written, wanted); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, contentPath, "ingest")); err != nil {
		return err
	}
	database := filepath.Join(dir, databasePath)
	if err := os.MkdirAll(filepath.Dir(database), 0o711); err != nil {
		return err
	}
	return compact(written, database)
}

// write writes the images through containerd's own packages.
func write(ctx context.Context, store, database string, wanted []string) error {
	blobs, err := local.NewStore(store)
	if err != nil {
		return err
	}
	bolt, err := bbolt.Open(database, 0o644, nil)
	if err != nil {
		return err
	}
	db := metadata.NewDB(bolt, blobs, nil)
	ctx = namespaces.WithNamespace(ctx, namespace)
	err = db.Init(ctx)
	for _, image := range wanted {
		name, program, named := strings.Cut(image, "=")
		if err == nil && !named {
			err = fmt.Errorf("%q is not IMAGE=PROGRAM", image)
		}
		if err == nil {
			err = add(ctx, db, name, program)
		}
	}
	return errors.Join(err, bolt.Close())
}

// add makes an image of one program.
func add(ctx context.Context, db *metadata.DB, name, program string) error {
	layer, err := layerOf(program)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	compressor := gzip.NewWriter(&packed)
	if _, err := compressor.Write(layer); err != nil {
		return err
	}
	if err := compressor.Close(); err != nil {
		return err
	}
	config, err := json.Marshal(ocispec.Image{
		Created: &epoch, Platform: ocispec.Platform{Architecture: "amd64", OS: "linux"},
		Config: ocispec.ImageConfig{User: "65535:65535", Entrypoint: []string{"/" + filepath.Base(program)}, WorkingDir: "/"},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}}, History: []ocispec.History{{Created: &epoch, CreatedBy: "preload"}},
	})
	if err != nil {
		return err
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: descriptor(ocispec.MediaTypeImageConfig, config), Layers: []ocispec.Descriptor{descriptor(ocispec.MediaTypeImageLayerGzip, packed.Bytes())},
	}
	encoded, err := json.Marshal(manifest)
	if err != nil {
		return err
	}
	// Labels keep the blobs from being collected as garbage: an image refers to its manifest, which refers to the rest.
	target := descriptor(ocispec.MediaTypeImageManifest, encoded)
	labels := map[string]string{"containerd.io/gc.ref.content.config": manifest.Config.Digest.String(), "containerd.io/gc.ref.content.l.0": manifest.Layers[0].Digest.String()}
	for _, blob := range []struct {
		of     ocispec.Descriptor
		data   []byte
		labels map[string]string
	}{{manifest.Layers[0], packed.Bytes(), nil}, {manifest.Config, config, nil}, {target, encoded, labels}} {
		// They have no references while they are written, but no garbage collection runs here either.
		err := content.WriteBlob(ctx, db.ContentStore(), blob.of.Digest.String(), bytes.NewReader(blob.data), blob.of, content.WithLabels(blob.labels))
		if err != nil {
			return err
		}
	}
	store := metadata.NewImageStore(db)
	for _, reference := range []string{name, manifest.Config.Digest.String()} {
		if _, err := store.Create(ctx, images.Image{Name: reference, Target: target, Labels: map[string]string{managedLabel: "managed"}}); err != nil {
			return err
		}
	}
	return nil
}

func descriptor(mediaType string, data []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))}
}

// layerOf is an archive of the program alone.
func layerOf(program string) ([]byte, error) {
	data, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	archive := tar.NewWriter(&layer)
	if err := archive.WriteHeader(&tar.Header{Name: filepath.Base(program), Mode: 0o755, Size: int64(len(data)), ModTime: epoch, Format: tar.FormatUSTAR}); err != nil {
		return nil, err
	}
	if _, err := archive.Write(data); err != nil {
		return nil, err
	}
	return layer.Bytes(), archive.Close()
}

// compact copies a database without its free pages, and with one time for all others.
func compact(from, to string) error {
	source, err := bbolt.Open(from, 0o600, nil)
	if err != nil {
		return err
	}
	if err := source.Update(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error { return setTimes(b) })
	}); err != nil {
		return errors.Join(err, source.Close())
	}
	target, err := bbolt.Open(to, 0o644, nil)
	if err != nil {
		return errors.Join(err, source.Close())
	}
	// One transaction for each key: the order in which a transaction writes its buckets is that of a map.
	const perKey = 1
	target.NoSync = true
	return errors.Join(bbolt.Compact(target, source, perKey), target.Sync(), source.Close(), target.Close())
}

// setTimes replaces when something was created or changed, in a bucket and all below it.
func setTimes(b *bbolt.Bucket) error {
	stamp, err := epoch.MarshalBinary()
	if err != nil {
		return err
	}
	var times [][]byte
	if err := b.ForEach(func(key, value []byte) error {
		if value == nil {
			return setTimes(b.Bucket(key))
		}
		if name := string(key); name == "createdat" || name == "updatedat" {
			times = append(times, bytes.Clone(key))
		}
		return nil
	}); err != nil {
		return err
	}
	for _, key := range times {
		if err := b.Put(key, stamp); err != nil {
			return err
		}
	}
	return nil
}
