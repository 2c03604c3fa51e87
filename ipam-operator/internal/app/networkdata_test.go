// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-io/muster/apis/controlplanetest"
	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	ipamv1 "github.com/muster-io/muster/apis/ipam/v1alpha1"
	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
)

// machineCRD is as much of a kind of machine as this operator looks at.
const machineCRD = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[2]ss.%[3]s
spec:
  group: %[3]s
  names: {kind: %[1]s, listKind: %[1]sList, plural: %[2]ss, singular: %[2]s}
  scope: Namespaced
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// newDataTestEnv is an environment whose operator serves network data.
func newDataTestEnv(t *testing.T) *testEnv {
	t.Helper()
	w := newTestEnv(t)
	w.install("namespace.yaml")
	w.install("../../components/network-data/role.yaml")
	w.install("../../components/network-data/role_binding.yaml")
	return w
}

func (w *dataSite) installMachines() {
	w.t.Helper()
	controlplanetest.Start(w.t, controlplanetest.WithCRDs(fstest.MapFS{
		"metal3machines.yaml": {Data: fmt.Appendf(nil, machineCRD, "Metal3Machine", "metal3machine", "infrastructure.cluster.x-k8s.io")},
		"machines.yaml":       {Data: fmt.Appendf(nil, machineCRD, "Machine", "machine", "cluster.x-k8s.io")},
	}))
}

func (w *dataSite) dataOperator(wrap func(http.RoundTripper) http.RoundTripper) (stop func()) {
	w.t.Helper()
	options := testOptions(w.namespace)
	options.NetworkData = true
	return w.operatorWith(options, wrap)
}

// counts waits until the operator's metrics say how much network data is rendered, and for which reasons the rest waits.
func (w *dataSite) counts(registry *prometheus.Registry, rendered int, waiting ...string) {
	w.t.Helper()
	want := append([]string{fmt.Sprintf("ipam_network_data_rendered %d", rendered)}, waiting...)
	slices.Sort(want)
	var got []string
	w.eventually(fmt.Sprintf("metrics do not say %q", want), func() bool {
		got = nil
		families, err := registry.Gather()
		require.NoError(w.t, err)
		for _, family := range families {
			for _, metric := range family.GetMetric() {
				switch family.GetName() {
				case "ipam_network_data_rendered":
					got = append(got, fmt.Sprintf("%s %v", family.GetName(), metric.GetGauge().GetValue()))
				case "ipam_network_data_waiting":
					got = append(got, metric.GetLabel()[0].GetValue())
				}
			}
		}
		slices.Sort(got)
		return slices.Equal(want, got)
	})
}

// host makes a BareMetalHost that was inspected.
func (w *dataSite) host(name string) *metal3v1.BareMetalHost {
	w.t.Helper()
	host := &metal3v1.BareMetalHost{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, Labels: map[string]string{"zone": "a"}},
		Spec:       metal3v1.BareMetalHostSpec{BootMACAddress: "52:54:00:00:00:01"},
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), host))
	host.Status.HardwareDetails = &metal3v1.HardwareDetails{NIC: []metal3v1.NIC{{Name: "eth0", MAC: "52:54:00:00:00:01"}}}
	require.NoError(w.t, w.user.Status().Update(w.t.Context(), host))
	return host
}

func (w *dataSite) foreign(kind schema.GroupKind, name string, change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	w.t.Helper()
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(kind.WithVersion("v1beta1"))
	obj.SetNamespace(w.namespace)
	obj.SetName(name)
	change(obj)
	require.NoError(w.t, w.user.Create(w.t.Context(), obj))
	return obj
}

func owner(obj *unstructured.Unstructured) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: obj.GetAPIVersion(), Kind: obj.GetKind(), Name: obj.GetName(), UID: obj.GetUID()}}
}

// template makes a template that takes addresses of two pools.
func (w *dataSite) template(name string, change func(*infrav1.Metal3DataTemplateSpec)) *infrav1.Metal3DataTemplate {
	w.t.Helper()
	template := &infrav1.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	template.Spec = infrav1.Metal3DataTemplateSpec{
		MetaData: &infrav1.MetaData{
			IPAddressesFromIPPool: []infrav1.MetaDataFromPool{{Key: "ip", Name: "prov"}},
			Indexes:               []infrav1.MetaDataIndex{{Key: "index"}},
			FromLabels:            []infrav1.MetaDataFromLabel{{Key: "zone", Object: infrav1.MachineObjectHost, Label: "zone"}},
		},
		NetworkData: &infrav1.NetworkData{
			Links: infrav1.NetworkLinks{Ethernets: []infrav1.Ethernet{{Type: "phy", ID: "e", MACAddress: &infrav1.LinkMAC{FromHostInterface: new("eth0")}}}},
			Networks: infrav1.Networks{IPv4: []infrav1.NetworkIPv4{{
				ID: "n", Link: "e", NetworkSource: infrav1.NetworkSource{IPAddressFromIPPool: "bm"},
				Routes: []infrav1.RouteIPv4{{Network: "0.0.0.0", Gateway: infrav1.GatewayIPv4{GatewaySource: infrav1.GatewaySource{FromIPPool: new("bm")}}}},
			}}},
		},
	}
	if change != nil {
		change(&template.Spec)
	}
	require.NoError(w.t, w.user.Create(w.t.Context(), template))
	return template
}

func (w *dataSite) dataPools() {
	w.t.Helper()
	w.pool("prov", func(s *ipamv1.IPPoolSpec) {
		s.Pools, s.AllocationStrategy = []ipamv1.Pool{span("10.0.0.10", "10.0.0.200")}, ipamv1.SequentialAllocation
	})
	w.pool("bm", func(s *ipamv1.IPPoolSpec) {
		s.Pools, s.AllocationStrategy = []ipamv1.Pool{span("10.0.0.10", "10.0.0.200")}, ipamv1.SequentialAllocation
	})
}

// dataClaim makes a claim for a BareMetalHost.
func (w *dataSite) dataClaim(name, template string, host *metal3v1.BareMetalHost) *infrav1.Metal3DataClaim {
	w.t.Helper()
	return w.dataClaimOf(name, template, []metav1.OwnerReference{
		{APIVersion: metal3v1.GroupVersion.String(), Kind: "BareMetalHost", Name: host.Name, UID: host.UID},
	})
}

func (w *dataSite) dataClaimOf(name, template string, owners []metav1.OwnerReference) *infrav1.Metal3DataClaim {
	w.t.Helper()
	claim := &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name, OwnerReferences: owners}}
	claim.Spec.Template.Name = template
	require.NoError(w.t, w.user.Create(w.t.Context(), claim))
	return claim
}

// change changes an object, and retries after conflicts.
func (w *site) change(obj client.Object, change func()) {
	w.t.Helper()
	before := obj.DeepCopyObject().(client.Object)
	change()
	require.NoError(w.t, w.user.Patch(w.t.Context(), obj, client.MergeFrom(before)))
}

// get reads an object anew; false means that it is gone.
func (w *site) get(obj client.Object) bool {
	w.t.Helper()
	err := w.user.Get(w.t.Context(), client.ObjectKeyFromObject(obj), obj)
	if apierrors.IsNotFound(err) {
		return false
	}
	require.NoError(w.t, err)
	return true
}

// rendered waits for the data of a claim.
func (w *dataSite) rendered(claim *infrav1.Metal3DataClaim) *infrav1.Metal3Data {
	w.t.Helper()
	data := &infrav1.Metal3Data{}
	w.eventually(claim.Name+" is not rendered", func() bool {
		if !w.get(claim) || claim.Status.RenderedData == nil {
			return false
		}
		data.Namespace, data.Name = claim.Namespace, claim.Status.RenderedData.Name
		return w.get(data) && data.Status.Ready
	})
	return data
}

func (w *dataSite) secret(name string) *corev1.Secret {
	w.t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name}}
	require.True(w.t, w.get(secret), name)
	return secret
}

// fails waits for the message that data shows.
func (w *dataSite) fails(data *infrav1.Metal3Data, says string) {
	w.t.Helper()
	w.eventually(data.Name+" does not say: "+says, func() bool {
		return w.get(data) && data.Status.ErrorMessage != nil && *data.Status.ErrorMessage == says
	})
}

func TestNetworkDataOfAMachine(t *testing.T) {
	w := newDataTestEnv(t)
	w.installMachines()
	w.dataPools()
	w.dataOperator(nil)
	template := w.template("workers", func(s *infrav1.Metal3DataTemplateSpec) {
		s.MetaData.ObjectNames = []infrav1.MetaDataObjectName{{Key: "name", Object: infrav1.MachineObjectMachine}}
	})
	host := w.host("host-0")
	machine := w.foreign(schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}, "worker-0", func(*unstructured.Unstructured) {})
	metal3Machine := w.foreign(schema.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine"}, "worker-0-m3m", func(*unstructured.Unstructured) {})

	claim := w.dataClaimOf("worker-0-claim", "workers", nil)
	w.eventually("the claim is not refused", func() bool {
		return w.get(claim) && claim.Status.ErrorMessage != nil && *claim.Status.ErrorMessage == "Metal3Machine not found in owner references"
	})
	w.change(claim, func() {
		claim.Labels = map[string]string{"for": "worker-0"}
		claim.OwnerReferences = owner(metal3Machine)
	})
	data := &infrav1.Metal3Data{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "workers-0"}}
	w.fails(data, "Waiting for Machine Controller to set OwnerRef on Metal3Machine")
	w.change(metal3Machine, func() { metal3Machine.SetOwnerReferences(owner(machine)) })
	w.fails(data, "Waiting for BareMetalHost to become available")
	w.change(metal3Machine, func() {
		metal3Machine.SetAnnotations(map[string]string{infrav1.HostAnnotation: host.Namespace + "/" + host.Name})
	})

	data = w.rendered(claim)
	assert.Nil(t, claim.Status.ErrorMessage)
	assert.Nil(t, data.Status.ErrorMessage)
	assert.Equal(t, []string{infrav1.ClaimFinalizer}, claim.Finalizers)
	assert.Equal(t, map[string]string{"for": "worker-0"}, data.Labels)
	w.checkSecrets(data, machine.GetName(), host.Name)
	w.checkIPClaims(data)
	w.eventually("the template does not follow", func() bool {
		return w.get(template) && template.Status.Indexes["worker-0-claim"] == 0 && len(template.Status.Indexes) == 1 && template.Status.LastUpdated != nil
	})

	w.delete(template)
	w.delete(claim)
	for _, obj := range []client.Object{claim, data, template, w.newClaim("workers-0-prov", ""), w.newClaim("workers-0-bm", "")} {
		w.gone(obj)
	}
	w.nothingLeft()
}

// checkSecrets compares the Secrets of a machine with those of the legacy system on the wire.
func (w *dataSite) checkSecrets(data *infrav1.Metal3Data, machine, host string) {
	w.t.Helper()
	metaData, networkData := w.secret("worker-0-m3m-metadata"), w.secret("worker-0-m3m-networkdata")
	assert.Equal(w.t, map[string]string{"metaData": "index: \"0\"\nip: 10.0.0.10\nname: " + machine + "\nproviderid: " + w.namespace + "/" + host +
		"/worker-0-m3m\nzone: a\n"}, asText(metaData))
	assert.Equal(w.t, map[string]string{"networkData": `links:
- ethernet_mac_address: "52:54:00:00:00:01"
  id: e
  mtu: 1500
  type: phy
networks:
- id: "n"
  ip_address: 10.0.0.10
  link: e
  netmask: 255.255.255.0
  routes:
  - gateway: 10.0.255.254
    netmask: 0.0.0.0
    network: 0.0.0.0
    services: []
  type: ipv4
services: []
`}, asText(networkData))
	for _, secret := range []*corev1.Secret{metaData, networkData} {
		assert.Equal(w.t, infrav1.SecretType, secret.Type)
		require.Len(w.t, secret.OwnerReferences, 1)
		assert.Equal(w.t, data.UID, secret.OwnerReferences[0].UID)
		assert.True(w.t, *secret.OwnerReferences[0].Controller)
	}
	assert.Equal(w.t, []string{"worker-0-m3m-metadata", "worker-0-m3m-networkdata"}, []string{data.Spec.MetaData.Name, data.Spec.NetworkData.Name})
}

func asText(secret *corev1.Secret) map[string]string {
	out := map[string]string{}
	for key, value := range secret.Data {
		out[key] = string(value)
	}
	return out
}

// checkIPClaims looks at what was claimed for data.
func (w *dataSite) checkIPClaims(data *infrav1.Metal3Data) {
	w.t.Helper()
	for _, pool := range []string{"prov", "bm"} {
		claim := w.getClaim(data.Name + "-" + pool)
		require.NotNil(w.t, claim)
		assert.Equal(w.t, pool, claim.Spec.Pool.Name)
		assert.Equal(w.t, data.Labels, claim.Labels)
		assert.Contains(w.t, claim.Finalizers, infrav1.DataFinalizer)
		require.Len(w.t, claim.OwnerReferences, 1)
		assert.Equal(w.t, metav1.OwnerReference{
			APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataKind, Name: data.Name, UID: data.UID, Controller: new(true),
		}, claim.OwnerReferences[0])
	}
}

// nothingLeft waits until the garbage collector is done, and looks for what it does not know of.
func (w *dataSite) nothingLeft() {
	w.t.Helper()
	for _, list := range []client.ObjectList{
		&infrav1.Metal3DataClaimList{}, &infrav1.Metal3DataList{}, &ipamv1.IPClaimList{}, &ipamv1.IPAddressList{},
	} {
		w.eventually(fmt.Sprintf("%T is not empty", list), func() bool {
			require.NoError(w.t, w.user.List(w.t.Context(), list, client.InNamespace(w.namespace)))
			return metaLen(w.t, list) == 0
		})
	}
	w.eventually("a Secret is left", func() bool {
		list := &corev1.SecretList{}
		require.NoError(w.t, w.user.List(w.t.Context(), list, client.InNamespace(w.namespace), client.MatchingFields{"type": string(infrav1.SecretType)}))
		return len(list.Items) == 0
	})
	w.settled()
}

func metaLen(t *testing.T, list client.ObjectList) int {
	t.Helper()
	switch l := list.(type) {
	case *infrav1.Metal3DataClaimList:
		return len(l.Items)
	case *infrav1.Metal3DataList:
		return len(l.Items)
	case *ipamv1.IPClaimList:
		return len(l.Items)
	case *ipamv1.IPAddressList:
		return len(l.Items)
	}
	t.Fatalf("%T is not known here", list)
	return 0
}

// TestNetworkDataSaysWhatIsWrong goes through what data waits for: each wait has a condition, and ends by itself.
func TestNetworkDataSaysWhatIsWrong(t *testing.T) {
	w := newDataTestEnv(t)
	registry := prometheus.NewRegistry()
	options := testOptions(w.namespace)
	options.NetworkData, options.registerer = true, registry
	w.operatorWith(options, nil)
	host := w.host("host-0")
	claim := w.dataClaim("a", "late", host)
	w.eventually("the claim is not refused", func() bool {
		return w.get(claim) && claim.Status.ErrorMessage != nil && *claim.Status.ErrorMessage == "Metal3DataTemplate late not found"
	})
	w.counts(registry, 0, "TemplateNotFound")
	inTheWay := w.claim("late-0-bm", "bm")
	w.template("late", func(s *infrav1.Metal3DataTemplateSpec) {
		s.MetaData.FromHostInterfaces = []infrav1.MetaDataHostInterface{{Key: "mac", Interface: "eth1"}}
	})
	data := &infrav1.Metal3Data{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "late-0"}}
	w.pool("bm", func(s *ipamv1.IPPoolSpec) { s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")} })
	w.fails(data, "IPClaim late-0-bm is there already and has no owner")
	w.delete(inTheWay)
	w.fails(data, "IP Allocation for prov failed : IPPool prov does not exist")
	w.counts(registry, 0, "NoAddress")
	blocker := w.claim("blocker", "prov")
	w.pool("prov", func(s *ipamv1.IPPoolSpec) {
		s.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.10")}
		s.PreAllocations = map[string]ipamv1.IPAddressStr{"blocker": "10.0.0.10"}
	})
	w.fails(data, "IP Allocation for prov failed : Exhausted IP Pools")
	pool := w.getPool("prov")
	w.change(pool, func() { pool.Spec.Pools = []ipamv1.Pool{span("10.0.0.10", "10.0.0.11")} })
	w.fails(data, "NIC name not found eth1")
	w.counts(registry, 0, "NotRenderable")
	require.True(t, w.get(host))
	host.Status.HardwareDetails.NIC = append(host.Status.HardwareDetails.NIC, metal3v1.NIC{Name: "eth1", MAC: "52:54:00:00:00:02"})
	require.NoError(t, w.user.Status().Update(t.Context(), host))
	data = w.rendered(claim)
	w.counts(registry, 1)
	assert.Contains(t, string(w.secret("host-0-metadata").Data["metaData"]), `mac: "52:54:00:00:00:02"`)

	// A rendered Secret stays as it is, and is rendered again when it is lost.
	secret := w.secret("host-0-networkdata")
	w.delete(secret)
	w.eventually("the Secret does not come back", func() bool {
		again := &corev1.Secret{}
		err := w.user.Get(t.Context(), client.ObjectKeyFromObject(secret), again)
		return err == nil && again.UID != secret.UID && string(again.Data["networkData"]) == string(secret.Data["networkData"])
	})
	w.delete(blocker)
	w.delete(claim)
	w.gone(data)
	w.counts(registry, 0)
	w.nothingLeft()
}

// TestNetworkDataWaitsForItsCluster also takes addresses of a pool of another kind.
func TestNetworkDataWaitsForItsCluster(t *testing.T) {
	w := newDataTestEnv(t)
	w.installContract()
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	w.dataPools()
	w.dataOperator(nil)
	w.template("t", func(s *infrav1.Metal3DataTemplateSpec) {
		s.ClusterName = "c"
		s.MetaData.GatewaysFromPool = []infrav1.MetaDataFromPool{{Key: "gw", Name: "foreign", APIGroup: "ipam.cluster.x-k8s.io", Kind: "InClusterIPPool"}}
	})
	host := w.host("host-0")
	claim := w.dataClaim("a", "t", host)
	w.eventually("the claim is not refused", func() bool {
		return w.get(claim) && claim.Status.ErrorMessage != nil && *claim.Status.ErrorMessage == "Cluster c not found"
	})
	cluster := w.cluster("c", true)
	w.pause(cluster, false)
	foreign := w.contractObject("IPAddressClaim", "t-0-foreign")
	w.eventually("no IPAddressClaim", func() bool { return w.get(foreign) })
	assert.Equal(t, []string{infrav1.DataFinalizer}, foreign.GetFinalizers())
	ref, _, _ := unstructured.NestedMap(foreign.Object, "spec", "poolRef")
	assert.Equal(t, map[string]any{"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "foreign"}, ref)
	address := w.contractObject("IPAddress", "foreign-1")
	address.Object["spec"] = map[string]any{"address": "10.9.0.5", "prefix": int64(20), "gateway": "10.9.0.1", "claimRef": map[string]any{"name": "t-0-foreign"}, "poolRef": ref}
	require.NoError(t, w.user.Create(t.Context(), address))
	before := foreign.DeepCopy()
	require.NoError(t, unstructured.SetNestedField(foreign.Object, "foreign-1", "status", "addressRef", "name"))
	require.NoError(t, w.user.Status().Patch(t.Context(), foreign, client.MergeFrom(before)))
	data := w.rendered(claim)
	secret := w.secret("host-0-metadata")
	assert.Contains(t, string(secret.Data["metaData"]), "gw: 10.9.0.1\n")
	assert.Equal(t, "c", secret.Labels[ipamv1.ClusterNameLabel])

	w.pause(cluster, true)
	w.template("witnesses", nil)
	witness := w.dataClaim("witness", "witnesses", w.host("host-1"))
	w.rendered(witness)
	second := w.dataClaim("second", "t", host)
	w.delete(claim)
	later := w.dataClaim("later", "witnesses", w.host("host-2"))
	w.rendered(later)
	require.True(t, w.get(second))
	assert.Nil(t, second.Status.RenderedData, "a paused Cluster gets nothing")
	require.True(t, w.get(data))
	assert.Zero(t, data.DeletionTimestamp, "no address is released while the Cluster is paused")
	w.pause(cluster, false)
	w.gone(claim)
	w.gone(foreign)
}

// TestOwnersAreNamedInTheVersionThatIsServed has objects that were made when Clusters had another version: the garbage collector cannot find an owner in a version that is gone.
func TestOwnersAreNamedInTheVersionThatIsServed(t *testing.T) {
	w := newDataTestEnv(t)
	controlplanetest.Start(t, controlplanetest.WithCRDs(fstest.MapFS{"cluster.yaml": {Data: []byte(clusterCRD)}}))
	cluster := w.cluster("c", false)
	former := []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1alpha4", Kind: "Cluster", Name: "c", UID: cluster.GetUID()}}
	pool := &ipamv1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "p", OwnerReferences: former},
		Spec:       ipamv1.IPPoolSpec{NamePrefix: "p", ClusterName: new("c"), Pools: []ipamv1.Pool{span("10.0.0.1", "10.0.0.9")}},
	}
	template := &infrav1.Metal3DataTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "t", OwnerReferences: former},
		Spec:       infrav1.Metal3DataTemplateSpec{ClusterName: "c"},
	}
	require.NoError(t, w.user.Create(t.Context(), pool))
	require.NoError(t, w.user.Create(t.Context(), template))
	w.dataOperator(nil)
	for _, obj := range []client.Object{pool, template} {
		w.eventually(obj.GetName()+" names its owner in the former version", func() bool {
			return w.get(obj) && len(obj.GetOwnerReferences()) == 1 && obj.GetOwnerReferences()[0].APIVersion == "cluster.x-k8s.io/v1beta1"
		})
		assert.Equal(t, cluster.GetUID(), obj.GetOwnerReferences()[0].UID)
	}
}

// TestADeathAtAnyWriteOfNetworkDataHeals lets the operator die after each of its writes, and starts it again: every claim has one index,
// and nothing is left over in the end.
func TestADeathAtAnyWriteOfNetworkDataHeals(t *testing.T) {
	diesAtEveryWrite(t, func(t *testing.T, writes writes) {
		w := newDataTestEnv(t)
		w.dataPools()
		template := w.template("t", nil)
		claim := w.dataClaim("a", "t", w.host("host-0"))
		stop := w.dataOperator(writes.count)
		w.liveUntil(writes.Dead(), claim)
		stop()
		w.dataOperator(nil)
		if w.get(claim) && claim.DeletionTimestamp.IsZero() {
			data := w.rendered(claim)
			assert.Equal(t, "t-0", data.Name)
			w.secret("host-0-metadata")
			w.secret("host-0-networkdata")
			w.delete(claim)
		}
		w.gone(claim)
		w.nothingLeft()
		w.delete(template)
		w.gone(template)
	})
}

// liveUntil deletes a claim when its data is rendered, until the operator is dead or all is done.
func (w *dataSite) liveUntil(dead <-chan struct{}, claim *infrav1.Metal3DataClaim) {
	w.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if !w.get(claim) {
			return
		}
		if ref := claim.Status.RenderedData; ref != nil && claim.DeletionTimestamp.IsZero() {
			data := &infrav1.Metal3Data{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: ref.Name}}
			if w.get(data) && data.Status.Ready {
				w.delete(claim)
			}
		}
		select {
		case <-dead:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestReplicasGiveEveryIndexOnce lets two operators that know nothing of each other serve the same claims.
func TestReplicasGiveEveryIndexOnce(t *testing.T) {
	w := newDataTestEnv(t)
	w.dataPools()
	host := w.host("host-0")
	w.template("t", func(s *infrav1.Metal3DataTemplateSpec) { s.NetworkData = nil })
	const claims = 40
	var all []*infrav1.Metal3DataClaim
	for i := range claims {
		all = append(all, w.dataClaim(fmt.Sprintf("c-%d", i), "t", host))
	}
	w.dataOperator(nil)
	w.dataOperator(nil)
	named := map[string]string{}
	for _, claim := range all {
		data := &infrav1.Metal3Data{}
		w.eventually(claim.Name+" has no data", func() bool {
			if !w.get(claim) || claim.Status.RenderedData == nil {
				return false
			}
			data.Namespace, data.Name = w.namespace, claim.Status.RenderedData.Name
			return w.get(data)
		})
		assert.Equal(t, claim.Name, data.Spec.Claim.Name)
		assert.Less(t, data.Spec.Index, 2*claims)
		assert.Empty(t, named[data.Name], "two claims name %s", data.Name)
		named[data.Name] = claim.Name
	}
	w.eventually("a claim has two", func() bool {
		list := &infrav1.Metal3DataList{}
		require.NoError(t, w.user.List(t.Context(), list, client.InNamespace(w.namespace)))
		return len(list.Items) == claims
	})
}

// TestDataOfAnotherManagerIsAdopted gives the operator what a move leaves: no status, and owners with new UIDs.
func TestDataOfAnotherManagerIsAdopted(t *testing.T) {
	w := newDataTestEnv(t)
	w.dataPools()
	template := w.template("t", nil)
	host := w.host("host-0")
	claim := w.dataClaim("a", "t", host)
	claim.Finalizers = []string{infrav1.ClaimFinalizer}
	require.NoError(t, w.user.Update(t.Context(), claim))
	data := &infrav1.Metal3Data{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: w.namespace, Name: "t-7", Finalizers: []string{infrav1.ClaimFinalizer, infrav1.DataFinalizer},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataTemplateKind, Name: template.Name, UID: template.UID, Controller: new(true)},
				{APIVersion: infrav1.GroupVersion.String(), Kind: infrav1.Metal3DataClaimKind, Name: claim.Name, UID: claim.UID},
			},
		},
		Spec: infrav1.Metal3DataSpec{Index: 7, Template: infrav1.ObjectReference{Name: "t"}, Claim: infrav1.ObjectReference{Name: "a"}},
	}
	require.NoError(t, w.user.Create(t.Context(), data))
	kept := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "host-0-networkdata"}, Data: map[string][]byte{"networkData": []byte("as it was")},
	}
	require.NoError(t, w.user.Create(t.Context(), kept))
	w.dataOperator(nil)
	assert.Equal(t, "t-7", w.rendered(claim).Name)
	assert.Equal(t, "as it was", string(w.secret("host-0-networkdata").Data["networkData"]))
	assert.Contains(t, string(w.secret("host-0-metadata").Data["metaData"]), `index: "7"`)
	w.delete(claim)
	w.gone(claim)
	w.gone(data)
	w.nothingLeft()
}

// TestAddressesForHosts names claims after hosts, so that a pool can have addresses for them.
func TestAddressesForHosts(t *testing.T) {
	w := newDataTestEnv(t)
	w.dataPools()
	pool := w.getPool("prov")
	w.change(pool, func() { pool.Spec.PreAllocations = map[string]ipamv1.IPAddressStr{"host-0-prov": "10.0.0.150"} })
	options := testOptions(w.namespace)
	options.NetworkData, options.NameByHost = true, true
	w.operatorWith(options, nil)
	w.template("t", nil)
	claim := w.dataClaim("a", "t", w.host("host-0"))
	data := w.rendered(claim)
	assert.Contains(t, string(w.secret("host-0-metadata").Data["metaData"]), "ip: 10.0.0.150\n")
	assert.Equal(t, map[string]string{
		"infrastructure.cluster.x-k8s.io/data-name": data.Name, "infrastructure.cluster.x-k8s.io/pool-name": "prov",
	}, w.getClaim("host-0-prov").Labels)
	w.delete(claim)
	w.gone(claim)
	w.nothingLeft()
}
