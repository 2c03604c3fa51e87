// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
)

const (
	mebibyte = 1 << 20
	// tableEntries bounds the entries of a GPT in bytes.
	tableEntries = mebibyte
	headerSize   = 92
	// gptKind is the type of the entry of an MBR that protects a GPT.
	gptKind   = 0xEE
	linuxKind = 0x83
)

// linuxData is the type of a partition with a file system of Linux, as a GPT writes it.
var linuxData = []byte{0xAF, 0x3D, 0xC6, 0x0F, 0x83, 0x84, 0x72, 0x47, 0x8E, 0x79, 0x3D, 0x69, 0xD8, 0x47, 0x7D, 0xE4}

// errNoTable says that a disk has no table of partitions.
var errNoTable = errors.New("there is no partition table")

// extent is a part of a disk in bytes: first byte, and the one behind it.
type extent struct{ from, to int64 }

// storage is a disk that is open.
type storage interface {
	io.ReaderAt
	io.WriterAt
}

// table is the partition table of a disk.
type table interface {
	// used are the partitions.
	used() []extent
	// grow makes the table reach to the end of the disk.
	grow() error
	// add makes a partition with that many bytes at the end of the disk.
	add(size int64, name string) (extent, error)
}

// readTable reads the partition table of a disk. It fails with errNoTable where there is none.
func readTable(s storage, size, sector int64) (table, error) {
	mbr := make([]byte, 512)
	if _, err := s.ReadAt(mbr, 0); err != nil {
		return nil, fmt.Errorf("reading the partition table: %w", err)
	}
	if mbr[510] != 0x55 || mbr[511] != 0xAA {
		return nil, errNoTable
	}
	m := &mbrTable{disk: s, size: size, sector: sector, data: mbr}
	for i := range 4 {
		switch e := m.entry(i); {
		case e[0]&0x7F != 0: // a boot sector of a file system, whose code is here
			return nil, errNoTable
		case e[4] == gptKind:
			return readGPT(m)
		}
	}
	return m, nil
}

// mbrTable is the table of the BIOS: four partitions of less than 2^32 sectors.
type mbrTable struct {
	disk         storage
	size, sector int64
	data         []byte
}

func (m *mbrTable) entry(i int) []byte { return m.data[446+16*i:][:16] }

func (m *mbrTable) used() []extent {
	var out []extent
	for i := range 4 {
		if e := m.entry(i); e[4] != 0 {
			from := int64(binary.LittleEndian.Uint32(e[8:]))
			out = append(out, extent{from * m.sector, (from + int64(binary.LittleEndian.Uint32(e[12:]))) * m.sector})
		}
	}
	return out
}

func (m *mbrTable) grow() error { return nil }

func (m *mbrTable) add(size int64, _ string) (extent, error) {
	free := -1
	for i := 3; i >= 0; i-- {
		if m.entry(i)[4] == 0 {
			free = i
		}
	}
	if free < 0 {
		return extent{}, errors.New("all four partitions of its MBR are taken")
	}
	at, err := atEnd(m.used(), m.sector, min(m.size, math.MaxUint32*m.sector), size)
	if err != nil {
		return extent{}, err
	}
	e := m.entry(free)
	copy(e, []byte{0, 0xFE, 0xFF, 0xFF, linuxKind, 0xFE, 0xFF, 0xFF})
	binary.LittleEndian.PutUint32(e[8:], uint32(at.from/m.sector))          //nolint:gosec // bounded above
	binary.LittleEndian.PutUint32(e[12:], uint32((at.to-at.from)/m.sector)) //nolint:gosec // bounded above
	if _, err := m.disk.WriteAt(m.data, 0); err != nil {
		return extent{}, fmt.Errorf("writing the partition table: %w", err)
	}
	return at, nil
}

// atEnd is the last free place of that size before an end, aligned to a mebibyte.
func atEnd(used []extent, first, end, size int64) (extent, error) {
	size = (size + mebibyte - 1) / mebibyte * mebibyte
	at := extent{from: (end - size) / mebibyte * mebibyte}
	at.to = at.from + size
	for _, u := range used {
		first = max(first, u.to)
	}
	if at.from < first {
		return extent{}, fmt.Errorf("the disk has no %d bytes left behind its last partition", size)
	}
	return at, nil
}

// gptTable is the table of UEFI, of which a second copy stands at the end of the disk.
type gptTable struct {
	mbr             *mbrTable
	header, entries []byte
	// entry is the size of one.
	entry int
}

func readGPT(m *mbrTable) (table, error) {
	g := &gptTable{mbr: m, header: make([]byte, m.sector)}
	if _, err := m.disk.ReadAt(g.header, m.sector); err != nil {
		return nil, fmt.Errorf("reading the partition table: %w", err)
	}
	length := int64(binary.LittleEndian.Uint32(g.header[12:]))
	if string(g.header[:8]) != "EFI PART" || length < headerSize || length > m.sector {
		return nil, errNoTable
	}
	g.header = g.header[:length]
	count, size := int64(binary.LittleEndian.Uint32(g.header[80:])), int64(binary.LittleEndian.Uint32(g.header[84:]))
	if size < 128 || size > tableEntries || count < 1 || count > tableEntries/size {
		return nil, errors.New("reading the partition table: the GPT has an impossible number of entries")
	}
	g.entry, g.entries = int(size), make([]byte, count*size)
	at := binary.LittleEndian.Uint64(g.header[72:])
	if at > uint64(m.size/m.sector) { //nolint:gosec // sizes are positive
		return nil, errors.New("reading the partition table: the entries of the GPT are behind the end of the disk")
	}
	if _, err := m.disk.ReadAt(g.entries, int64(at)*m.sector); err != nil { //nolint:gosec // bounded above
		return nil, fmt.Errorf("reading the partition table: %w", err)
	}
	if g.sum() != binary.LittleEndian.Uint32(g.header[16:]) || crc32.ChecksumIEEE(g.entries) != binary.LittleEndian.Uint32(g.header[88:]) {
		return nil, errors.New("reading the partition table: the checksums of the GPT are wrong")
	}
	return g, nil
}

// sum is the checksum of the header.
func (g *gptTable) sum() uint32 {
	h := bytes.Clone(g.header)
	clear(h[16:20])
	return crc32.ChecksumIEEE(h)
}

func (g *gptTable) used() []extent {
	var out []extent
	for e := g.entries; len(e) >= g.entry; e = e[g.entry:] {
		first, last := binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])
		if !bytes.Equal(e[:16], make([]byte, 16)) && first <= last && last < uint64(math.MaxInt64/g.mbr.sector) { //nolint:gosec // sectors are positive
			out = append(out, extent{int64(first) * g.mbr.sector, int64(last+1) * g.mbr.sector}) //nolint:gosec // bounded above
		}
	}
	return out
}

// sectors is how many sectors the entries take.
func (g *gptTable) sectors() int64 { return (int64(len(g.entries)) + g.mbr.sector - 1) / g.mbr.sector }

// behind is the sector behind the last one that a partition can have.
func (g *gptTable) behind() int64 { return g.mbr.size/g.mbr.sector - 1 - g.sectors() }

func (g *gptTable) grow() error {
	m, last := g.mbr, g.mbr.size/g.mbr.sector-1
	for _, u := range g.used() {
		if u.to > g.behind()*m.sector {
			return errors.New("the disk is too small for the partitions of the image")
		}
	}
	for i := range 4 {
		if e := m.entry(i); e[4] == gptKind {
			binary.LittleEndian.PutUint32(e[12:], uint32(min(last, math.MaxUint32))) //nolint:gosec // bounded
		}
	}
	if _, err := m.disk.WriteAt(m.data, 0); err != nil {
		return fmt.Errorf("writing the partition table: %w", err)
	}
	primary := int64(binary.LittleEndian.Uint64(g.header[72:])) //nolint:gosec // was bounded when it was read
	// The copy is written first: a machine that loses power has one that is whole.
	if err := g.put(last, 1, g.behind()); err != nil {
		return err
	}
	return g.put(1, last, primary)
}

// put writes the header to a sector, and the entries to another one. Other is the sector of the other header.
func (g *gptTable) put(at, other, entries int64) error {
	for offset, value := range map[int]int64{24: at, 32: other, 48: g.behind() - 1, 72: entries} {
		binary.LittleEndian.PutUint64(g.header[offset:], uint64(value)) //nolint:gosec // sectors are positive
	}
	binary.LittleEndian.PutUint32(g.header[88:], crc32.ChecksumIEEE(g.entries))
	binary.LittleEndian.PutUint32(g.header[16:], g.sum())
	if _, err := g.mbr.disk.WriteAt(g.entries, entries*g.mbr.sector); err != nil {
		return fmt.Errorf("writing the partition table: %w", err)
	}
	sector := make([]byte, g.mbr.sector)
	copy(sector, g.header)
	if _, err := g.mbr.disk.WriteAt(sector, at*g.mbr.sector); err != nil {
		return fmt.Errorf("writing the partition table: %w", err)
	}
	return nil
}

func (g *gptTable) add(size int64, name string) (extent, error) {
	var free []byte
	for e := g.entries; len(e) >= g.entry && free == nil; e = e[g.entry:] {
		if bytes.Equal(e[:16], make([]byte, 16)) {
			free = e[:g.entry]
		}
	}
	if free == nil {
		return extent{}, errors.New("all entries of its GPT are taken")
	}
	first := int64(binary.LittleEndian.Uint64(g.header[40:])) //nolint:gosec // a sector
	at, err := atEnd(g.used(), first*g.mbr.sector, g.behind()*g.mbr.sector, size)
	if err != nil {
		return extent{}, err
	}
	clear(free)
	copy(free, linuxData)
	if _, err := rand.Read(free[16:32]); err != nil {
		return extent{}, fmt.Errorf("naming a partition: %w", err)
	}
	free[23], free[24] = free[23]&0x0F|0x40, free[24]&0x3F|0x80            // a random UUID
	binary.LittleEndian.PutUint64(free[32:], uint64(at.from/g.mbr.sector)) //nolint:gosec // positive
	binary.LittleEndian.PutUint64(free[40:], uint64(at.to/g.mbr.sector-1)) //nolint:gosec // positive
	for i, c := range []byte(name) {
		free[56+2*i] = c
	}
	return at, g.grow()
}
