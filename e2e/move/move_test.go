// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"bytes"
	"fmt"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// scratch holds what the planes need, until all tests are done.
var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		ctrl.SetLogger(logr.Discard())
		var err error
		if scratch, err = os.MkdirTemp("", "muster-move-"); err != nil {
			log.Print(err)
			return 1
		}
		done, err := removeAtTheEnd(scratch)
		if err != nil {
			log.Print(err)
			return 1
		}
		defer done()
		// The mover does not read the configuration of the user who runs the tests.
		if err := os.Setenv("XDG_CONFIG_HOME", scratch); err != nil {
			log.Print(err)
			return 1
		}
		defer func() {
			if started {
				for _, p := range []*plane{both().source, both().target} {
					if p != nil {
						p.close()
					}
				}
			}
		}()
		return m.Run()
	}())
}

// removeAtTheEnd removes a directory when this process says so, or has ended, also when it was killed.
func removeAtTheEnd(dir string) (now func(), err error) {
	cmd := exec.Command("sh", "-c", `cat >/dev/null; rm -rf "$1"`, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() { _ = pipe.Close(); _ = cmd.Wait() }, nil
}

// started says that there are planes to end.
var started bool

// needPlanes skips a test where the programs are missing that it looks at.
func needPlanes(t *testing.T) {
	t.Helper()
	needPrograms(t)
	started = true
}

// needPrograms skips a test that starts what it needs by itself where the programs are missing.
func needPrograms(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("two API servers are not for a short run")
	}
	for _, program := range []string{controlPlane, ipamOperator} {
		if _, err := os.Stat(program); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not there", program)
			}
			t.Skipf("%s is not there: run 'make controlplane build' first", program)
		}
	}
}

func (p *plane) logTail() string {
	text, err := os.ReadFile(p.operatorLog())
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	lines = lines[max(0, len(lines)-40):]
	return fmt.Sprintf("the end of the log of ipam-operator at the %s:\n%s\n", p.name, bytes.Join(lines, []byte("\n")))
}

// addPools gives the fleet its pools and claims: claims of both kinds, of Machines and of the Cluster, chosen at random, in order, asked for and reserved.
func (f *fleet) addPools() {
	f.create(poolKind, "nodes", pool("nodes", object{
		"clusterName": "c", "allocationStrategy": "random", "pools": span("10.0.0.10", "10.0.0.17"), "prefix": 24, "gateway": "10.0.0.1",
		"preAllocations": object{"reserved": "10.0.0.17"},
	}))
	f.create(poolKind, "v6", pool("v6", object{
		"clusterName": "c", "pools": []any{object{"subnet": "fd00:1::/64", "gateway": "fd00:1::1"}}, "prefix": 64, "dnsServers": []any{"fd00:1::2"},
	}))
	f.create(claimKind, "m-0-nodes", claimOn("nodes"), f.ownedBy("Machine/m-0"), labelled("node", "m-0"))
	f.create(claimKind, "m-1-nodes", claimOn("nodes"), f.ownedBy("Machine/m-1"), labelled("node", "m-1"))
	f.create(claimKind, "m-0-v6", claimOn("v6"), f.ownedBy("Machine/m-0"))
	f.create(claimKind, "reserved", claimOn("nodes"), f.ownedBy("Cluster/c"))
	f.create(claimKind, "asks", claimOn("v6"), f.ownedBy("Machine/m-0"), annotated("ipAddress", "fd00:1::7"))
	f.create(capiClaimKind, "m-0-nodes", capiClaimOn("nodes", object{"clusterName": "c"}), f.ownedBy("Machine/m-0"))
	f.create(capiClaimKind, "m-1-v6", capiClaimOn("v6", object{}), f.ownedBy("Machine/m-1"), labelled(clusterNameLabel, "c"))
}

// addNetworkData lets a machine of the fleet get its metadata and network data, with addresses of the pools.
func (f *fleet) addNetworkData() {
	// Hosts are moved by means of their own, and may come late.
	f.create(hostKind, "h-0", object{"spec": object{"online": true, "bootMACAddress": "52:54:00:00:00:01"}})
	f.create(metal3Machine, "mm-0", object{}, f.ownedBy("Machine/m-0"), annotated("metal3.io/BareMetalHost", f.namespace+"/h-0"))
	f.create(templateKind, "t", object{"spec": object{
		"clusterName": "c",
		"metaData":    object{"ipAddressesFromIPPool": []any{object{"key": "ip", "name": "nodes"}}, "indexes": []any{object{"key": "index"}}},
		"networkData": object{
			"links":    object{"ethernets": []any{object{"type": "phy", "id": "e", "macAddress": object{"string": "52:54:00:00:00:01"}}}},
			"networks": object{"ipv6": []any{object{"id": "n", "link": "e", "ipAddressFromIPPool": "v6"}}},
		},
	}})
	f.create(dataClaimKind, "mm-0", object{"spec": object{"template": object{"name": "t"}}}, f.ownedBy("Metal3Machine/mm-0"))
}

// TestMoveKeepsEveryAddress moves a Cluster and compares everything that moves with it. The target then hands out what was free, and nothing else.
func TestMoveKeepsEveryAddress(t *testing.T) {
	needPlanes(t)
	f := newFleet(t)
	f.addPools()
	f.addNetworkData()
	// A pool that belongs to no Cluster is moved if it says so.
	f.create(poolKind, "shared", pool("shared", object{"pools": span("10.1.0.10", "10.1.0.11")}), labelled(moveLabel, ""))
	f.create(claimKind, "m-0-shared", claimOn("shared"), f.ownedBy("Machine/m-0"), labelled(clusterNameLabel, "c"))
	before := f.served(f.source)
	// Objects of no Cluster stay.
	f.create(poolKind, "stays", pool("stays", object{"pools": span("10.2.0.10", "10.2.0.10")}))
	f.create(claimKind, "stays", claimOn("stays"))
	f.served(f.source)
	addresses := f.watchAddresses(f.target)

	require.NoError(t, f.move(t, f.namespace, &scissors{}))

	f.same(before)
	f.once(addresses, before)
	require.NotEmpty(t, before["/Secret/mm-0-networkdata"].Data)
	f.onlyLeft(f.source, "ipam/IPAddress/stays-10-2-0-10", "ipam/IPClaim/stays", "ipam/IPPool/stays")
	assert.Equal(t, "True", f.facts(f.source)["ipam/IPClaim/stays"].Says["ready"])
	f.noContradictions(f.source)
	f.noContradictions(f.target)
	f.targetServes(before)
	f.noContradictions(f.target)
}

// targetServes takes all that is free in the pool "nodes" with new claims of both kinds, then gives one address back that was moved.
func (f *fleet) targetServes(before map[string]fact) {
	f.t.Helper()
	addresses := func(all map[string]fact) []string {
		return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(name string) bool { return !strings.HasPrefix(name, "ipam/IPAddress/nodes-") })
	}
	taken, free := addresses(before), before["ipam/IPPool/nodes"].Says["free"].(int64)
	require.Equal(f.t, 8, len(taken)+int(free))
	f.createAt(f.target, capiClaimKind, "new", capiClaimOn("nodes", object{"clusterName": "c"}))
	for i := range free - 1 {
		f.createAt(f.target, claimKind, fmt.Sprint("new-", i), claimOn("nodes"))
	}
	after := f.served(f.target)
	assert.Len(f.t, addresses(after), 8)
	for _, name := range taken {
		assert.Equal(f.t, before[name], after[name], "%s was taken before the move", name)
	}
	f.createAt(f.target, claimKind, "late", claimOn("nodes"))
	f.eventually("the claim is not refused", func() bool {
		return f.facts(f.target)["ipam/IPClaim/late"].Says["errorMessage"] == "Exhausted IP Pools"
	})
	moved := after["ipam/IPClaim/m-1-nodes"].Says["address"].(object)["name"]
	require.NoError(f.t, f.target.Delete(f.t.Context(), f.named(claimKind, "m-1-nodes")))
	f.eventually("the claim does not get the address that was given back", func() bool {
		address, ok := f.facts(f.target)["ipam/IPClaim/late"].Says["address"].(object)
		return ok && address["name"] == moved
	})
}

// TestMoveKeepsAddressesOfPoolsElsewhere moves a Cluster one of whose claims has its address of a pool in another namespace, which stays. Something uses the address at the
// target, so that the source gives it to no other claim.
func TestMoveKeepsAddressesOfPoolsElsewhere(t *testing.T) {
	needPlanes(t)
	f := newFleet(t)
	infra := f.namespace + "-infra"
	for _, p := range []*plane{f.source, f.target} {
		require.NoError(t, p.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: infra}}))
	}
	abroad := func(spec object) object {
		spec["pools"], spec["allowedNamespaces"] = span("10.3.0.10", "10.3.0.11"), object{"from": "All"}
		return pool("abroad", spec)
	}
	claim := object{"spec": object{"pool": object{"name": "abroad", "namespace": infra}}}
	f.createAt(f.source, poolKind, "abroad", abroad(object{}), in(infra))
	f.create(claimKind, "m-0-abroad", claim, f.ownedBy("Machine/m-0"), labelled(clusterNameLabel, "c"))
	before := f.served(f.source)
	held := f.named(addressKind, before["ipam/IPClaim/m-0-abroad"].Says["address"].(object)["name"].(string))
	held.SetNamespace(infra)
	require.NoError(t, f.source.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	address, _, _ := unstructured.NestedString(held.Object, "spec", "address")
	f.createAt(f.target, poolKind, "abroad", abroad(object{"preAllocations": object{f.namespace + "/m-0-abroad": address}}), in(infra))

	require.NoError(t, f.move(t, f.namespace, &scissors{}))

	f.same(before)
	f.onlyLeft(f.source)
	require.NoError(t, f.source.Get(t.Context(), client.ObjectKeyFromObject(held), held))
	require.Nil(t, held.GetDeletionTimestamp())
	f.create(claimKind, "second", claim)
	f.served(f.source)
	f.create(claimKind, "third", claim)
	f.eventually("the address that was moved away is given to another claim", func() bool {
		return f.facts(f.source)["ipam/IPClaim/third"].Says["errorMessage"] == "Exhausted IP Pools"
	})
	for _, p := range []*plane{f.source, f.target} {
		f.noContradictions(p)
	}
	require.NoError(t, f.source.Delete(t.Context(), held))
	f.eventually("the address that is not used any more is given to no claim", func() bool {
		given, ok := f.facts(f.source)["ipam/IPClaim/third"].Says["address"].(object)
		return ok && given["name"] == held.GetName()
	})
}

// in puts an object into another namespace than that of the fleet.
func in(namespace string) change {
	return func(obj *unstructured.Unstructured) { obj.SetNamespace(namespace) }
}

// TestACutMoveIsRepeated cuts a move off, lets the Cluster at the source go on as the mover demands, and moves again.
func TestACutMoveIsRepeated(t *testing.T) {
	needPlanes(t)
	for name, cut := range map[string]*scissors{
		"before the Cluster is there":                           {at: "target POST clusters"},
		"when claims are there without their addresses":         {at: "target POST ipaddresses"},
		"when one address is there":                             {at: "target POST ipaddresses", nth: 2, late: true},
		"when an address is marked":                             {at: "source PATCH ipaddresses", late: true},
		"when an address is being deleted":                      {at: "source DELETE ipaddresses", late: true},
		"when a claim is marked":                                {at: "source PATCH ipclaims", late: true},
		"when a claim is being deleted":                         {at: "source DELETE ipclaims", late: true},
		"when a claim of Cluster API is being deleted":          {at: "source DELETE ipaddressclaims", late: true},
		"when the pool is being deleted":                        {at: "source DELETE ippools", late: true},
		"when all is there, and the Cluster does not go on yet": {at: "target PATCH clusters", nth: 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			f.create(poolKind, "nodes", pool("nodes", object{
				"clusterName": "c", "allocationStrategy": "random", "pools": []any{object{"subnet": "10.0.0.0/28"}}, "prefix": 28, "gateway": "10.0.0.1",
			}))
			f.create(claimKind, "asks", claimOn("nodes"), f.ownedBy("Machine/m-0"), annotated("ipAddress", "10.0.0.5"))
			f.served(f.source) // before another claim chooses that address
			f.create(claimKind, "m-0", claimOn("nodes"), f.ownedBy("Machine/m-0"))
			f.create(capiClaimKind, "m-0", capiClaimOn("nodes", object{"clusterName": "c"}), f.ownedBy("Machine/m-0"))
			f.create(poolKind, "full", pool("full", object{"clusterName": "c", "pools": span("10.1.0.10", "10.1.0.12"), "prefix": 24}))
			f.create(claimKind, "m-0-full", claimOn("full"), f.ownedBy("Machine/m-0"))
			f.create(claimKind, "m-1-full", claimOn("full"), f.ownedBy("Machine/m-1"))
			f.create(capiClaimKind, "m-1-full", capiClaimOn("full", object{"clusterName": "c"}), f.ownedBy("Machine/m-1"))
			before := f.served(f.source)
			// A claim that waits for the address of another does not get it where that one has left.
			f.create(claimKind, "waits", claimOn("full"))
			f.eventually("the claim is not refused", func() bool {
				return f.facts(f.source)["ipam/IPClaim/waits"].Says["errorMessage"] == "Exhausted IP Pools"
			})
			addresses := f.watchAddresses(f.target)

			require.ErrorIs(t, f.move(t, f.namespace, cut), errCut)
			isThere := f.goOn(f.source)
			require.NoError(t, f.move(t, f.namespace, &scissors{}))
			if !isThere {
				require.True(t, f.goOn(f.target))
			}

			f.same(before)
			f.once(addresses, before)
			f.onlyLeft(f.source, "ipam/IPClaim/waits")
			f.noContradictions(f.target)
		})
	}
}
