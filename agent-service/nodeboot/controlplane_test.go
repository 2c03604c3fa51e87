// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeboot_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/muster-io/muster/agent-service/internal/controlplane"
	"github.com/muster-io/muster/agent-service/internal/join"
	hivev1 "github.com/muster-io/muster/apis/hive/v1"
	"github.com/muster-io/muster/apis/machinetest"
	"github.com/muster-io/muster/apis/nodeobjects"
	"github.com/muster-io/muster/apis/porttest"
)

// A machine runs the control plane of its cluster, and is a node of it. The test stands for agent-service, with the credentials that this has: those of the node manager.
func TestAMachineRunsTheControlPlaneOfItsCluster(t *testing.T) {
	needNodes(t)
	server := "https://" + address + ":6443"
	ca, secrets, err := controlplane.New(time.Now(), "green", server)
	require.NoError(t, err)
	objects, err := nodeobjects.Render(nodeobjects.Settings{ClusterDNS: netip.MustParseAddr("10.96.0.10"), DNSImage: sandbox})
	require.NoError(t, err)
	pods, services := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	files := map[string]string{"/etc/NetworkManager/system-connections/nic0.nmconnection": staticNetwork}
	for path, content := range map[string]any{
		join.ControlPlanePath: join.ControlPlane{Cluster: "green", Server: server, CA: ca, CAKey: secrets.CAKey, PodCIDRs: pods, ServiceCIDRs: services, Objects: string(objects)},
		join.Path: join.Values{
			NodeName: "worker-1", NodeIPs: []netip.Addr{netip.MustParseAddr(address)}, Server: server, CA: ca, Token: token, ClusterDomain: hivev1.DefaultClusterDomain,
			PodCIDRs: pods, KubernetesVersion: version(), Network: join.HostGateway,
		},
	} {
		text, err := json.Marshal(content)
		require.NoError(t, err)
		files[path] = string(text)
	}
	disk, port := newDisk(t, files), porttest.Free(t)
	machine := machinetest.Hardware{Disk: disk, MemoryMiB: 2048, Forward: "tcp:127.0.0.1:" + port + "-" + address + ":6443"}
	m := machinetest.PowerOn(t, machine)
	p := &plane{admin: through(t, secrets.NodeManager, port)}
	m.Until(t, "the node manager can make tokens", func() error { return p.makeToken(t) })
	var node *corev1.Node
	until(t, m, "the node is Ready", func() bool {
		p.approve(t)
		node = p.ready(t, time.Time{})
		return node != nil
	})
	assert.Contains(t, node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	m.Says(t, "objects of the cluster is done")
	pressPower(t, m)
	assertErased(t, disk)

	off := time.Now()
	again := machinetest.PowerOn(t, machine)
	until(t, again, "the control plane is back with its data, and the node Ready", func() bool { return p.ready(t, off) != nil })
}

// through is a client of an API server whose port of the machine is a port of this one.
func through(t *testing.T, kubeconfig, port string) kubernetes.Interface {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	require.NoError(t, err)
	config = rest.CopyConfig(config)
	config.Host, config.ServerName, config.Timeout, config.QPS = "https://127.0.0.1:"+port, address, 30*time.Second, -1
	made, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return made
}
