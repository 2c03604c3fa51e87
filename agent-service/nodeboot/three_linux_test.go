// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeboot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/join"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/needtest"
	"github.com/muster-io/muster/apis/netnstest"
	"github.com/muster-io/muster/apis/nodeobjects"
)

func TestMain(m *testing.M) { netnstest.Main(m) }

// apiAt is the address of the API of three machines, on the link of the test.
const apiAt = "10.77.0.90"

// three are machines that run one control plane.
type three struct {
	*plane
	hardware []machinetest.Hardware
	machines []*machinetest.Machine
}

// newThree prepares the disks of three machines with what agent-service gives them.
func newThree(t *testing.T) *three {
	t.Helper()
	server := "https://" + apiAt + ":6443"
	ca, secrets, err := controlplane.New(time.Now(), "green", server)
	require.NoError(t, err)
	shared, err := controlplane.NewShared(time.Now())
	require.NoError(t, err)
	objects, err := nodeobjects.Render(nodeobjects.Settings{ClusterDNS: netip.MustParseAddr("10.96.0.10"), DNSImage: sandbox})
	require.NoError(t, err)
	pods, services := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	var members []join.Member
	for i := range 3 {
		members = append(members, join.Member{Name: fmt.Sprintf("plane-%d", i+1), Address: netip.MustParseAddr(fmt.Sprintf("10.77.0.%d", 11+i))})
	}
	s, link := &three{}, netnstest.NewLink(t)
	for i, own := range members {
		files := map[string]string{"/etc/NetworkManager/system-connections/nic0.nmconnection": fmt.Sprintf(
			"[connection]\nid=nic0\nuuid=1\ntype=ethernet\n\n[ethernet]\nmac-address=52:54:00:00:00:%02x\n\n[ipv4]\nmethod=manual\naddress1=%s/24\nroute1=0.0.0.0/0,%s\n", i+1, own.Address, netnstest.Address)}
		for path, content := range map[string]any{
			join.ControlPlanePath: join.ControlPlane{
				Cluster: "green", Server: server, CA: ca, CAKey: secrets.CAKey, PodCIDRs: pods, ServiceCIDRs: services, Objects: string(objects),
				Group: &join.Group{Name: own.Name, Members: members, Shared: *shared},
			},
			join.Path: join.Values{
				NodeName: own.Name, NodeIPs: []netip.Addr{own.Address}, Server: server, CA: ca, Token: token, ClusterDomain: hivev1.DefaultClusterDomain,
				PodCIDRs: pods, KubernetesVersion: version(), Network: join.HostGateway,
			},
		} {
			text, err := json.Marshal(content)
			require.NoError(t, err)
			files[path] = string(text)
		}
		s.hardware = append(s.hardware, machinetest.Hardware{Number: i + 1, Tap: link.Tap(t), Disk: newDisk(t, files), MemoryMiB: 2048})
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(secrets.NodeManager))
	require.NoError(t, err)
	config = rest.CopyConfig(config)
	config.Timeout, config.QPS = 30*time.Second, -1
	manager, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	s.plane = &plane{admin: manager}
	return s
}

// approve approves what the machines of the control plane may ask for. It may be asked of an API that moves.
func (s *three) approve(t *testing.T) {
	t.Helper()
	list, err := s.admin.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, csr := range list.Items {
		if len(csr.Status.Conditions) > 0 {
			continue
		}
		csr.Status.Conditions = append(csr.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test"})
		_, _ = s.admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), csr.Name, &csr, metav1.UpdateOptions{})
	}
}

// ready are the names of the nodes that are Ready, by word that is newer than a time.
func (s *three) ready(t *testing.T, since time.Time) []string {
	t.Helper()
	s.approve(t)
	list, err := s.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var names []string
	for _, node := range list.Items {
		if slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && c.LastHeartbeatTime.After(since)
		}) {
			names = append(names, node.Name)
		}
	}
	return names
}

func (s *three) until(t *testing.T, what string, holds func() bool, machines ...*machinetest.Machine) {
	t.Helper()
	machinetest.Until(t, what, func() error {
		if holds() {
			return nil
		}
		return errors.New("not yet")
	}, machines...)
}

// holder is the machine that has taken the address of the API last.
func (s *three) holder() int {
	return slices.IndexFunc(s.machines, func(m *machinetest.Machine) bool {
		text := m.String()
		return strings.LastIndex(text, "takes the address "+apiAt) > strings.LastIndex(text, "has no longer the address "+apiAt)
	})
}

// Three machines run the control plane of their cluster, and are nodes of it. The power of the one that has the address of the API is cut; the cluster goes on, and takes it back.
func TestThreeMachinesRunTheControlPlaneOfTheirCluster(t *testing.T) {
	machinetest.NeedCores(t, "MUSTER_NODE_THREE")
	netnstest.Need(t)
	needtest.File(t, nodeImage, "there is no node image to boot: make node-image builds it")
	s := newThree(t)
	for _, h := range s.hardware {
		s.machines = append(s.machines, machinetest.PowerOn(t, h))
	}
	machinetest.Until(t, "the node manager can make tokens", func() error { return s.makeToken(t) }, s.machines...)
	s.until(t, "all nodes are Ready", func() bool { return len(s.ready(t, time.Time{})) == 3 }, s.machines...)
	list, err := s.admin.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, node := range list.Items {
		assert.NotContains(t, node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: apiAt}, node.Name)
	}

	lost := s.holder()
	require.NotEqual(t, -1, lost)
	cut := time.Now()
	s.machines[lost].Kill()
	others := slices.Delete(slices.Clone(s.machines), lost, lost+1)
	s.until(t, "the API is back, and the others are Ready", func() bool { return len(s.ready(t, cut)) == 2 }, others...)

	back := time.Now()
	s.machines[lost] = machinetest.PowerOn(t, s.hardware[lost])
	s.until(t, "all nodes are Ready again", func() bool { return len(s.ready(t, back)) == 3 }, s.machines...)
	assert.NotContains(t, s.machines[lost].String(), "etcd ended")
}
