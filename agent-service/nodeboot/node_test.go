// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

// Package nodeboot_test boots the node image on machines that QEMU emulates, and joins a real control plane.
package nodeboot_test

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/partition/gpt"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"

	"github.com/muster-io/muster/agent-service/internal/join"
)

const (
	nodeImage = "../../bin/node/node.img.zst"
	nodeList  = "../../bin/node/node.json"
	address   = "10.0.2.77"
	tokenID   = "abcdef"
	token     = tokenID + ".0123456789abcdef"
	sandbox   = "muster.local/pause:1"
)

// needNodes ends a test that emulates a node where that cannot be done, or would take too long.
func needNodes(t *testing.T) {
	t.Helper()
	machinetest.NeedCores(t, "MUSTER_NODE_TESTS")
	needtest.File(t, nodeImage, "there is no node image to boot: make node-image builds it")
}

// newDisk is a disk with the image and first-boot data, which names files and their contents.
func newDisk(t *testing.T, files map[string]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk.img")
	image, err := os.Open(nodeImage)
	require.NoError(t, err)
	defer func() { _ = image.Close() }()
	plain, err := zstd.NewReader(image)
	require.NoError(t, err)
	defer plain.Close()
	file, err := os.Create(path)
	require.NoError(t, err)
	_, err = io.Copy(file, plain)
	require.NoError(t, errors.Join(err, file.Truncate(8<<30), file.Close()))

	type source struct {
		Source string `json:"source"`
	}
	type ignitionFile struct {
		Path     string `json:"path"`
		Mode     int    `json:"mode"`
		Contents source `json:"contents"`
	}
	var list []ignitionFile
	for name, content := range files {
		list = append(list, ignitionFile{name, 0o600, source{"data:;base64," + base64.StdEncoding.EncodeToString([]byte(content))}})
	}
	ignition, err := json.Marshal(map[string]any{"ignition": map[string]any{"version": "3.2.0"}, "storage": map[string]any{"files": list}})
	require.NoError(t, err)
	disk, err := diskfs.Open(path)
	require.NoError(t, err)
	defer func() { assert.NoError(t, disk.Close()) }()
	boot, err := disk.GetFilesystem(2)
	require.NoError(t, err)
	require.NoError(t, boot.Mkdir("/ignition"))
	config, err := boot.OpenFile("/ignition/config.ign", os.O_CREATE|os.O_RDWR)
	require.NoError(t, err)
	_, err = config.Write(ignition)
	require.NoError(t, errors.Join(err, config.Close()))
	return path
}

// power switches on a machine with a disk, and as little memory as a node may have.
func power(t *testing.T, disk string) *machinetest.Machine {
	t.Helper()
	return machinetest.PowerOn(t, machinetest.Hardware{Disk: disk, MemoryMiB: 1024})
}

// pressPower switches a machine off, as its system does it.
func pressPower(t *testing.T, m *machinetest.Machine) {
	t.Helper()
	m.PressPower(t)
	assert.Contains(t, m.String(), "the machine is switched off")
}

// until waits for something, while the machine runs.
func until(t *testing.T, m *machinetest.Machine, what string, holds func() bool) {
	t.Helper()
	m.Until(t, what, func() error {
		if holds() {
			return nil
		}
		return errors.New("not yet")
	})
}

// values are those of a machine that joins a control plane.
func values(p *plane) join.Values {
	return join.Values{
		NodeName: "worker-1", NodeIPs: []netip.Addr{netip.MustParseAddr(address)}, Server: "https://" + machinetest.Gateway + ":" + p.port, CA: string(p.ca), Token: token,
		ClusterDomain: hivev1.DefaultClusterDomain, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, KubernetesVersion: version(), Network: join.HostGateway,
		Labels: map[string]string{"rack": "a"}, Taints: []join.Taint{{Key: "dedicated", Value: "test", Effect: "NoSchedule"}},
	}
}

// version is that of the image.
func version() string {
	content, err := os.ReadFile(nodeList)
	var list []struct {
		Version string `json:"version"`
	}
	if err == nil {
		err = json.Unmarshal(content, &list)
	}
	if err != nil || len(list) == 0 {
		return ""
	}
	return list[0].Version
}

// staticNetwork is a profile as first-boot data brings it.
const staticNetwork = "[connection]\nid=nic0\nuuid=1\ntype=ethernet\n\n[ethernet]\nmac-address=" + machinetest.MAC + "\n\n[ipv4]\nmethod=manual\naddress1=" + address + "/24\nroute1=0.0.0.0/0,10.0.2.2\ndns=10.0.2.3;\n"

// admit lets machines join as docs/spec/node-access.md says.
func (p *plane) admit(t *testing.T) {
	t.Helper()
	for role, group := range map[string]string{
		"system:node-bootstrapper": hivev1.NodeBootstrapGroup, "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient": "system:nodes", "system:node-proxier": "system:nodes",
	} {
		_, err := p.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "nodes-"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: group}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, p.makeToken(t))
}

// makeToken makes the token that the machine joins with, once.
func (p *plane) makeToken(t *testing.T) error {
	t.Helper()
	_, err := p.admin.CoreV1().Secrets("kube-system").Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID}, Type: "bootstrap.kubernetes.io/token",
		StringData: map[string]string{
			"token-id": tokenID, "token-secret": strings.TrimPrefix(token, tokenID+"."), "usage-bootstrap-authentication": "true", "auth-extra-groups": hivev1.NodeBootstrapGroup,
			"expiration": time.Now().Add(2 * time.Hour).UTC().Format(time.RFC3339),
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // an answer that came too late
		return nil
	}
	return err
}

// approve approves what this node may ask for, and nothing else. An emulated API server that does not answer in time is asked again by what waits.
func (p *plane) approve(t *testing.T) {
	t.Helper()
	list, err := p.admin.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Logf("listing certificate requests: %v", err)
		return
	}
	for _, csr := range list.Items {
		if len(csr.Status.Conditions) > 0 {
			continue
		}
		block, _ := pem.Decode(csr.Spec.Request)
		request, err := x509.ParseCertificateRequest(block.Bytes)
		require.NoError(t, err)
		assert.Equal(t, "system:node:worker-1", request.Subject.CommonName)
		asked := csr.Spec.Username
		switch csr.Spec.SignerName {
		case certificatesv1.KubeAPIServerClientKubeletSignerName:
			assert.Equal(t, "system:bootstrap:"+tokenID, asked)
		case certificatesv1.KubeletServingSignerName:
			assert.Equal(t, "system:node:worker-1", asked)
			require.Len(t, request.IPAddresses, 1)
			assert.Equal(t, address, request.IPAddresses[0].String())
		default:
			assert.Fail(t, "an unknown signer", csr.Spec.SignerName)
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
		if _, err = p.admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), csr.Name, &csr, metav1.UpdateOptions{}); err != nil {
			t.Logf("approving certificate request %s: %v", csr.Name, err)
			return
		}
	}
}

// ready returns the node when it is Ready.
func (p *plane) ready(t *testing.T, since time.Time) *corev1.Node {
	t.Helper()
	node, err := p.admin.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
	if err != nil || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.After(since)
	}) {
		return nil
	}
	return node
}

// The image is small, and its entry for --os-images has its checksum.
func TestTheNodeImageIsSmall(t *testing.T) {
	needNodes(t)
	content, err := os.ReadFile(nodeImage)
	require.NoError(t, err)
	assert.Less(t, len(content), 200_000_000)
	list, err := os.ReadFile(nodeList)
	require.NoError(t, err)
	assert.Contains(t, string(list), fmt.Sprintf(`"sha256":"%x"`, sha256.Sum256(content)))
}

func TestAMachineBecomesANodeThatRunsPods(t *testing.T) {
	needNodes(t)
	p := startPlane(t)
	p.admit(t)
	v := values(p)
	content, err := json.Marshal(v)
	require.NoError(t, err)
	disk := newDisk(t, map[string]string{join.Path: string(content), "/etc/NetworkManager/system-connections/nic0.nmconnection": staticNetwork})
	first := power(t, disk)
	until(t, first, "the machine asks for a certificate", func() bool {
		asked, err := p.admin.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
		return err == nil && len(asked.Items) > 0
	})
	assert.NotContains(t, first.String(), "certificate is done", "it needs the token until it has one")
	first.Kill()

	m := power(t, disk)
	var node *corev1.Node
	until(t, m, "the node is Ready", func() bool {
		p.approve(t)
		node = p.ready(t, time.Time{})
		return node != nil
	})
	assert.Equal(t, v.KubernetesVersion, node.Status.NodeInfo.KubeletVersion)
	assert.Contains(t, node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	assert.Equal(t, "a", node.Labels["rack"])
	assert.True(t, slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "dedicated" }))
	assert.Greater(t, node.Status.Capacity.StorageEphemeral().Value(), int64(6<<30), "the file system for data has the rest of the disk")

	_, err = p.admin.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "first"},
		Spec: corev1.PodSpec{
			NodeName: "worker-1", AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(1)),
			Containers: []corev1.Container{{Name: "first", Image: sandbox, ImagePullPolicy: corev1.PullNever}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	var pod *corev1.Pod
	until(t, m, "the pod runs", func() bool {
		p.approve(t)
		pod, err = p.admin.CoreV1().Pods("default").Get(t.Context(), "first", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
	within := netip.MustParsePrefix(node.Spec.PodCIDR)
	assert.True(t, within.Contains(netip.MustParseAddr(pod.Status.PodIP)), "%s is not in %s", pod.Status.PodIP, within)
	m.Says(t, "certificate is done")
	pressPower(t, m)
	assert.NotContains(t, m.String(), token)
	assertErased(t, disk)

	off := time.Now()
	again := power(t, disk)
	until(t, again, "the node is Ready again, with its own certificate", func() bool { return p.ready(t, off) != nil })
	assert.NotContains(t, again.String(), "the partition 4 for data has", "it is there")
}

// assertErased looks at the disk from outside: the first-boot data is not on its partition any more, deleted or not.
func assertErased(t *testing.T, path string) {
	t.Helper()
	disk, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadOnly))
	require.NoError(t, err)
	defer func() { _ = disk.Close() }()
	boot, err := disk.GetFilesystem(2)
	require.NoError(t, err)
	entries, err := boot.ReadDir("ignition")
	require.NoError(t, err)
	for _, entry := range entries {
		assert.NotEqual(t, "config.ign", strings.ToLower(entry.Name()))
	}
	file, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	partition := make([]byte, 65<<20)
	_, err = io.ReadFull(file, partition)
	require.NoError(t, err)
	assert.False(t, bytes.Contains(partition, []byte("data:;base64,")), "the first-boot data is overwritten")
}

func TestAMachineWithUEFIStartsAndStops(t *testing.T) {
	needNodes(t)
	m := machinetest.PowerOn(t, machinetest.Hardware{Disk: newDisk(t, map[string]string{"/etc/hostname": "lonely\n"}), MemoryMiB: 1024, UEFI: true})
	m.Says(t, "this machine joins no cluster")
	m.Says(t, "containerd is ready")
	pressPower(t, m)
}

// otherSystem is a disk with the partitions of CoreOS, one of them for /var, and no room for more.
func otherSystem(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "other.img")
	disk, err := diskfs.Create(path, 1<<30, diskfs.SectorSize512)
	require.NoError(t, err)
	require.NoError(t, disk.Partition(&gpt.Table{LogicalSectorSize: 512, PhysicalSectorSize: 512, ProtectiveMBR: true, Partitions: []*gpt.Partition{
		{Index: 1, Start: 2048, End: 4095, Type: gpt.BIOSBoot, Name: "BIOS-BOOT"}, {Index: 2, Start: 4096, End: 8191, Type: gpt.EFISystemPartition, Name: "EFI-SYSTEM"},
		{Index: 3, Start: 8192, End: 16383, Type: gpt.LinuxFilesystem, Name: "boot"}, {Index: 4, Start: 16384, End: 32767, Type: gpt.LinuxFilesystem, Name: "root"},
		{Index: 5, Start: 32768, End: 2095103, Type: gpt.LinuxFilesystem, Name: "var"},
	}}))
	require.NoError(t, disk.Close())
	return path
}

func TestADiskOfAnotherSystemIsLeftAsItIs(t *testing.T) {
	needNodes(t)
	other := otherSystem(t)
	before, err := os.ReadFile(other)
	require.NoError(t, err)
	m := machinetest.PowerOn(t, machinetest.Hardware{
		Disk: newDisk(t, map[string]string{"/etc/hostname": "lonely\n"}), MemoryMiB: 1024,
		More: []string{"-drive", "file=" + other + ",format=raw,if=none,id=other", "-device", "nvme,drive=other,serial=OTHER"},
	})
	m.Says(t, "the first-boot data has 1 files")
	m.Says(t, "containerd is ready")
	pressPower(t, m)
	after, err := os.ReadFile(other)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after), "the other disk was written to")
}
