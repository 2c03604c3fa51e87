// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/lima-vm/go-qcow2reader"
	"github.com/lima-vm/go-qcow2reader/image"
	qcow2image "github.com/lima-vm/go-qcow2reader/image/qcow2"
)

const (
	raw   = "raw"
	qcow2 = "qcow2"
	// maxChecksums bounds a file of checksums, and maxConfig a config drive, in bytes.
	maxChecksums = mebibyte
	maxConfig    = 64 * mebibyte
	// configLabel is the name by which cloud-init and ignition find a config drive.
	configLabel = "config-2"
)

// Image is what is written to a disk.
type Image struct {
	// URL is where it is: http or https.
	URL string
	// Format is raw or qcow2; the empty one is raw, unless the image begins like one of qcow2.
	Format string
	// Algorithm is sha256 or sha512; the empty one follows from the length of the checksum.
	Algorithm string
	// Checksum is in hexadecimal digits, or the URL of a file that has it.
	Checksum string
	// Config is a config drive, packed by gzip and in base64, or its URL; empty for none.
	Config string
}

// Writer writes images to disks.
type Writer struct {
	// Client downloads.
	Client *http.Client
	// Temporary is the directory for images of qcow2; the empty one is the system's.
	Temporary string
	// Stall is how long a server may send nothing; 0 is a minute. Without an end, Ironic would wait as long as the agent sends heartbeats.
	Stall time.Duration
}

// Write writes an image to a disk, compares it with its checksum, and adds the config drive in a partition of its own at the end. Where that fails, the
// metadata of the disk are erased again: what is on it does not start.
func (w Writer) Write(ctx context.Context, image Image, d Disk) error {
	sum, err := w.checksum(ctx, image)
	if err != nil {
		return err
	}
	config, err := w.config(ctx, image.Config)
	if err != nil {
		return err
	}
	f, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if err := w.image(ctx, image, sum, d, f); err != nil {
		return err
	}
	if err := finish(f, d, config); err != nil {
		return eraseIncomplete(ctx, fmt.Errorf("writing the image %s to %s: %w", place(image.URL), d.Name, err), d, f)
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("flushing the disk %s: %w", d.Name, err)
	}
	return nil
}

// finish makes the partition table reach to the end of the disk, and writes the config drive.
func finish(s storage, d Disk, config []byte) error {
	t, err := readTable(s, d.Size, d.Sector)
	if errors.Is(err, errNoTable) && len(config) == 0 {
		return nil // the image is a file system, or a system of its own
	}
	if err == nil {
		err = t.grow()
	}
	if err == nil && len(config) > 0 {
		var at extent
		if at, err = t.add(int64(len(config)), configLabel); err == nil {
			_, err = s.WriteAt(config, at.from)
		}
	}
	if err != nil && len(config) > 0 {
		return fmt.Errorf("there is no place for the config drive: %w", err)
	}
	return err
}

// expected is a checksum that an image has to have.
type expected struct {
	name string
	hash func() hash.Hash
	hex  string
}

func (w Writer) checksum(ctx context.Context, image Image) (expected, error) {
	value := strings.TrimSpace(image.Checksum)
	if strings.HasPrefix(value, "http://") || strings.HasPrefix(value, "https://") {
		list, err := w.download(ctx, "the checksum", value, maxChecksums)
		if err != nil {
			return expected{}, err
		}
		found := listed(string(list), image.URL)
		if found == "" {
			return expected{}, fmt.Errorf("the file %s has no checksum of %s", place(value), place(image.URL))
		}
		value = found
	}
	algorithm := strings.ToLower(image.Algorithm)
	if algorithm == "" {
		algorithm = map[int]string{64: "sha256", 128: "sha512", 32: "md5"}[len(value)]
	}
	var e expected
	switch algorithm {
	case "sha256":
		e = expected{"SHA-256", sha256.New, strings.ToLower(value)}
	case "sha512":
		e = expected{"SHA-512", sha512.New, strings.ToLower(value)}
	case "":
		return e, fmt.Errorf("the image %s has no checksum: set its SHA-256 or SHA-512", place(image.URL))
	default:
		return e, fmt.Errorf("the image %s has a checksum of the kind %s: set its SHA-256 or SHA-512", place(image.URL), algorithm)
	}
	if b, err := hex.DecodeString(e.hex); err != nil || len(b) != e.hash().Size() {
		return e, fmt.Errorf("the checksum of the image %s is no %s", place(image.URL), e.name)
	}
	return e, nil
}

// listed finds the checksum of an image in a file of sha256sum, or of nothing else.
func listed(list, image string) string {
	u, err := url.Parse(image)
	if err != nil {
		return ""
	}
	alone := strings.Fields(list)
	if len(alone) == 1 {
		return alone[0]
	}
	scanner := bufio.NewScanner(strings.NewReader(list))
	for scanner.Scan() {
		if f := strings.Fields(scanner.Text()); len(f) == 2 && strings.TrimPrefix(f[1], "*") == path.Base(u.Path) {
			return f[0]
		}
	}
	return ""
}

func (w Writer) config(ctx context.Context, config string) ([]byte, error) {
	if config == "" {
		return nil, nil
	}
	text := []byte(config)
	if strings.HasPrefix(config, "http://") || strings.HasPrefix(config, "https://") {
		var err error
		if text, err = w.download(ctx, "the config drive", config, maxConfig); err != nil {
			return nil, err
		}
	}
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	if err != nil {
		return nil, errors.New("the config drive is not packed by gzip and in base64")
	}
	plain, err := io.ReadAll(io.LimitReader(packed, maxConfig+1))
	if err != nil {
		return nil, errors.New("the config drive is cut off")
	}
	if len(plain) > maxConfig {
		return nil, fmt.Errorf("the config drive is larger than %d MiB", maxConfig/mebibyte)
	}
	return plain, nil
}

// image downloads an image to the disk.
func (w Writer) image(ctx context.Context, image Image, sum expected, d Disk, f *os.File) error {
	resp, err := w.open(ctx, "the image", image.URL)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body := bufio.NewReaderSize(resp.Body, mebibyte)
	head, _ := body.Peek(4)
	kind := image.Format
	if kind == "" {
		if kind = raw; string(head) == "QFI\xfb" {
			kind = qcow2
		}
	}
	switch kind {
	case raw:
		if resp.ContentLength > d.Size {
			return tooLarge(image, d)
		}
		return stream(ctx, body, image, sum, d, f)
	case qcow2:
		return w.converted(ctx, body, image, sum, d, f)
	}
	return fmt.Errorf("the image %s has the format %s: this ramdisk writes raw and qcow2", place(image.URL), kind)
}

func tooLarge(image Image, d Disk) error {
	return fmt.Errorf("the image %s is larger than the disk %s of %d bytes", place(image.URL), d.Name, d.Size)
}

// stream writes an image as it comes.
func stream(ctx context.Context, from io.Reader, image Image, sum expected, d Disk, f *os.File) error {
	digest := sum.hash()
	n, err := io.CopyBuffer(io.MultiWriter(struct{ io.Writer }{io.NewOffsetWriter(f, 0)}, digest), io.LimitReader(from, d.Size), make([]byte, mebibyte))
	if err == nil && n == d.Size {
		if rest, _ := from.Read(make([]byte, 1)); rest > 0 {
			err = tooLarge(image, d)
		}
	}
	if err == nil {
		err = sum.verify(digest, image)
	}
	if err == nil {
		return nil
	}
	return eraseIncomplete(ctx, fmt.Errorf("writing the image to %s: %w", d.Name, err), d, f)
}

// eraseIncomplete erases the metadata of a disk on which something else than the image is, and which must not start, also where the writing was cancelled.
func eraseIncomplete(ctx context.Context, cause error, d Disk, f *os.File) error {
	return errors.Join(cause, zero(context.WithoutCancel(ctx), f, d.edges(f)), f.Sync())
}

func (e expected) verify(digest hash.Hash, image Image) error {
	if got := hex.EncodeToString(digest.Sum(nil)); got != e.hex {
		return fmt.Errorf("the image %s has the checksum (%s) %s, not %s", place(image.URL), e.name, got, e.hex)
	}
	return nil
}

// converted stores an image of qcow2, verifies it, and writes what it holds to the disk.
func (w Writer) converted(ctx context.Context, from io.Reader, image Image, sum expected, d Disk, f *os.File) error {
	kept, err := os.CreateTemp(w.Temporary, "image-")
	if err != nil {
		return fmt.Errorf("storing the image: %w", err)
	}
	defer func() { _ = errors.Join(kept.Close(), os.Remove(kept.Name())) }()
	digest := sum.hash()
	if _, err := io.Copy(io.MultiWriter(kept, digest), from); err != nil {
		return fmt.Errorf("storing the image %s: %w", place(image.URL), err)
	}
	if err := sum.verify(digest, image); err != nil {
		return err
	}
	content, err := openQcow2(kept)
	if err != nil {
		return fmt.Errorf("reading the image %s as qcow2: %w", place(image.URL), err)
	}
	if content.Size() > d.Size {
		return tooLarge(image, d)
	}
	if err := copyAll(ctx, f, content); err != nil {
		return eraseIncomplete(ctx, fmt.Errorf("writing the image %s to %s: %w", place(image.URL), d.Name, err), d, f)
	}
	return nil
}

// copyAll writes all that an image holds, zeros too: the disk may have another content.
func copyAll(ctx context.Context, f *os.File, content image.Image) error {
	buffer := make([]byte, mebibyte)
	for at := int64(0); at < content.Size(); at += mebibyte {
		if err := ctx.Err(); err != nil {
			return err
		}
		part := buffer[:min(mebibyte, content.Size()-at)]
		if n, err := content.ReadAt(part, at); n < len(part) {
			return fmt.Errorf("%d of %d bytes can be read at %d: %w", n, len(part), at, err)
		}
		if _, err := f.WriteAt(part, at); err != nil {
			return err
		}
	}
	return nil
}

// qcow2Header is how an image of qcow2 begins: docs/interop/qcow2 of QEMU.
type qcow2Header struct {
	Magic, Version uint32
	BackingFile    uint64
	_              [56]byte
	Incompatible   uint64
}

// dataFile is the bit of an image whose content is in another file.
const dataFile = 1 << 2

// openQcow2 opens an image. One that refers to another file is refused before anything looks for that.
func openQcow2(file *os.File) (image.Image, error) {
	var header qcow2Header
	if err := binary.Read(io.NewSectionReader(file, 0, int64(binary.Size(header))), binary.BigEndian, &header); err != nil {
		return nil, fmt.Errorf("its header is cut off: %w", err)
	}
	if header.BackingFile != 0 || header.Version >= 3 && header.Incompatible&dataFile != 0 {
		return nil, errors.New("it refers to another file, which is refused")
	}
	content, err := qcow2reader.OpenWithType(file, qcow2image.Type)
	if err != nil {
		return nil, err
	}
	return content, content.Readable()
}
