// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package journeys_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/e2e/render"
)

// Kinds of Cluster API and its provider for bare metal.
var (
	machineKind       = schema.GroupVersionKind{Group: "cluster.x-k8s.io", Version: "v1beta1", Kind: "Machine"}
	metal3MachineKind = infrav1.GroupVersion.WithKind(infrav1.Metal3MachineKind)
)

// needNetworkData ends the journey on a cluster whose administrator leaves network data to another system.
func (w *testEnv) needNetworkData() {
	w.t.Helper()
	if _, err := w.admin.RESTMapper().RESTMapping(infrav1.GroupVersion.WithKind("Metal3DataTemplate").GroupKind()); foreign && meta.IsNoMatchError(err) {
		w.t.Skip("ipam-operator of this cluster renders no network data: the overlay standalone/ipam-operator does")
	}
}

// installMachines installs as much of the kinds of machines as there has to be. Where Cluster API is there already, its provider makes the claims
// and not this journey.
func (w *testEnv) installMachines() {
	w.t.Helper()
	w.needNetworkData()
	var definitions []*unstructured.Unstructured
	for _, machine := range []struct {
		kind   schema.GroupVersionKind
		plural string
	}{{machineKind, "machines"}, {metal3MachineKind, "metal3machines"}} {
		definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"group": machine.kind.Group, "scope": "Namespaced",
			"names": map[string]any{"kind": machine.kind.Kind, "plural": machine.plural},
			"versions": []any{map[string]any{
				"name": machine.kind.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		}}}
		definition.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		definition.SetName(machine.plural + "." + machine.kind.Group)
		definitions = append(definitions, definition)
		found := definition.DeepCopy()
		if err := w.admin.Get(w.ctx, client.ObjectKeyFromObject(definition), found); !apierrors.IsNotFound(err) {
			require.NoError(w.t, err)
			w.t.Skip("the cluster has Cluster API's " + definition.GetName() + " already, whose controllers make the claims")
		}
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), patience)
		defer cancel()
		for _, definition := range definitions {
			assert.NoError(w.t, client.IgnoreNotFound(w.admin.Delete(ctx, definition)))
		}
	})
	require.NoError(w.t, render.Apply(w.ctx, administrator, definitions))
}

// newHost makes a host that was inspected: its network interface is eth0.
func (w *testEnv) newHost(name string) *metal3v1.BareMetalHost {
	w.t.Helper()
	number := rand.Uint32()
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       metal3v1.BareMetalHostSpec{BootMACAddress: fmt.Sprintf("52:55:%02x:%02x:%02x:%02x", byte(number>>24), byte(number>>16), byte(number>>8), byte(number))},
	}
	w.create(host)
	host.Status.HardwareDetails = &metal3v1.HardwareDetails{NIC: []metal3v1.NIC{{Name: "eth0", MAC: host.Spec.BootMACAddress}}}
	require.NoError(w.t, w.admin.Status().Update(w.ctx, host))
	return host
}

// newMachine makes a machine of Cluster API that runs on a host.
func (w *testEnv) newMachine(name string, host *metal3v1.BareMetalHost) *unstructured.Unstructured {
	w.t.Helper()
	var machines []*unstructured.Unstructured
	for _, kind := range []schema.GroupVersionKind{machineKind, metal3MachineKind} {
		machine := &unstructured.Unstructured{}
		machine.SetGroupVersionKind(kind)
		machine.SetNamespace(w.namespace)
		machine.SetName(name)
		if len(machines) > 0 {
			machine.SetOwnerReferences(ownedBy(machines[0], machineKind))
			machine.SetAnnotations(map[string]string{infrav1.HostAnnotation: host.Namespace + "/" + host.Name})
		}
		w.create(machine)
		machines = append(machines, machine)
	}
	return machines[1]
}

func ownedBy(owner client.Object, kind schema.GroupVersionKind) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID()}}
}

// dataTemplate makes a template: an address of the pool baremetal on eth0, and one of the pool provisioning in the metadata.
func (w *testEnv) dataTemplate(name string, change func(*infrav1.Metal3DataTemplateSpec)) *infrav1.Metal3DataTemplate {
	w.t.Helper()
	template := &infrav1.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	template.Spec = infrav1.Metal3DataTemplateSpec{
		MetaData: &infrav1.MetaData{
			ObjectNames:           []infrav1.MetaDataObjectName{{Key: "host", Object: infrav1.MachineObjectHost}},
			Indexes:               []infrav1.MetaDataIndex{{Key: "position"}},
			IPAddressesFromIPPool: []infrav1.MetaDataFromPool{{Key: "provisioning-ip", Name: "provisioning"}},
		},
		NetworkData: &infrav1.NetworkData{
			Links: infrav1.NetworkLinks{Ethernets: []infrav1.Ethernet{{Type: "phy", ID: "nic", MACAddress: &infrav1.LinkMAC{FromHostInterface: new("eth0")}}}},
			Networks: infrav1.Networks{IPv4: []infrav1.NetworkIPv4{{
				ID: "baremetal", Link: "nic", NetworkSource: infrav1.NetworkSource{IPAddressFromIPPool: "baremetal"},
				Routes: []infrav1.RouteIPv4{{Network: "0.0.0.0", Gateway: infrav1.GatewayIPv4{GatewaySource: infrav1.GatewaySource{FromIPPool: new("baremetal")}}}},
			}}},
			Services: infrav1.NetworkServices{DNSFromIPPool: new("baremetal")},
		},
	}
	change(&template.Spec)
	w.create(template)
	return template
}

// dataClaim asks for the data of a machine or a host, as the provider of machines does.
func (w *testEnv) dataClaim(template string, of client.Object, kind schema.GroupVersionKind) *infrav1.Metal3DataClaim {
	w.t.Helper()
	claim := &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: of.GetName(), OwnerReferences: ownedBy(of, kind)}}
	claim.Spec.Template.Name = template
	w.create(claim)
	return claim
}

// untilIndexed waits until a claim has its data, rendered or not.
func (w *testEnv) untilIndexed(claim *infrav1.Metal3DataClaim) *infrav1.Metal3Data {
	w.t.Helper()
	data := &infrav1.Metal3Data{}
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		require.NotNil(c, claim.Status.RenderedData, "%+v", claim.Status)
		data.Namespace, data.Name = w.namespace, claim.Status.RenderedData.Name
		w.refresh(c, data)
	}, 2*moment, interval, "claim %s has no data", claim.Name)
	return data
}

func (w *testEnv) untilUnrendered(data *infrav1.Metal3Data, message string) {
	w.t.Helper()
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, data)
		require.NotNil(c, data.Status.ErrorMessage)
		assert.Equal(c, message, *data.Status.ErrorMessage)
		assert.False(c, data.Status.Ready)
	}, 2*moment, interval, "%s does not say what is wrong", data.Name)
}

// networkData is what the journey reads of rendered network data.
type networkData struct {
	Links []struct {
		MAC string `json:"ethernet_mac_address"`
	} `json:"links"`
	Networks []struct {
		IP      string `json:"ip_address"`
		Netmask string `json:"netmask"`
		Routes  []struct {
			Gateway string `json:"gateway"`
		} `json:"routes"`
	} `json:"networks"`
	Services []struct {
		Address string `json:"address"`
	} `json:"services"`
}

// untilRendered waits for both Secrets of a claim, and reads them.
func (w *testEnv) untilRendered(claim *infrav1.Metal3DataClaim) (metaData map[string]string, network networkData) {
	w.t.Helper()
	data := w.untilIndexed(claim)
	require.EventuallyWithT(w.t, func(c *assert.CollectT) {
		w.refresh(c, data)
		assert.True(c, data.Status.Ready, "%+v", data.Status)
	}, 2*moment, interval, "%s is not rendered", data.Name)
	for _, part := range []struct {
		ref  *infrav1.SecretReference
		key  string
		into any
	}{{data.Spec.MetaData, infrav1.MetaDataKey, &metaData}, {data.Spec.NetworkData, infrav1.NetworkDataKey, &network}} {
		require.NotNil(w.t, part.ref, part.key)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: part.ref.Name}}
		w.refresh(w.t, secret)
		require.NoError(w.t, yaml.Unmarshal(secret.Data[part.key], part.into), part.key)
	}
	return metaData, network
}

func (w *testEnv) dataPools() (provisioning, baremetal *ipamv1.IPPool) {
	w.t.Helper()
	provisioning = w.addressPool("provisioning", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{addressSpan("192.0.2.10", "192.0.2.99")} })
	return provisioning, w.addressPool("baremetal", func(s *ipamv1.IPPoolSpec) {
		s.Pools, s.Gateway = []ipamv1.Pool{addressSpan("198.51.100.10", "198.51.100.11")}, new(ipamv1.IPAddressStr("198.51.100.1"))
		s.DNSServers = []ipamv1.IPAddressStr{"198.51.100.2"}
	})
}

// checkNetwork compares the network data of a host with the addresses that its pools gave to it.
func (w *testEnv) checkNetwork(host *metal3v1.BareMetalHost, data string, metaData map[string]string, network networkData) (ip string) {
	w.t.Helper()
	assert.Equal(w.t, host.Name, metaData["host"])
	assert.Equal(w.t, w.untilAddressed(w.addressClaimNamed(data+"-provisioning")), metaData["provisioning-ip"])
	require.Len(w.t, network.Links, 1)
	require.Len(w.t, network.Networks, 1)
	require.Len(w.t, network.Networks[0].Routes, 1)
	require.Len(w.t, network.Services, 1)
	assert.Equal(w.t, host.Spec.BootMACAddress, network.Links[0].MAC)
	assert.Equal(w.t, "255.255.255.0", network.Networks[0].Netmask)
	assert.Equal(w.t, "198.51.100.1", network.Networks[0].Routes[0].Gateway)
	assert.Equal(w.t, "198.51.100.2", network.Services[0].Address)
	ip = network.Networks[0].IP
	assert.Equal(w.t, w.untilAddressed(w.addressClaimNamed(data+"-baremetal")), ip)
	return ip
}

// Machines of Cluster API boot with addresses of their own. The one for which there is none says so, and boots with that of the first that goes.
func TestMachinesBootWithTheirNetwork(t *testing.T) {
	w := newTestEnv(t)
	w.installMachines()
	provisioning, baremetal := w.dataPools()
	template := w.dataTemplate("workers", func(s *infrav1.Metal3DataTemplateSpec) {
		s.MetaData.ObjectNames = append(s.MetaData.ObjectNames, infrav1.MetaDataObjectName{Key: "hostname", Object: infrav1.MachineObjectMachine})
	})
	var machines []*unstructured.Unstructured
	var claims []*infrav1.Metal3DataClaim
	holders := map[string]string{}
	for n := range 3 {
		host := w.newHost(fmt.Sprintf("host-%d", n))
		machine := w.newMachine(fmt.Sprintf("worker-%d", n), host)
		claim := w.dataClaim(template.Name, machine, metal3MachineKind)
		machines, claims = append(machines, machine), append(claims, claim)
		data := w.untilIndexed(claim)
		assert.Equal(t, fmt.Sprintf("workers-%d", n), data.Name)
		if n == 2 {
			w.untilUnrendered(data, "IP Allocation for baremetal failed : Exhausted IP Pools")
			continue
		}
		metaData, network := w.untilRendered(claim)
		ip := w.checkNetwork(host, data.Name, metaData, network)
		assert.Equal(t, machine.GetName(), metaData["hostname"])
		assert.Equal(t, fmt.Sprint(n), metaData["position"])
		assert.Equal(t, fmt.Sprintf("%s/%s/%s", w.namespace, host.Name, machine.GetName()), metaData["providerid"])
		assert.Empty(t, holders[ip], "%s is given twice", ip)
		holders[ip] = claim.Name
	}

	require.NoError(t, w.admin.Delete(t.Context(), machines[0]))
	w.untilGone(claims[0], patience) // by the garbage collector
	w.untilGone(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "worker-0-networkdata"}}, patience)
	_, network := w.untilRendered(claims[2])
	require.Len(t, network.Networks, 1)
	assert.Equal(t, "worker-0", holders[network.Networks[0].IP], "the address of the machine that is gone")

	for _, claim := range claims[1:] {
		require.NoError(t, w.admin.Delete(t.Context(), claim))
		w.untilGone(claim, 2*moment)
	}
	require.NoError(t, w.admin.Delete(t.Context(), template))
	w.untilGone(template, 2*moment)
	w.giveBack(provisioning)
	w.giveBack(baremetal)
}

// A host that no Cluster API looks after can have network data too. The user who writes a wrong template reads its mistakes, one after the other.
func TestAWrongTemplateExplainsItself(t *testing.T) {
	w := newTestEnv(t)
	w.needNetworkData()
	host := w.newHost("host-0")
	claim := w.dataClaim("typo", host, metal3v1.GroupVersion.WithKind("BareMetalHost"))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		w.refresh(c, claim)
		require.NotNil(c, claim.Status.ErrorMessage)
		assert.Equal(c, "Metal3DataTemplate typo not found", *claim.Status.ErrorMessage)
	}, 2*moment, interval)

	template := w.dataTemplate("typo", func(s *infrav1.Metal3DataTemplateSpec) {
		s.NetworkData.Links.Ethernets[0].MACAddress.FromHostInterface = new("eth9")
	})
	data := w.untilIndexed(claim)
	w.untilUnrendered(data, "IP Allocation for baremetal failed : IPPool baremetal does not exist")
	provisioning, baremetal := w.dataPools()
	w.untilUnrendered(data, "link nic: NIC name not found eth9")
	w.refresh(t, template)
	before := template.DeepCopy()
	template.Spec.NetworkData.Links.Ethernets[0].MACAddress.FromHostInterface = new("eth0")
	err := w.admin.Patch(t.Context(), template, client.MergeFrom(before))
	require.ErrorContains(t, err, "networkData cannot be modified; create another template")

	require.NoError(t, w.admin.Delete(t.Context(), claim))
	w.untilGone(claim, 2*moment)
	right := w.dataTemplate("right", func(*infrav1.Metal3DataTemplateSpec) {})
	claim = w.dataClaim(right.Name, host, metal3v1.GroupVersion.WithKind("BareMetalHost"))
	metaData, network := w.untilRendered(claim)
	w.checkNetwork(host, w.untilIndexed(claim).Name, metaData, network)

	require.NoError(t, w.admin.Delete(t.Context(), host))
	w.untilGone(claim, patience) // by the garbage collector
	w.giveBack(provisioning)
	w.giveBack(baremetal)
}
