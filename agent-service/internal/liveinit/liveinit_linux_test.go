// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package liveinit

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/image"
)

func TestIgnitionFiles(t *testing.T) {
	files, err := Files([]byte(`{"ignition":{"version":"3.1.0"},"storage":{"files":[
		{"path":"/etc/muster/token","mode":384,"contents":{"source":"data:;base64,c2VjcmV0"}},
		{"path":"/etc/motd","contents":{"source":"data:,hello%20you"}}]}}`))
	require.NoError(t, err)
	assert.Equal(t, FileSet{"/etc/muster/token": {[]byte("secret"), 0o600}, "/etc/motd": {[]byte("hello you"), os.FileMode(0o644)}}, files)
	for says, config := range map[string]string{
		"no data URL":             `{"storage":{"files":[{"path":"/a","contents":{"source":"https://elsewhere"}}]}}`,
		"with the path \"etc/a\"": `{"storage":{"files":[{"path":"etc/a","contents":{"source":"data:,"}}]}}`,
		"reading the ignition":    `no JSON`,
		"is not understood":       `{"storage":{"files":[{"path":"/a","contents":{"source":"data:,","compression":"gzip"}}]}}`,
		"that is merged":          `{"ignition":{"config":{"merge":[{"source":"https://elsewhere"}]}}}`,
	} {
		_, err := Files([]byte(config))
		require.ErrorContains(t, err, says)
	}
}

func TestFilesThatAreMergedHavePrecedence(t *testing.T) {
	merge := func(inner string) string {
		return `{"ignition":{"config":{"merge":[{"source":"data:;base64,` + base64.StdEncoding.EncodeToString([]byte(inner)) + `"}]}},"storage":{"files":[
			{"path":"/etc/a","contents":{"source":"data:,outer"}},{"path":"/etc/b","contents":{"source":"data:,outer"}}]}}`
	}
	files, err := Files([]byte(merge(`{"storage":{"files":[{"path":"/etc/a","mode":384,"contents":{"source":"data:,inner"}}]}}`)))
	require.NoError(t, err)
	assert.Equal(t, FileSet{"/etc/a": {[]byte("inner"), 0o600}, "/etc/b": {[]byte("outer"), 0o644}}, files)
	config := `{}`
	for range maxMerged + 1 {
		config = merge(config)
	}
	_, err = Files([]byte(config))
	require.ErrorContains(t, err, "too many")
}

// answer is a message of a DHCP server.
func answer(id [4]byte, options ...byte) []byte {
	packet := make([]byte, 240)
	packet[0] = 2
	copy(packet[4:], id[:])
	copy(packet[16:], net.IPv4(192, 0, 2, 7).To4())
	binary.BigEndian.PutUint32(packet[236:], cookie)
	return append(packet, options...)
}

func TestLeases(t *testing.T) {
	id := [4]byte{1, 2, 3, 4}
	kind, l := parse(answer(id, 0, optionKind, 1, offer, optionServer, 4, 192, 0, 2, 1, optionMask, 4, 255, 255, 0, 0, optionRouter, 4, 192, 0, 2, 1,
		optionDNS, 8, 192, 0, 2, 2, 192, 0, 2, 3, optionTime, 4, 0, 0, 0, 90, optionEnd), id)
	require.EqualValues(t, offer, kind)
	assert.Equal(t, "192.0.2.7", l.address.String())
	assert.Equal(t, "255.255.0.0", l.mask.String())
	assert.Equal(t, "192.0.2.1", l.router.String())
	assert.Len(t, l.dns, 2)
	assert.Equal(t, 90*time.Second, l.duration)

	kind, _ = parse(answer([4]byte{9}, optionKind, 1, offer), id)
	assert.Zero(t, kind, "it answers another client")
	kind, _ = parse(answer(id, optionKind, 1, offer, optionServer, 4, 1), id)
	assert.Zero(t, kind, "it is cut off")
	packet := message(id, net.HardwareAddr{2, 0, 0, 0, 0, 1}, request, l)
	assert.Contains(t, string(packet), string([]byte{optionAddress, 4, 192, 0, 2, 7, optionServer, 4, 192, 0, 2, 1}))
}

func FuzzLeases(f *testing.F) {
	f.Add(answer([4]byte{}, optionKind, 1, offer, optionServer, 4, 1, 1, 1, 1, optionEnd))
	f.Fuzz(func(_ *testing.T, packet []byte) { parse(packet, [4]byte{}) })
}

func TestThePartitionOfTheFirstBootDataIsFoundByItsName(t *testing.T) {
	devices := t.TempDir()
	for name, facts := range map[string]string{
		"vda": "DEVNAME=vda\nDEVTYPE=disk\n", "vda1": "DEVNAME=vda1\nPARTN=1\nPARTNAME=core\n", "vda2": "DEVNAME=vda2\nPARTN=2\nPARTNAME=boot\n", "vdb1": "DEVNAME=vdb1\nPARTNAME=bootstrap\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(devices, name), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(devices, name, "uevent"), []byte(facts), 0o600))
	}
	assert.Equal(t, "vda2", Partition(devices, Label))
	assert.Empty(t, Partition(devices, "root"))
}

// A disk of CoreOS has partitions boot and root, and with a separate /var one that is named so, too. What is there is another system's.
func TestPartitionsOfOtherSystemsAreLeftAlone(t *testing.T) {
	devices, disks := t.TempDir(), t.TempDir()
	for disk, labels := range map[string][]string{
		"nvme0n1": {"BIOS-BOOT", "EFI-SYSTEM", "boot", "root", "var"},
		"sda":     {"core", "boot", "root"},
	} {
		for i, label := range labels {
			name := fmt.Sprint(disk, i+1)
			require.NoError(t, os.MkdirAll(filepath.Join(disks, disk, name), 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(disks, disk, name, "uevent"), []byte("PARTNAME="+label+"\n"), 0o600))
			require.NoError(t, os.Symlink(filepath.Join(disks, disk, name), filepath.Join(devices, name)))
		}
	}
	assert.Equal(t, "sda2", Partition(devices, Label))
	assert.Equal(t, "sda3", Partition(devices, "root"))
	assert.Empty(t, Partition(devices, "var"))
	assert.Equal(t, "sda2", Beside(devices, "sda3", Label))
	assert.Equal(t, "nvme0n13", Beside(devices, "nvme0n14", Label))
	assert.Empty(t, Beside(devices, "sda3", "var"))
}

func TestAnArchiveIsUnpacked(t *testing.T) {
	var archive bytes.Buffer
	require.NoError(t, image.WriteArchive(&archive, []image.File{{Path: "usr/bin/agent", Mode: 0o755, Data: []byte("program")}, {Path: "etc/motd", Mode: 0o600}}))
	whole := archive.Bytes()
	dir := t.TempDir()
	require.NoError(t, unpack(bytes.NewReader(whole), dir))
	program, err := os.ReadFile(filepath.Join(dir, "usr/bin/agent"))
	require.NoError(t, err)
	assert.Equal(t, "program", string(program))
	info, err := os.Stat(filepath.Join(dir, "usr/bin/agent"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o755), info.Mode())
	for end := 0; end < len(whole)-4; end += 23 {
		dir := t.TempDir()
		require.Error(t, unpack(bytes.NewReader(whole[:end]), dir), end)
		if got, err := os.ReadFile(filepath.Join(dir, "usr/bin/agent")); err == nil {
			require.Equal(t, "program", string(got), "a file is whole or not there")
		}
	}
	require.NoError(t, image.WriteArchive(&archive, []image.File{{Path: "../outside", Mode: 0o644}}))
	require.NoError(t, unpack(bytes.NewReader(archive.Bytes()[len(whole):]), filepath.Join(dir, "usr")))
	_, err = os.Stat(filepath.Join(dir, "outside"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestArgumentsOfTheKernel(t *testing.T) {
	const line = "console=ttyS0 coreos.live.rootfs_url=http://a/b?c=d&e=f quiet\n"
	assert.Equal(t, "http://a/b?c=d&e=f", argument(line, rootfsArgument))
	assert.Empty(t, argument(line, "coreos.live"))
}

func TestAMachineHasANameWithoutHelpOfTheNetwork(t *testing.T) {
	card := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 0xa}
	for name, c := range map[string]struct{ present, offered, want string }{
		"nothing is offered":                    {"(none)", "", "52-54-00-00-00-0a"},
		"a name is offered":                     {"", "worker", "worker"},
		"a name is offered after an address":    {"52-54-00-00-00-0b", "worker", "worker"},
		"the machine is called by another card": {"52-54-00-00-00-0b", "", "52-54-00-00-00-0b"},
		"a stated name stays":                   {"stated", "worker", "stated"},
		"a stated name stays, without an offer": {"stated", "", "stated"},
	} {
		assert.Equal(t, c.want, nameFor(c.present, c.offered, card), name)
	}
}
