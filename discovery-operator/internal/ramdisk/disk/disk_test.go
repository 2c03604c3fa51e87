// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRootDevice(t *testing.T) {
	disks := []Disk{
		{Name: "/dev/sda", Size: 500 << 30, Model: "Example SSD", Serial: "S1", HCTL: "0:0:0:0", Vendor: "ATA", WWN: "0x5000c5", Rotational: true},
		{Name: "/dev/sdb", Size: 100 << 30, Model: "Other", Serial: "S2"},
		{Name: "/dev/sdc", Size: 1 << 30, Model: "Flash", Serial: "S3"},
	}
	for name, c := range map[string]struct {
		hints Hints
		want  string
		err   string
	}{
		"the smallest of 4 GiB without hints": {nil, "/dev/sdb", ""},
		"by name":                             {Hints{"name": "s== /dev/sda"}, "/dev/sda", ""},
		"without operator, in any case":       {Hints{"serial": "s3"}, "/dev/sdc", ""},
		"a part of the model":                 {Hints{"model": "<in> ssd"}, "/dev/sda", ""},
		"one of several":                      {Hints{"model": "<or> flash <or> other"}, "/dev/sdb", ""},
		"all parts":                           {Hints{"model": "<all-in> example <all-in> ssd"}, "/dev/sda", ""},
		"size in GiB":                         {Hints{"size": ">= 200"}, "/dev/sda", ""},
		"size as a number":                    {Hints{"size": float64(100)}, "/dev/sdb", ""},
		"= is at least":                       {Hints{"size": "= 50"}, "/dev/sda", ""},
		"another one":                         {Hints{"serial": "s!= S1"}, "/dev/sdb", ""},
		"not rotational":                      {Hints{"rotational": "false"}, "/dev/sdb", ""},
		"all hints have to match":             {Hints{"rotational": true, "size": "< 10"}, "", "no disk matches the root device hints"},
		"an attribute that disks do not have": {Hints{"by_path": "s!= x"}, "", "no disk matches the root device hints"},
		"a hint that does not exist":          {Hints{"colour": "red"}, "", "there is no such hint"},
		"a size that is no number":            {Hints{"size": ">= big"}, "", "compares numbers"},
		"a rotational that is neither":        {Hints{"rotational": "perhaps"}, "", "perhaps"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := Root(disks, c.hints)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.want, d.Name)
		})
	}
	_, err := Root(disks[2:], nil)
	require.ErrorContains(t, err, "/dev/sdc (1073741824 bytes)")
	_, err = Root(nil, nil)
	require.ErrorContains(t, err, "the machine has no disk")
}

// tree writes files of the kernel.
func tree(t *testing.T, content map[string]string) System {
	t.Helper()
	root := t.TempDir()
	content["proc/self/mountinfo"] += "22 1 0:21 / /proc rw - proc proc rw\n"
	for name, text := range content {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return System{filepath.Join(root, "sys"), filepath.Join(root, "proc"), filepath.Join(root, "dev")}
}

func TestDisksOfTheKernel(t *testing.T) {
	s := tree(t, map[string]string{
		"sys/block/sda/size": "2048\n", "sys/block/sda/queue/rotational": "1\n", "sys/block/sda/device/model": "Example   \n", "sys/block/sda/device/vendor": "ATA\n",
		"sys/block/sda/device/vpd_pg80": "\x00\x80\x00\x04 S1\x00", "sys/block/sda/device/wwid": "naa.5000c5\n", "sys/block/sda/queue/logical_block_size": "4096\n",
		"sys/block/vda/size": "4096\n", "sys/block/vda/serial": "MUSTER-0001",
		"sys/block/sdb/size": "4096\n", "sys/block/sdb/removable": "1\n",
		"sys/block/sdc/size": "4096\n", "sys/block/sdc/ro": "1\n",
		"sys/block/sdd/size": "0\n", "sys/block/loop0/size": "8\n", "sys/block/sr0/size": "8\n", "sys/block/dm-0/size": "8\n", "sys/block/md0/size": "8\n",
	})
	disks, err := s.Disks()
	require.NoError(t, err)
	assert.Equal(t, []Disk{
		{Name: s.Dev + "/sda", Size: 1 << 20, Model: "Example", Vendor: "ATA", Serial: "S1", Rotational: true, WWN: "5000c5", Sector: 4096, system: s},
		{Name: s.Dev + "/vda", Size: 2 << 20, Serial: "MUSTER-0001", Sector: 512, system: s},
	}, disks)
}

func TestADiskThatIsInUseIsNeitherErasedNorWritten(t *testing.T) {
	for name, c := range map[string]struct{ path, text, says string }{
		"a file system on it":          {"proc/self/mountinfo", "30 1 8:0 / /data rw - ext4 /dev/sda rw\n", "sda is mounted at /data"},
		"a file system on a partition": {"proc/self/mountinfo", "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "sda1 is mounted at /"},
		"swap space":                   {"proc/swaps", "", "sda1 is swap space"},
		"a volume on a partition":      {"sys/class/block/sda/sda1/holders/dm-0", "", "dm-0 is made of sda1"},
	} {
		t.Run(name, func(t *testing.T) {
			content := map[string]string{
				"sys/class/block/sda/dev": "8:0\n", "sys/class/block/sda/sda1/dev": "8:1\n", "sys/class/block/sda/sda1/partition": "1\n", "proc/self/mountinfo": "",
				"dev/sda": string(bytes.Repeat([]byte{7}, mebibyte)),
			}
			content[c.path] += c.text
			s := tree(t, content)
			if c.path == "proc/swaps" {
				require.NoError(t, os.WriteFile(filepath.Join(s.Proc, "swaps"), []byte("Filename Type Size\n"+s.Dev+"/sda1 partition 8\n"), 0o600))
			}
			d := Disk{Name: s.Dev + "/sda", Size: mebibyte, Sector: 512, system: s}
			require.ErrorContains(t, EraseMetadata(t.Context(), []Disk{d}), c.says)
			require.ErrorContains(t, Erase(t.Context(), []Disk{d}), c.says)
			_, err := d.open()
			require.ErrorContains(t, err, c.says)
			data, err := os.ReadFile(d.Name)
			require.NoError(t, err)
			assert.Equal(t, content["dev/sda"], string(data))
		})
	}
}

// file is a disk of a file that is full of a byte.
func file(t *testing.T, size int, fill byte) Disk {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{fill}, size), 0o600))
	d, err := File(path)
	require.NoError(t, err)
	return d
}

func read(t *testing.T, d Disk) []byte {
	t.Helper()
	data, err := os.ReadFile(d.Name)
	require.NoError(t, err)
	return data
}

func TestErasing(t *testing.T) {
	const size = 16 * mebibyte
	d := file(t, size, 7)
	f, err := os.OpenFile(d.Name, os.O_RDWR, 0)
	require.NoError(t, err)
	_, err = f.WriteAt(mbr(4*mebibyte/512, 4*mebibyte/512), 0)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.NoError(t, EraseMetadata(t.Context(), []Disk{d}))
	want := bytes.Repeat([]byte{7}, size)
	for _, at := range []int{0, 4, 7, 15} { // mebibytes: of the disk, and of its partition
		clear(want[at*mebibyte : (at+1)*mebibyte])
	}
	assert.True(t, bytes.Equal(want, read(t, d)), "tables and file systems are gone, and the rest is left")
	require.NoError(t, Erase(t.Context(), []Disk{d}))
	assert.True(t, bytes.Equal(make([]byte, size), read(t, d)), "all is gone")
}

func TestADiskIsNoDirectoryAndNoDevice(t *testing.T) {
	_, err := File(t.TempDir())
	require.ErrorContains(t, err, "no regular file")
	_, err = File("/dev/null")
	require.ErrorContains(t, err, "no regular file")
}
