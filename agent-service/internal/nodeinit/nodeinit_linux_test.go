// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeinit

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/muster-io/muster/agent-service/internal/join"
	"github.com/muster-io/muster/agent-service/internal/kubelet"
)

func values() join.Values {
	return join.Values{
		NodeName: "worker-1", NodeIPs: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, Token: "abcdef.0123456789abcdef",
		Network: join.HostGateway, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, Labels: map[string]string{"tier": "web", "rack": "a"},
	}
}

func TestTheKubeletIsTheNodeThatItsValuesSay(t *testing.T) {
	arguments := kubeletArguments(values())
	for _, wanted := range []string{"--hostname-override=worker-1", "--node-ip=192.0.2.7,2001:db8::7", "--node-labels=rack=a,tier=web", "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf"} {
		assert.Contains(t, arguments, wanted)
	}
	assert.NotContains(t, strings.Join(kubeletArguments(join.Values{NodeName: "a"}), " "), "--node-ip", "the kubelet chooses")
	assert.Contains(t, kubeProxyArguments(values()), "--cluster-cidr=10.244.0.0/16")
}

func TestTheNetworkOfPodsIsLeftToPluginsOfTheUser(t *testing.T) {
	v := values()
	assert.Contains(t, containerdArguments(v), "--config="+containerdNetworkConfig)
	assert.Contains(t, names(node{joins: true, values: v}), "pod-network")
	assert.Equal(t, []string{"--kubeconfig=/etc/kubernetes/kubelet.conf", "--node=worker-1", "--pod-cidrs=10.244.0.0/16"}, podNetworkArguments(v))
	v.Network = join.None
	assert.Contains(t, containerdArguments(v), "--config="+containerdConfig)
	assert.NotContains(t, names(node{joins: true, values: v}), "pod-network")
}

// A clock that drifts, or that an empty battery leaves in 1970 after a loss of power, makes all certificates of the cluster invalid.
func TestTimeServersAreFactsOfTheHost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "host.json")
	assert.Empty(t, timeServers(path))
	for content, want := range map[string][]string{
		`{"token":"t","ntp_sources":"time.example.com, 192.0.2.1"}`: {"time.example.com", "192.0.2.1"}, `{"token":"t"}`: {}, `{`: nil,
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		assert.Equal(t, want, timeServers(path), content)
	}
}

func names(n node) []string {
	var all []string
	for _, p := range n.programs() {
		all = append(all, p.Name)
	}
	return all
}

func TestAMachineThatJoinsNothingRunsNoKubelet(t *testing.T) {
	assert.Equal(t, []string{"network", "containerd"}, names(node{}))
	assert.Equal(t, []string{"network", "containerd", "kubelet", "certificate", "kube-proxy", "pod-network"}, names(node{joins: true, values: values()}))
	assert.Equal(t, []string{
		"network", "containerd", "control plane", "certificates", "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "objects of the cluster", "manifests",
		"kubelet", "certificate", "kube-proxy", "pod-network",
	}, names(node{joins: true, values: values(), plane: &join.ControlPlane{Server: "https://192.0.2.7:6443"}}))
}

// The Node of a machine that runs a control plane with others becomes Ready after its API server.
func TestTheKubeletOfAGroupWaitsForTheAPIServerOfItsMachine(t *testing.T) {
	own := join.Member{Name: "worker-1", Address: netip.MustParseAddr("192.0.2.7")}
	n := node{joins: true, values: values(), plane: &join.ControlPlane{Server: "https://192.0.2.100:6443", Group: &join.Group{
		Name: own.Name, Members: []join.Member{own, {Name: "b", Address: netip.MustParseAddr("192.0.2.8")}, {Name: "c", Address: netip.MustParseAddr("192.0.2.9")}},
	}}}
	assert.Contains(t, names(n), "api address")
	for _, p := range n.programs() {
		if p.Name == "kubelet" {
			assert.Equal(t, []string{"network", "containerd", "kube-apiserver"}, p.After)
		}
	}
}

// disk is a disk of some size whose first MiBs an image has been written to, and that was in use before.
func disk(t *testing.T, mebibytes int64) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	image, err := diskfs.Create(path, 16<<20, diskfs.SectorSize512)
	require.NoError(t, err)
	require.NoError(t, image.Partition(&gpt.Table{LogicalSectorSize: 512, PhysicalSectorSize: 512, ProtectiveMBR: true, GUID: "43f43461-96b6-4b0d-8d11-1dd4b8a1e9b3", Partitions: []*gpt.Partition{
		{Index: 1, Start: 34, End: 2047, Type: gpt.BIOSBoot, Name: "core"}, {Index: 2, Start: 2048, End: 8191, Type: gpt.EFISystemPartition, Name: "boot"},
		{Index: 3, Start: 8192, End: 20000, Type: gpt.LinuxFilesystem, Name: RootLabel},
	}}))
	require.NoError(t, image.Close())
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = file.Close() })
	require.NoError(t, file.Truncate(mebibytes<<20))
	_, err = file.WriteAt(bytes.Repeat([]byte{0xEE}, 1<<20), 20480*sectorSize)
	require.NoError(t, err)
	return file
}

func TestTheRestOfTheDiskIsForData(t *testing.T) {
	const mebibytes = 1024
	file := disk(t, mebibytes)
	added, number, err := addPartition(file, mebibytes<<20)
	require.NoError(t, err)
	assert.Equal(t, 4, number)
	assert.EqualValues(t, 20480, added.Start, "it is aligned")
	assert.EqualValues(t, mebibytes<<20/sectorSize-34, added.End, "the second table is at the end of the disk")

	again, number, err := addPartition(file, mebibytes<<20)
	require.NoError(t, err)
	assert.Nil(t, again, "there is one already")
	assert.Equal(t, 4, number)

	read, err := diskfs.Open(file.Name())
	require.NoError(t, err)
	defer func() { _ = read.Close() }()
	table, err := read.GetPartitionTable()
	require.NoError(t, err)
	require.NoError(t, table.Verify(read.Backend, mebibytes<<20))
	assert.NotEqual(t, "43F43461-96B6-4B0D-8D11-1DD4B8A1E9B3", strings.ToUpper(table.UUID()), "all disks would have the same")
	old := make([]byte, 1<<20)
	_, err = file.ReadAt(old, 20480*sectorSize)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 1<<20), old, "the old content is erased")
}

func TestADiskThatIsTooSmallIsReported(t *testing.T) {
	_, _, err := addPartition(disk(t, 100), 100<<20)
	require.ErrorContains(t, err, "needs 512")
}

func TestPartitionsAreNamedAsTheKernelDoes(t *testing.T) {
	assert.Equal(t, "/dev/vda4", partitionDevice("/dev/vda3", 4))
	assert.Equal(t, "/dev/nvme0n1p4", partitionDevice("/dev/nvme0n1p3", 4))
	devices, real := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(real, "nvme0n1", "nvme0n1p3"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(real, "nvme0n1", "nvme0n1p3", "partition"), []byte("3\n"), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(real, "nvme0n1", "nvme0n1p3"), filepath.Join(devices, "nvme0n1p3")))
	require.NoError(t, os.Symlink(filepath.Join(real, "nvme0n1"), filepath.Join(devices, "nvme0n1")))
	found, err := diskOf(devices, "nvme0n1p3")
	require.NoError(t, err)
	assert.Equal(t, "nvme0n1", found)
	_, err = diskOf(devices, "nvme0n1")
	require.ErrorContains(t, err, "is no partition")
}

// Data goes to the disk that the system runs from, whatever other disks have.
func TestTheDiskOfTheSystemIsWhatItRunsFrom(t *testing.T) {
	numbers, at := t.TempDir(), t.TempDir()
	_, err := mounted(numbers, at)
	require.ErrorIs(t, err, os.ErrNotExist)
	var stat unix.Stat_t
	require.NoError(t, unix.Stat(at, &stat))
	require.NoError(t, os.MkdirAll(filepath.Join(numbers, "devices", "sda", "sda3"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join("devices", "sda", "sda3"), filepath.Join(numbers, fmt.Sprintf("%d:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev)))))
	device, err := mounted(numbers, at)
	require.NoError(t, err)
	assert.Equal(t, "/dev/sda3", device)
}

func TestAFileSystemIsKnownByItsMagicNumber(t *testing.T) {
	path := filepath.Join(t.TempDir(), "part")
	content := make([]byte, 4096)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	there, err := hasExt4(path)
	require.NoError(t, err)
	assert.False(t, there)
	binary.LittleEndian.PutUint16(content[1024+56:], 0xEF53)
	require.NoError(t, os.WriteFile(path, content, 0o600))
	there, err = hasExt4(path)
	require.NoError(t, err)
	assert.True(t, there)
}

func TestTheFactorysContentIsCopiedAgainAfterAnInterruption(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(from, "lib/blobs"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(from, "lib/blobs/a"), []byte("whole"), 0o444))
	for range 2 {
		require.NoError(t, copyTree(from, to))
		copied, err := os.ReadFile(filepath.Join(to, "lib/blobs/a"))
		require.NoError(t, err)
		assert.Equal(t, "whole", string(copied))
		require.NoError(t, os.Chmod(filepath.Join(to, "lib/blobs/a"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(to, "lib/blobs/a"), []byte("wh"), 0o600))
	}
}

// certificate is what a kubelet keeps: a certificate that is good until a time, and its key.
func certificate(t *testing.T, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
}

func TestTheTokenIsForgotten(t *testing.T) {
	dir := t.TempDir()
	at, kubeconfig := filepath.Join(dir, "join.json"), filepath.Join(dir, "bootstrap.conf")
	files := joinFiles{values: at, bootstrap: kubeconfig, certificate: filepath.Join(dir, "kubelet-client-current.pem")}
	v := values()
	require.NoError(t, writeSecret(at, v.Token))
	require.NoError(t, writeSecret(kubeconfig, v.BootstrapKubeconfig()))
	held := 0
	flush := func() { // the certificate is on the disk while there is a token
		if content, err := os.ReadFile(at); err == nil && string(content) == v.Token {
			assert.FileExists(t, kubeconfig)
			held++
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, files.forgetToken(over, v, flush), context.Canceled, "a kubelet that starts again before it has a certificate needs the token")
	require.Zero(t, held)
	assert.FileExists(t, kubeconfig)
	for _, unusable := range [][]byte{nil, certificate(t, time.Now().Add(-time.Hour))} {
		require.NoError(t, os.WriteFile(files.certificate, unusable, 0o600))
		require.ErrorIs(t, files.forgetToken(over, v, flush), context.Canceled, "the agent brings a token for another certificate")
		assert.FileExists(t, kubeconfig)
	}
	require.NoError(t, os.WriteFile(files.certificate, certificate(t, time.Now().Add(time.Hour)), 0o600))
	for range 2 { // as after a crash in between
		require.NoError(t, files.forgetToken(t.Context(), v, flush))
		content, err := os.ReadFile(at)
		require.NoError(t, err)
		assert.NotContains(t, string(content), v.Token)
		assert.Contains(t, string(content), "worker-1")
		assert.NoFileExists(t, kubeconfig)
	}
	assert.Equal(t, 1, held)
	info, err := os.Stat(at)
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())
}

func TestAFileIsOverwrittenBeforeItIsDeleted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(path, []byte("secret"), 0o600))
	other := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Link(path, other))
	require.NoError(t, kubelet.Erase(path))
	assert.NoFileExists(t, path)
	left, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.Equal(t, make([]byte, 6), left)
}

func TestThePowerButtonIsThePowerKeyGoingDown(t *testing.T) {
	var device bytes.Buffer
	for _, e := range []inputEvent{{Kind: 1, Code: 30, Value: 1}, {Kind: 0}, {Kind: 1, Code: 116, Value: 0}, {Kind: 1, Code: 116, Value: 1}, {Kind: 1, Code: 30, Value: 1}} {
		require.NoError(t, binary.Write(&device, binary.NativeEndian, e))
	}
	reads := 0
	awaitPress(func(p []byte) (int, error) {
		reads++
		return device.Read(p[:24])
	})
	assert.Equal(t, 4, reads)
}

func TestProgramsOfTheKernelDoNotCount(t *testing.T) {
	proc := t.TempDir()
	for _, pid := range []string{"1", "2"} {
		require.NoError(t, os.Mkdir(filepath.Join(proc, pid), 0o700))
	}
	require.NoError(t, os.Symlink(initPath, filepath.Join(proc, "1", "exe")))
	assert.False(t, processes(proc))
	require.NoError(t, os.Mkdir(filepath.Join(proc, "30"), 0o700))
	require.NoError(t, os.Symlink("/usr/bin/sleep", filepath.Join(proc, "30", "exe")))
	assert.True(t, processes(proc))
}

func TestARefusedMachineReportsNothingElse(t *testing.T) {
	reports := node{refusal: "no token"}.reports()
	require.Len(t, reports, 1)
	assert.Equal(t, "report Failed", reports[0].Name)
	all := node{joins: true}.reports()
	require.True(t, slices.ContainsFunc(all[1].After, func(name string) bool { return name == "certificate" }))
	assert.Equal(t, "report Done", all[2].Name)
}
