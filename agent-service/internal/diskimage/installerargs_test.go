// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package diskimage

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/disk"
	"github.com/diskfs/go-diskfs/filesystem"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/agentproto"
	"github.com/muster-io/muster/agent-service/internal/imagetest"
	"github.com/muster-io/muster/apis/needtest"
)

// firstBoot is what a system is configured with.
var firstBoot = `{"first":"boot"}`

const entry = "title one\nlinux /ostree/vmlinuz\noptions root=/dev/sda4 quiet rhgb ignition.platform.id=metal\ninitrd /ostree/initramfs.img\n"

// partitionStart and partitionSize are of the boot partition, in bytes.
const (
	partitionStart = 1 << 20
	partitionSize  = 64 << 20
)

// bootable is an image with a boot partition on FAT that has an entry of a boot loader.
func bootable(t *testing.T, dir string) string {
	t.Helper()
	path := imagetest.Disk(t, 96<<20)
	d, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadWrite))
	require.NoError(t, err)
	require.NoError(t, d.Partition(&gpt.Table{LogicalSectorSize: 512, PhysicalSectorSize: 512, ProtectiveMBR: true, Partitions: []*gpt.Partition{
		{Index: 1, Start: partitionStart / 512, End: (partitionStart+partitionSize)/512 - 1, Type: gpt.LinuxFilesystem, Name: "boot"},
	}}))
	boot, err := d.CreateFilesystem(disk.FilesystemSpec{Partition: 1, FSType: filesystem.TypeFat32, VolumeLabel: "boot"})
	require.NoError(t, err)
	require.NoError(t, boot.Mkdir(filepath.Dir(dir)))
	require.NoError(t, putFile(boot, dir+"/one.conf", []byte(entry)))
	require.NoError(t, d.Close())
	return path
}

// ostree is such an image with the boot partition of CoreOS: ext4, where loader is a link to one of two directories.
func ostree(t *testing.T) string {
	t.Helper()
	const tool = "/usr/sbin/mke2fs"
	needtest.File(t, tool, "there is no mke2fs for the boot partition of CoreOS: install e2fsprogs")
	tree, made := t.TempDir(), imagetest.Disk(t, partitionSize)
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "loader.1/entries"), 0o755))
	require.NoError(t, os.Symlink("loader.1", filepath.Join(tree, "loader")))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "loader.1/entries/one.conf"), []byte(entry), 0o600))
	output, err := exec.CommandContext(t.Context(), tool, "-q", "-F", "-t", "ext4", "-L", "boot", "-d", tree, made).CombinedOutput()
	require.NoError(t, err, string(output))
	content, err := os.ReadFile(made)
	require.NoError(t, err)
	path := bootable(t, "loader/entries")
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(content, partitionStart)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	return path
}

// sound checks the boot partition of CoreOS.
func sound(t *testing.T, device string) {
	t.Helper()
	content, err := os.ReadFile(device)
	require.NoError(t, err)
	partition := filepath.Join(t.TempDir(), "boot")
	require.NoError(t, os.WriteFile(partition, content[partitionStart:partitionStart+partitionSize], 0o600))
	output, err := exec.CommandContext(t.Context(), "/usr/sbin/e2fsck", "-fn", partition).CombinedOutput()
	require.NoError(t, err, string(output))
}

func read(t *testing.T, device, name string) string {
	t.Helper()
	d, err := diskfs.Open(device, diskfs.WithOpenMode(diskfs.ReadOnly))
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	boot, err := labelled(d, "boot")
	require.NoError(t, err)
	content, err := boot.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}

func TestInstallerArgumentsChangeTheWrittenSystem(t *testing.T) {
	profiles := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(profiles, "eno1.nmconnection"), []byte("[connection]\nid=eno1\n"), 0o600))
	for name, c := range map[string]struct {
		device string
		dir    string
		args   []string
		want   string
	}{
		"the boot partition of CoreOS": {
			ostree(t), "loader.1/entries", []string{"--append-karg", "console=ttyS0,115200n8", "--delete-karg=rhgb", "--append-karg=net.ifnames=0"},
			"root=/dev/sda4 quiet ignition.platform.id=metal console=ttyS0,115200n8 net.ifnames=0",
		},
		"a shorter line on ext4": {ostree(t), "loader.1/entries", []string{"--delete-karg", "rhgb", "--delete-karg", "quiet"}, "root=/dev/sda4 ignition.platform.id=metal"},
		"a shorter line on FAT":  {bootable(t, "loader/entries"), "loader/entries", []string{"--delete-karg", "rhgb", "--delete-karg", "quiet"}, "root=/dev/sda4 ignition.platform.id=metal"},
		"a longer line on FAT": {
			bootable(t, "loader.0/entries"), "loader.0/entries", []string{"--append-karg", "a=" + strings.Repeat("b", 8000)},
			"root=/dev/sda4 quiet rhgb ignition.platform.id=metal a=" + strings.Repeat("b", 8000),
		},
	} {
		t.Run(name, func(t *testing.T) {
			custom, err := agentproto.ReadInstallerArgs(append(c.args, "--copy-network"))
			require.NoError(t, err)
			require.NoError(t, customize(c.device, custom, profiles))
			assert.Equal(t, strings.Replace(entry, "root=/dev/sda4 quiet rhgb ignition.platform.id=metal", c.want, 1), strings.TrimRight(read(t, c.device, c.dir+"/one.conf"), "\n")+"\n")
			job := Job{FirstBoot: []byte(firstBoot)}
			require.NoError(t, putFirstBoot(c.device, job))
			assert.Equal(t, firstBoot, read(t, c.device, "ignition/config.ign"))
			assert.Equal(t, "[connection]\nid=eno1\n", read(t, c.device, firstBootNetwork+"/eno1.nmconnection"))
			if strings.Contains(name, "CoreOS") || strings.Contains(name, "ext4") {
				sound(t, c.device)
			}
		})
	}
}

func TestInstallerArgumentsWithoutAMeaningAreRefusedBeforeTheDiskIsWritten(t *testing.T) {
	for args, want := range map[string]string{
		"--save-partlabel data": `installer argument "--save-partlabel" has no meaning`, "--append-karg": "has no value", "--append-karg=": "empty value", "/dev/sdb": `"/dev/sdb" has no meaning`,
	} {
		device := imagetest.Disk(t, 16<<20)
		job := Job{InstallArgs: agentproto.InstallArgs{Device: device, Image: agentproto.OSImage{URL: "http://127.0.0.1:1/os.img"}, InstallerArgs: strings.Fields(args)}}
		require.ErrorContains(t, Install(t.Context(), http.DefaultClient, job, func(int) {}), want)
		content, err := os.ReadFile(device)
		require.NoError(t, err)
		assert.Equal(t, make([]byte, 16<<20), content)
	}
}

func TestAWrittenImageGetsItsInstallerArguments(t *testing.T) {
	content, err := os.ReadFile(bootable(t, "loader/entries"))
	require.NoError(t, err)
	device := imagetest.Disk(t, 96<<20)
	args := agentproto.InstallArgs{Device: device, Image: imagetest.Serve(t, "os.img.zst", imagetest.Pack(t, "zst", content)), InstallerArgs: []string{"--append-karg", "nomodeset"}}
	require.NoError(t, Install(t.Context(), http.DefaultClient, Job{InstallArgs: args, FirstBoot: []byte(firstBoot)}, func(int) {}))
	assert.Contains(t, read(t, device, "loader/entries/one.conf"), "ignition.platform.id=metal nomodeset\n")
	assert.Equal(t, firstBoot, read(t, device, "ignition/config.ign"))
}
