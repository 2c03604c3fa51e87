// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ulikunitz/xz"
)

// MinimalPath is the file of a live image that says how its minimal form comes out of it, as live images of CoreOS have it. The minimal form is the same
// without the root file system, which is fetched by its address.
const MinimalPath = "coreos/miniso.dat"

const (
	minimalMagic   = "MINISO\x00\x00"
	minimalVersion = 1
	// maxMinimal bounds the recipe, and maxBetween what it holds unpacked: descriptors, directories, and what fills up the end.
	maxMinimal = 1 << 20
	maxBetween = 16 << 20
)

var errNoMinimal = errors.New("this live image has no minimal form: use image type full-iso")

// stretch is a part of an image that comes from elsewhere.
type stretch struct {
	at     int64
	from   io.ReaderAt
	extent extent
}

// pieced is an image of stretches, one after another without gaps.
type pieced []stretch

// ReadAt implements io.ReaderAt.
func (p pieced) ReadAt(into []byte, offset int64) (int, error) {
	n := 0
	first, _ := slices.BinarySearchFunc(p, offset, func(s stretch, offset int64) int {
		if s.at+s.extent.length <= offset {
			return -1
		}
		return 1
	})
	for _, s := range p[first:] {
		if n == len(into) {
			return n, nil
		}
		skip := offset + int64(n) - s.at
		part := into[n:min(int64(len(into)), int64(n)+s.extent.length-skip)]
		m, err := s.from.ReadAt(part, s.extent.offset+skip)
		if n += m; m < len(part) {
			return n, err
		}
	}
	if n < len(into) {
		return n, io.EOF
	}
	return n, nil
}

// Minimal is the image without its root file system, without a copy. An image without a root file system is its own minimal form.
func (b *Base) Minimal() (*Base, error) {
	if _, ok := b.files[rootfsPath]; !ok {
		return b, nil
	}
	at, ok := b.files[MinimalPath]
	if !ok {
		return nil, errNoMinimal
	}
	if at.length > maxMinimal {
		return nil, fmt.Errorf("%s is too large", MinimalPath)
	}
	recipe := make([]byte, at.length)
	if _, err := b.file.ReadAt(recipe, at.offset); err != nil {
		return nil, fmt.Errorf("reading %s: %w", MinimalPath, err)
	}
	view, size, digest, err := follow(recipe, b.file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", MinimalPath, err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.NewSectionReader(view, 0, size)); err != nil {
		return nil, fmt.Errorf("making the minimal image: %w", err)
	}
	if !bytes.Equal(sum.Sum(nil), digest) {
		return nil, fmt.Errorf("making the minimal image: its checksum is %x, not %x", sum.Sum(nil), digest)
	}
	version := b.Version
	version.SHA256 = hex.EncodeToString(digest)
	return read(version, view, size)
}

// follow makes an image by its recipe: which files are taken from where in the full image, and, packed, all that is between them.
func follow(recipe []byte, full io.ReaderAt) (view pieced, size int64, digest []byte, err error) {
	d := decoder{rest: recipe}
	if magic := d.bytes(len(minimalMagic)); string(magic) != minimalMagic {
		return nil, 0, nil, errors.New("it does not begin as it should")
	}
	if version := d.number(); version != minimalVersion {
		return nil, 0, nil, fmt.Errorf("its version is %d", version)
	}
	d.bytes(int(d.number())) // what wrote it
	type taken struct{ to, from, length int64 }
	var table []taken
	for range d.number() {
		table = append(table, taken{d.number() * sector, d.number() * sector, d.number()})
	}
	digest = d.bytes(sha256.Size)
	packed := d.bytes(int(d.number()))
	if d.short {
		return nil, 0, nil, io.ErrUnexpectedEOF
	}
	unpacker, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, 0, nil, err
	}
	between, err := io.ReadAll(io.LimitReader(unpacker, maxBetween))
	if err != nil {
		return nil, 0, nil, err
	}
	literal := bytes.NewReader(between)
	used := int64(0)
	for _, t := range table {
		if gap := t.to - size; gap > 0 {
			view, used, size = append(view, stretch{size, literal, extent{used, gap}}), used+gap, t.to
		}
		if t.to < size || used > int64(len(between)) {
			return nil, 0, nil, errors.New("its files overlap, or something between them is missing")
		}
		view, size = append(view, stretch{size, full, extent{t.from, t.length}}), size+t.length
	}
	if rest := int64(len(between)) - used; rest > 0 {
		view, size = append(view, stretch{size, literal, extent{used, rest}}), size+rest
	}
	return view, size, digest, nil
}

// decoder reads numbers of variable length: one byte, or a mark and two, four or eight bytes.
type decoder struct {
	rest  []byte
	short bool
}

const (
	twoBytes   = 251
	fourBytes  = 252
	eightBytes = 253
)

func (d *decoder) bytes(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.short, d.rest = true, nil
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) number() int64 {
	first := d.bytes(1)
	if len(first) == 0 {
		return 0
	}
	length := map[byte]int{twoBytes: 2, fourBytes: 4, eightBytes: 8}[first[0]]
	if length == 0 {
		return int64(first[0])
	}
	var whole [8]byte
	copy(whole[:], d.bytes(length))
	number := binary.LittleEndian.Uint64(whole[:])
	if number > 1<<40 {
		d.short, d.rest = true, nil
		return 0
	}
	return int64(number)
}

func appendNumber(to []byte, number int64) []byte {
	switch {
	case number < twoBytes:
		return append(to, byte(number)) //nolint:gosec // is below 251
	case number < 1<<16:
		return binary.LittleEndian.AppendUint16(append(to, twoBytes), uint16(number))
	default:
		return binary.LittleEndian.AppendUint32(append(to, fourBytes), uint32(number)) //nolint:gosec // sectors and lengths of files have 32 bits
	}
}

// PackMinimal says how one image comes out of another: it is what belongs into the full one's MinimalPath.
func PackMinimal(full, minimal []byte) ([]byte, error) {
	have, err := files(bytes.NewReader(full))
	if err != nil {
		return nil, err
	}
	wanted, err := files(bytes.NewReader(minimal))
	if err != nil {
		return nil, err
	}
	type taken struct{ to, from extent }
	var table []taken
	for path, to := range wanted {
		if from, ok := have[path]; ok && to.length > 0 && bytes.Equal(to.of(minimal), from.of(full)) {
			table = append(table, taken{to, from})
		}
	}
	slices.SortFunc(table, func(a, b taken) int { return int(a.to.offset - b.to.offset) })
	recipe := appendNumber(append([]byte(minimalMagic), minimalVersion), int64(len("muster")))
	recipe = appendNumber(append(recipe, "muster"...), int64(len(table)))
	var packed bytes.Buffer
	packer, err := xz.NewWriter(&packed)
	if err != nil {
		return nil, err
	}
	at := int64(0)
	for _, t := range table {
		for _, number := range []int64{t.to.offset / sector, t.from.offset / sector, t.to.length} {
			recipe = appendNumber(recipe, number)
		}
		if _, err := packer.Write(minimal[at:t.to.offset]); err != nil {
			return nil, err
		}
		at = t.to.offset + t.to.length
	}
	_, err = packer.Write(minimal[at:])
	if err := errors.Join(err, packer.Close()); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(minimal)
	recipe = appendNumber(append(recipe, sum[:]...), int64(packed.Len()))
	return append(recipe, packed.Bytes()...), nil
}

func (e extent) of(image []byte) []byte { return image[e.offset : e.offset+e.length] }

// ReplaceFile puts content into a file of an image, at the place that the file has. The rest of the file stays as it is.
func ReplaceFile(image []byte, path string, content []byte) error {
	found, err := files(bytes.NewReader(image))
	if err != nil {
		return err
	}
	at, ok := found[path]
	if !ok || int64(len(content)) > at.length {
		return fmt.Errorf("there is no room for %s (%d bytes)", path, len(content))
	}
	copy(at.of(image), content)
	return nil
}
