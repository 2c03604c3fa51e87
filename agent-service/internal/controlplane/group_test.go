// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/agent-service/internal/join"
)

// apiAt is the address of the API in tests, and members are the machines of the group.
const apiAt = "192.0.2.100"

var members = []join.Member{
	{Name: "a", Address: netip.MustParseAddr("192.0.2.11")}, {Name: "b", Address: netip.MustParseAddr("192.0.2.12")}, {Name: "c", Address: netip.MustParseAddr("192.0.2.13")},
}

// newGroup is the first-boot data of each machine of a group that began at noon.
func newGroup(t *testing.T) []*join.ControlPlane {
	t.Helper()
	planes, _ := newGroupWith(t, noon, "")
	return planes
}

// newGroupWith is newGroup with objects that the cluster begins with, and what the service keeps.
func newGroupWith(t *testing.T, begin time.Time, objects string) ([]*join.ControlPlane, Secrets) {
	t.Helper()
	server := "https://" + apiAt + ":6443"
	ca, secrets, err := New(begin, "blue", server)
	require.NoError(t, err)
	shared, err := NewShared(begin)
	require.NoError(t, err)
	var planes []*join.ControlPlane
	for _, m := range members {
		plane := &join.ControlPlane{
			Cluster: "blue", Server: server, CA: ca, CAKey: secrets.CAKey,
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
			Objects: objects, Group: &join.Group{Name: m.Name, Members: members, Shared: *shared},
		}
		content, err := json.Marshal(plane)
		require.NoError(t, err)
		read, err := join.ReadControlPlane(content)
		require.NoError(t, err)
		assert.Equal(t, plane, read)
		planes = append(planes, read)
	}
	return planes, secrets
}

// fixed is a machine with one address.
type fixed struct{ address netip.Addr }

func (f fixed) Addresses() ([]netip.Addr, error) { return []netip.Addr{f.address}, nil }
func (fixed) Add(netip.Addr, netip.Addr) error   { return errors.New("not in this test") }
func (fixed) Remove(netip.Addr) error            { return nil }

// newMember is a machine of a group that has written what its programs read.
func newMember(t *testing.T) Machine {
	t.Helper()
	m := Machine{ControlPlane: newGroup(t)[0], Dir: t.TempDir(), Interfaces: fixed{members[0].Address}, Say: t.Logf}
	require.NoError(t, m.write(noon))
	return m
}

func TestMachinesOfAGroupShareTheirKeys(t *testing.T) {
	planes := newGroup(t)
	shared := map[string]string{}
	for _, plane := range planes {
		m := Machine{ControlPlane: plane, Dir: t.TempDir()}
		require.NoError(t, m.write(noon))
		for _, name := range []string{"ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "etcd-ca.crt", "etcd-ca.key", "sa.key", "sa.pub"} {
			content := string(m.read(t, "pki/"+name))
			if there, known := shared[name]; known {
				assert.Equal(t, there, content, name)
			}
			shared[name] = content
		}
		serving := certificate(t, m.read(t, "pki/apiserver.crt"))
		for _, name := range []string{apiAt, "127.0.0.1", plane.Group.Own().Address.String(), "10.96.0.1"} {
			require.NoError(t, serving.VerifyHostname(name))
		}
		own := certificate(t, m.read(t, "pki/"+peer+".crt"))
		require.NoError(t, own.VerifyHostname(plane.Group.Own().Address.String()))
		require.Error(t, own.VerifyHostname(apiAt), "a member has its own address alone")
		etcds, cluster := x509.NewCertPool(), x509.NewCertPool()
		require.True(t, etcds.AppendCertsFromPEM([]byte(plane.Group.Etcd.CA)))
		require.True(t, cluster.AppendCertsFromPEM([]byte(plane.CA)))
		for _, usage := range asPeer {
			_, err := own.Verify(x509.VerifyOptions{Roots: etcds, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: noon})
			require.NoError(t, err)
			_, err = own.Verify(x509.VerifyOptions{Roots: cluster, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: noon})
			require.Error(t, err, "a member of etcd is no user of the cluster")
			for _, name := range []string{admin, "apiserver", "kubelet-client", frontProxy} {
				_, err = certificate(t, m.read(t, "pki/"+name+".crt")).Verify(x509.VerifyOptions{Roots: etcds, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: noon})
				require.Error(t, err, "%s of the cluster is no member of etcd", name)
			}
		}
		assert.Contains(t, string(m.read(t, controllerManager+".conf")), "server: https://127.0.0.1:6443", "the machine does not need the address of the API")
	}
	for _, shown := range []string{fmt.Sprintf("%+v", planes[0].Group), fmt.Sprintf("%#v", planes[0].Group.Shared), fmt.Sprint(planes[0].Group.Etcd), fmt.Sprintf("%#v", planes[0].Group.Etcd)} {
		assert.NotContains(t, shown, "PRIVATE")
	}
}

func TestMembersOfEtcdHaveNoOtherClientThanTheirMachine(t *testing.T) {
	planes := newGroup(t)
	m := Machine{ControlPlane: planes[1], Dir: "/d"}
	assert.ElementsMatch(t, []string{
		"--data-dir=/d/etcd", "--listen-client-urls=unix://etcd.sock", "--advertise-client-urls=unix://etcd.sock", "--log-level=warn", "--name=b",
		"--listen-peer-urls=https://192.0.2.12:2380", "--initial-advertise-peer-urls=https://192.0.2.12:2380",
		"--initial-cluster=a=https://192.0.2.11:2380,b=https://192.0.2.12:2380,c=https://192.0.2.13:2380", "--initial-cluster-state=new", "--initial-cluster-token=" + m.clusterToken(),
		"--heartbeat-interval=500", "--election-timeout=5000",
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file=/d/pki/etcd-ca.crt", "--peer-cert-file=/d/pki/etcd-peer.crt", "--peer-key-file=/d/pki/etcd-peer.key",
	}, m.etcd())
	assert.NotEqual(t, m.clusterToken(), Machine{ControlPlane: newGroup(t)[1]}.clusterToken(), "an installation that is repeated is another cluster")
	assert.Contains(t, m.controllerManager(), "--leader-elect=true")
	assert.Contains(t, m.scheduler(), "--leader-elect=true")
	assert.Subset(t, m.apiServer(), []string{"--bind-address=0.0.0.0", "--advertise-address=192.0.2.12"})
	one, _ := newMachine(t)
	assert.Contains(t, one.controllerManager(), "--leader-elect=false")
	assert.Subset(t, one.apiServer(), []string{"--bind-address=192.0.2.7", "--advertise-address=192.0.2.7"})
}

func TestAMemberWithoutItsAddressOrItsDataDoesNotStart(t *testing.T) {
	started := func(m Machine) error {
		ran := errors.New("etcd runs")
		err := m.asMember(func(context.Context) error { return ran })(t.Context())
		if errors.Is(err, ran) {
			return nil
		}
		require.Error(t, err)
		return err
	}
	m := newMember(t)
	require.NoError(t, started(m), "it begins: nothing is remembered, and the others are silent")
	elsewhere := m
	elsewhere.Interfaces = fixed{netip.MustParseAddr("192.0.2.99")}
	err := started(elsewhere)
	require.ErrorContains(t, err, "the other control planes know this machine, a, by the address 192.0.2.11, and it has [192.0.2.99]: give it that address again")

	require.NoError(t, os.MkdirAll(m.path("etcd", "member"), 0o700))
	require.NoError(t, started(m), "a member that was stopped before it was ready goes on")
	require.NoError(t, m.remember())
	require.NoError(t, m.remember())
	require.NoError(t, started(m))
	require.ErrorContains(t, started(elsewhere), "give it that address again")

	other := m
	other.ControlPlane = newGroup(t)[0]
	require.ErrorContains(t, started(other), "this machine was the member a (192.0.2.11) of another control plane")
	require.NoError(t, os.RemoveAll(m.path("etcd")))
	err = started(m)
	require.ErrorContains(t, err, "the control plane of this machine, a, has lost its data")
	assert.NotContains(t, err.Error(), strings.Split(m.CAKey, "\n")[1])
}
