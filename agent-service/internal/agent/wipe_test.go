// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/api"
	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/hardware"
)

const diskSize = 160 << 20

// bay is a machine whose disks are files. The names are those that the kernel gave in this boot.
type bay struct {
	*Real
	t     *testing.T
	disks map[string]*fileDisk
}

// fileDisk is a disk with content everywhere.
type fileDisk struct {
	*os.File
	number string
	// silent loses what is written, broken refuses it, and dies after as many writes as are left.
	silent bool
	broken error
	left   int
	// touched is how often it was to be changed.
	touched int
}

func (d *fileDisk) Number() (string, error) { return d.number, nil }
func (d *fileDisk) Size() (int64, error)    { return diskSize, nil }
func (d *fileDisk) Flush() error            { return nil }
func (d *fileDisk) Reread() error           { return nil }
func (d *fileDisk) Close() error            { return nil }

func (d *fileDisk) Discard() error {
	d.touched++
	return nil
}

func (d *fileDisk) WriteAt(p []byte, at int64) (int, error) {
	d.touched++
	switch {
	case d.broken != nil:
		return 0, d.broken
	case d.silent:
		return len(p), nil
	case d.left == 1:
		return 0, errors.New("the machine is gone")
	}
	d.left--
	return d.File.WriteAt(p, at)
}

// signatures are where content of a disk stands that says what it is.
var signatures = []int64{0, wipedEdge - 512, diskSize - wipedEdge, diskSize - 512, 70 << 20, 80<<20 - 512}

// plug adds a disk, which has a partition.
func (b *bay) plug(name, serial string, facts ...func(sys string)) *fileDisk {
	b.t.Helper()
	file, err := os.Create(filepath.Join(b.t.TempDir(), name))
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = file.Close() })
	require.NoError(b.t, file.Truncate(diskSize))
	for _, at := range signatures {
		_, err := file.WriteAt(bytes.Repeat([]byte{0xEE}, 512), at)
		require.NoError(b.t, err)
	}
	disk := &fileDisk{File: file, number: fmt.Sprintf("253:%d", 16*len(b.disks))}
	b.disks[name] = disk
	sys := filepath.Join(b.Sys, "block", name)
	write := func(path, text string) {
		require.NoError(b.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(b.t, os.WriteFile(path, []byte(text+"\n"), 0o600))
	}
	write(filepath.Join(sys, "size"), strconv.Itoa(diskSize/512))
	write(filepath.Join(sys, "serial"), serial)
	write(filepath.Join(sys, "dev"), disk.number)
	partition := filepath.Join(sys, name+"1")
	write(filepath.Join(partition, "partition"), "1")
	write(filepath.Join(partition, "start"), strconv.Itoa(70<<20/512))
	write(filepath.Join(partition, "size"), strconv.Itoa(10<<20/512))
	require.NoError(b.t, os.MkdirAll(filepath.Join(b.Sys, "dev/block"), 0o700))
	require.NoError(b.t, os.Symlink(sys, filepath.Join(b.Sys, "dev/block", disk.number)))
	for _, fact := range facts {
		fact(sys)
	}
	return disk
}

func newBay(t *testing.T) *bay {
	t.Helper()
	b := &bay{Real: &Real{Sys: t.TempDir()}, t: t, disks: map[string]*fileDisk{}}
	b.open = func(name string) (blockDevice, error) {
		if d := b.disks[name]; d != nil {
			return d, nil
		}
		return nil, os.ErrNotExist
	}
	return b
}

func (b *bay) wipeStep(disks ...agentproto.DiskIdentity) (any, error) {
	return b.Do(b.t.Context(), api.Step{StepType: api.StepTypeWipeDisk, Args: []string{agentproto.Argument(agentproto.WipeArgs{Disks: disks})}})
}

func identified(serial string) agentproto.DiskIdentity {
	return agentproto.DiskIdentity{Serial: serial, SizeBytes: diskSize}
}

// untouched fails where a single byte of a disk was written, or discarded.
func (d *fileDisk) untouched(t *testing.T, name string) {
	t.Helper()
	assert.Zero(t, d.touched, "%s was written to", name)
}

func fact(path, text string) func(string) {
	return func(sys string) {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(sys, path)), 0o700)
		_ = os.WriteFile(filepath.Join(sys, path), []byte(text), 0o600)
	}
}

func TestADiskIsWiped(t *testing.T) {
	b := newBay(t)
	wanted, other := b.plug("vdz", "S1"), b.plug("vdy", "S2") // their names were the other way round when S1 was written
	said, err := b.wipeStep(identified("S1"))
	require.NoError(t, err)
	assert.Equal(t, agentproto.WipeReply{Disks: []agentproto.DiskIdentity{identified("S1")}}, said)
	other.untouched(t, "vdy")
	for _, at := range signatures {
		read := make([]byte, 512)
		_, err := wanted.ReadAt(read, at)
		require.NoError(t, err)
		assert.Equal(t, make([]byte, 512), read, "at byte %d", at)
	}
	_, err = b.wipeStep(identified("S1"))
	require.NoError(t, err, "it can be done again")
}

// Each case is an attempt to have another disk wiped. No byte of any disk is written, and the sentence says why.
func TestNoOtherDiskIsWiped(t *testing.T) {
	for name, c := range map[string]struct {
		given func(b *bay)
		ask   []agentproto.DiskIdentity
		says  string
	}{
		"the disk is gone":                     {given: func(b *bay) { b.plug("vdy", "S2") }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "there is no disk with serial number S1"},
		"one of two is gone":                   {given: func(b *bay) { b.plug("vdy", "S2") }, ask: []agentproto.DiskIdentity{identified("S2"), identified("S1")}, says: "there is no disk with serial number S1"},
		"the same serial number twice":         {given: func(b *bay) { b.plug("vdy", "S1"); b.plug("vdz", "S1") }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "more than one"},
		"the same serial number, another size": {given: func(b *bay) { b.plug("vdy", "S1", fact("size", "999")); b.plug("vdz", "S1") }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "more than one"},
		"the disk has another size":            {given: func(b *bay) { b.plug("vdy", "S1", fact("size", "409600")) }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "differs"},
		"the disk has another worldwide name":  {given: func(b *bay) { b.plug("vdy", "S1", fact("wwid", "naa.5")) }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "differs"},
		"the recorded id is not there":         {given: func(b *bay) { b.plug("vdy", "S1") }, ask: []agentproto.DiskIdentity{{Serial: "S1", SizeBytes: diskSize, ID: "/dev/disk/by-id/virtio-S1"}}, says: "differs"},
		"no serial number was recorded":        {given: func(b *bay) { b.plug("vdy", "") }, ask: []agentproto.DiskIdentity{{SizeBytes: diskSize}}, says: "cannot be distinguished from others"},
		"no size was recorded":                 {given: func(b *bay) { b.plug("vdy", "S1") }, ask: []agentproto.DiskIdentity{{Serial: "S1"}}, says: "cannot be distinguished from others"},
		"no disk is named":                     {given: func(b *bay) { b.plug("vdy", "S1") }, says: "names no disk"},
		"the disk is read only":                {given: func(b *bay) { b.plug("vdy", "S1", fact("ro", "1")) }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "read only"},
		"something is made on top of the disk": {given: func(b *bay) { b.plug("vdy", "S1", fact("holders/dm-0/x", "")) }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "in use"},
		"something runs on top of its partition": {
			given: func(b *bay) {
				b.plug("vdy", "S1", fact("vdy1/holders/md0/x", ""))
				b.stop = func(string) error { return errors.New("device or resource busy") }
			}, ask: []agentproto.DiskIdentity{identified("S1")}, says: "S1 (vdy) cannot be wiped: the disk is in use: md0 is made of it: device or resource busy",
		},
		"it is made again at once": {
			given: func(b *bay) {
				b.plug("vdy", "S1", fact("vdy1/holders/md0/x", ""))
				b.stop = func(string) error { return nil }
			}, ask: []agentproto.DiskIdentity{identified("S1")}, says: "md0 is made of it again",
		},
		"the disk can be pulled out":             {given: func(b *bay) { b.plug("vdy", "S1", fact("removable", "1")) }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "removable"},
		"a part of a serial number":              {given: func(b *bay) { b.plug("vdy", "S11") }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "there is no"},
		"disks swap between looking and opening": {given: func(b *bay) { swap(b, "S2") }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "another disk"},
		"a disk of another number is opened":     {given: func(b *bay) { b.plug("vdy", "S1").number = "8:0" }, ask: []agentproto.DiskIdentity{identified("S1")}, says: "does not know device 8:0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t)
			c.given(b)
			_, err := b.wipeStep(c.ask...)
			require.ErrorContains(t, err, c.says)
			for name, disk := range b.disks {
				disk.untouched(t, name)
			}
		})
	}
}

// swap lets another disk have the name of S1 by the time that it is opened.
func swap(b *bay, serial string) {
	b.plug("vdy", "S1")
	other := b.plug("vdz", serial)
	b.open = func(string) (blockDevice, error) { return other, nil }
}

func TestADiskThatIsNotErasedIsNotWiped(t *testing.T) {
	for name, c := range map[string]struct {
		given func(*fileDisk)
		says  string
	}{
		"it loses what is written": {given: func(d *fileDisk) { d.silent = true }, says: "still has content"},
		"it refuses writes":        {given: func(d *fileDisk) { d.broken = errors.New("read-only file system") }, says: "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBay(t)
			c.given(b.plug("vdy", "S1"))
			_, err := b.wipeStep(identified("S1"))
			require.ErrorContains(t, err, c.says)
			assert.ErrorContains(t, err, "serial number S1")
		})
	}
}

// A machine that dies after any write finds the signatures of partitions still: the partition table, which tells where they are, goes last.
func TestAWipeThatIsInterruptedIsBegunAgain(t *testing.T) {
	for _, dies := range []int{1, 2, 3, 4, 20} { // the first two writes are those of signatures
		b := newBay(t)
		d := b.plug("vdy", "S1")
		d.left = dies
		_, err := b.wipeStep(identified("S1"))
		require.ErrorContains(t, err, "the machine is gone")
		table, signature := make([]byte, 512), make([]byte, 512)
		_, err = d.ReadAt(table, 0)
		require.NoError(t, err)
		_, err = d.ReadAt(signature, 70<<20)
		require.NoError(t, err)
		assert.False(t, table[0] == 0 && signature[0] != 0, "after %d writes the table is gone, and a signature is left", dies)
		d.left = 0
		_, err = b.wipeStep(identified("S1"))
		require.NoError(t, err)
	}
}

// What is made of a disk is taken apart, the uppermost first; another disk that it is made of, too, keeps its content.
func TestADiskOfARAIDIsWiped(t *testing.T) {
	b := newBay(t)
	disk, mirror := b.plug("vdy", "S1", fact("vdy1/holders/md0/x", ""), fact("size", strconv.Itoa(diskSize/512))), b.plug("vdz", "S2", fact("vdz1/holders/md0/x", ""))
	require.NoError(t, os.MkdirAll(filepath.Join(b.Sys, "block/md0/holders/dm-0"), 0o700))
	require.NoError(t, os.MkdirAll(filepath.Join(b.Sys, "block/dm-0/holders/dm-1"), 0o700))
	var stopped []string
	b.stop = func(name string) error {
		stopped = append(stopped, name)
		held, err := filepath.Glob(filepath.Join(b.Sys, "block/*/holders", name))
		require.NoError(t, err)
		below, err := filepath.Glob(filepath.Join(b.Sys, "block/*/*/holders", name))
		require.NoError(t, err)
		for _, entry := range append(held, below...) {
			require.NoError(t, os.RemoveAll(entry))
		}
		return nil
	}
	_, err := b.wipeStep(identified("S1"))
	require.NoError(t, err)
	assert.Equal(t, []string{"dm-1", "dm-0", "md0"}, stopped)
	assert.Positive(t, disk.touched)
	mirror.untouched(t, "vdz")
}

func TestASoftwareRAIDIsStoppedByTheKernel(t *testing.T) {
	b := newBay(t)
	state := filepath.Join(b.Sys, "block/md0/md/array_state")
	require.NoError(t, os.MkdirAll(filepath.Dir(state), 0o700))
	require.NoError(t, os.WriteFile(state, []byte("active"), 0o600))
	require.NoError(t, b.stopHolder("md0"))
	assert.Equal(t, "clear", content(state))
	assert.ErrorContains(t, b.stopHolder("bcache0"), "not known how to stop it")
}

func TestDisksThatAreReachedOverANetworkAreNoneOfTheMachine(t *testing.T) {
	for device, want := range map[string]bool{
		"devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda":            true,
		"devices/pci0000:00/host6/port-6:0/end_device-6:0/target6:0:0/block/sda": true,
		"devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sda":          false,
		"devices/pci0000:00/host7/rport-7:0-0/target7:0:0/7:0:0:0/block/sda":     false,
		"devices/virtual/nvme-fabrics/ctl/nvme0/sessions/nvme0n1":                true,
	} {
		m := &Real{Sys: t.TempDir()}
		require.NoError(t, os.MkdirAll(filepath.Join(m.Sys, device), 0o700))
		require.NoError(t, os.MkdirAll(filepath.Join(m.Sys, "block"), 0o700))
		name := filepath.Base(device)
		require.NoError(t, os.Symlink(filepath.Join(m.Sys, device), filepath.Join(m.Sys, "block", name)))
		assert.Equal(t, want, m.disk(name, nil).Fixed(), device)
		fact("device/transport", "tcp")(filepath.Join(m.Sys, device))
		assert.False(t, m.disk(name, nil).Fixed(), "NVMe over TCP")
	}
}

func TestSerialNumbersThatDisksReportByThemselves(t *testing.T) {
	b := newBay(t)
	b.plug("sda", "", fact("device/vpd_pg80", "\x00\x80\x00\x08  WD-1234\n"))
	found := b.withUnitSerials(b.Real.disks())
	require.Len(t, found, 1)
	assert.Equal(t, "WD-1234", found[0].Serial)
	assert.Equal(t, hardware.DiskIdentity{Serial: "WD-1234", SizeBytes: diskSize}, found[0].Identity())
}
