// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/muster-io/muster/apis/infrastructure/v1beta1"
	"github.com/muster-io/muster/apis/needtest"
)

var update = flag.Bool("update", false, "write the golden files anew")

func subject() *Subject {
	return &Subject{
		Namespace: "metal", Name: "worker-0-m3m", Index: 4,
		Host:          Object{Name: "host-7", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"example.com/pool": "annotated"}},
		Metal3Machine: &Object{Name: "worker-0-m3m", Annotations: map[string]string{"example.com/note": "hello: world"}},
		Machine:       &Object{Name: "worker-0", Annotations: map[string]string{"example.com/mac": "52-54-00-00-00-02"}},
		BootMAC:       "52:54:00:00:00:00",
		NICs: []NIC{
			{"eth0", "52:54:00:00:00:00"}, {"eth1", "52:54:00:00:00:01"}, {"enp1s0", "52:54:00:00:01:00"}, {"enp2s0", "52:54:00:00:01:01"},
		},
	}
}

// known are addresses of the pools that the templates name.
var known = Addresses{
	"prov":                {IP: "192.168.0.10", Prefix: 24, Gateway: "192.168.0.1", DNSServers: []string{"192.168.0.2", "192.168.0.3"}},
	"six":                 {IP: "fd00::5", Prefix: 64, Gateway: "fd00::1"},
	"foreign":             {IP: "10.9.0.5", Prefix: 20, Gateway: "10.9.0.1"},
	"annotated":           {IP: "10.1.0.5", Prefix: 16, Gateway: "10.1.0.1"},
	"bare":                {IP: "192.168.0.11"},
	"pool1":               {IP: "192.168.0.10", Prefix: 24, Gateway: "192.168.0.1"},
	"pool2":               {IP: "192.168.1.1", Prefix: 25, Gateway: "192.168.1.1"},
	"pool6-1":             {IP: "2001::10", Prefix: 96, Gateway: "2001::1"},
	"pool6-2":             {IP: "2001:abc::1", Prefix: 96, Gateway: "2001:ABC::1"},
	"provisioning-pool":   {IP: "172.22.0.30", Prefix: 24},
	"baremetalv4-pool":    {IP: "192.168.111.100", Prefix: 24, Gateway: "192.168.111.1"},
	"x-provisioning-pool": {IP: "172.22.0.30", Prefix: 24},
	"x-baremetalv4-pool":  {IP: "192.168.111.100", Prefix: 24, Gateway: "192.168.111.1"},
}

// templates reads the templates of a file, variables replaced by x. A key that this operator does not know fails the test.
func templates(t *testing.T, file string) []infrav1.Metal3DataTemplate {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	content = regexp.MustCompile(`\$\{[A-Za-z0-9_]+(:?[-=][^}]*)?\}`).ReplaceAll(content, []byte("x"))
	decoder := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(content)))
	var out []infrav1.Metal3DataTemplate
	for {
		document := make([]byte, len(content))
		n, err := decoder.Read(document)
		if errors.Is(err, io.EOF) {
			return out
		}
		require.NoError(t, err)
		kind := struct{ Kind string }{}
		require.NoError(t, yaml.Unmarshal(document[:n], &kind))
		if kind.Kind != infrav1.Metal3DataTemplateKind {
			continue
		}
		template := infrav1.Metal3DataTemplate{}
		require.NoError(t, yaml.UnmarshalStrict(document[:n], &template))
		out = append(out, template)
	}
}

// golden renders a template and compares what comes out with what a file says.
func golden(t *testing.T, template *infrav1.Metal3DataTemplate) {
	t.Helper()
	referenced, err := Pools(&template.Spec, subject())
	require.NoError(t, err)
	addresses := Addresses{}
	for _, pool := range referenced {
		require.Contains(t, known, pool.Name)
		addresses[pool.Name] = known[pool.Name]
	}
	metaData, err := MetaData(template.Spec.MetaData, subject(), addresses)
	require.NoError(t, err)
	networkData, err := NetworkData(template.Spec.NetworkData, subject(), addresses)
	require.NoError(t, err)
	for name, got := range map[string][]byte{"metaData": metaData, "networkData": networkData} {
		file := filepath.Join("testdata", template.Name+"."+name+".golden")
		if *update {
			require.NoError(t, os.WriteFile(file, got, 0o600))
		}
		want, err := os.ReadFile(file)
		require.NoError(t, err, "run the test with -update once")
		assert.Equal(t, string(want), string(got), file)
	}
}

func TestEveryKeyIsRendered(t *testing.T) {
	found := templates(t, "testdata/everything.yaml")
	require.Len(t, found, 1)
	golden(t, &found[0])
}

// TestSamplesAreRendered renders every template of the manifests that users start from.
func TestSamplesAreRendered(t *testing.T) {
	samples := needtest.Field(t, "samples", "ipam", "capm3")
	count := 0
	require.NoError(t, filepath.Walk(samples, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		if info.IsDir() || filepath.Ext(path) != ".yaml" || info.Name() == "kustomization.yaml" {
			return nil
		}
		for _, template := range templates(t, path) {
			count++
			t.Run(filepath.Base(path)+"/"+template.Name, func(t *testing.T) { golden(t, &template) })
		}
		return nil
	}))
	assert.GreaterOrEqual(t, count, 8)
}

func TestPools(t *testing.T) {
	found := templates(t, "testdata/everything.yaml")
	referenced, err := Pools(&found[0].Spec, subject())
	require.NoError(t, err)
	assert.Equal(t, []Pool{
		{"ipam.metal3.io", "IPPool", "annotated"},
		{"ipam.cluster.x-k8s.io", "InClusterIPPool", "foreign"},
		{"ipam.metal3.io", "IPPool", "prov"},
		{"ipam.metal3.io", "IPPool", "six"},
	}, referenced)
	assert.True(t, referenced[0].IsIPPool())
	assert.False(t, referenced[1].IsIPPool())

	_, err = Pools(&infrav1.Metal3DataTemplateSpec{
		MetaData:    &infrav1.MetaData{GatewaysFromPool: []infrav1.MetaDataFromPool{{Key: "k", Name: "p", Kind: "InClusterIPPool"}}},
		NetworkData: &infrav1.NetworkData{Services: infrav1.NetworkServices{DNSFromIPPool: new("p")}},
	}, subject())
	require.EqualError(t, err, "multiple references with the same name but different resource types: p")
}

func TestRefusalsOfTheRenderer(t *testing.T) {
	ipv4 := func(source infrav1.NetworkSource) *infrav1.NetworkData {
		return &infrav1.NetworkData{Networks: infrav1.Networks{IPv4: []infrav1.NetworkIPv4{{NetworkSource: source, ID: "n"}}}}
	}
	ethernet := func(mac infrav1.LinkMAC) *infrav1.NetworkData {
		return &infrav1.NetworkData{Links: infrav1.NetworkLinks{Ethernets: []infrav1.Ethernet{{Type: "phy", ID: "e", MACAddress: &mac}}}}
	}
	hostOnly := &Subject{Namespace: "metal", Name: "host-7", Host: Object{Name: "host-7"}}
	for name, test := range map[string]struct {
		meta    *infrav1.MetaData
		network *infrav1.NetworkData
		subject *Subject
		says    string
	}{
		"a host that was not inspected": {
			meta: &infrav1.MetaData{FromHostInterfaces: []infrav1.MetaDataHostInterface{{Interface: "eth0"}}}, subject: hostOnly, says: "NICs list not populated",
		},
		"a host without boot MAC": {
			meta: &infrav1.MetaData{FromHostInterfaces: []infrav1.MetaDataHostInterface{{FromBootMAC: true}}}, subject: hostOnly,
			says: "BareMetalHost host-7 states no bootMACAddress",
		},
		"an unknown interface": {
			meta: &infrav1.MetaData{FromHostInterfaces: []infrav1.MetaDataHostInterface{{Interface: "eth9"}}}, says: "NIC name not found eth9",
		},
		"a host that no machine runs on": {
			meta: &infrav1.MetaData{ObjectNames: []infrav1.MetaDataObjectName{{Object: "machine"}}}, subject: hostOnly,
			says: "host-7 has no machine: the claim belongs to a BareMetalHost",
		},
		"a pool without address": {
			meta: &infrav1.MetaData{PrefixesFromIPPool: []infrav1.MetaDataFromPool{{Name: "none"}}}, says: "no address of pool none",
		},
		"a bad MAC address": {network: ethernet(infrav1.LinkMAC{String: new("52:54")}), says: "link e: bad MAC address: 52:54"},
		"no MAC address":    {network: ethernet(infrav1.LinkMAC{}), says: "link e: no MAC address given"},
		"an annotation without MAC address": {
			network: ethernet(infrav1.LinkMAC{FromAnnotation: &infrav1.AnnotationReference{Object: "machine", Annotation: "none"}}), says: "link e: bad MAC address: ",
		},
		"an annotation that names no pool": {
			network: ipv4(infrav1.NetworkSource{FromPoolAnnotation: &infrav1.AnnotationReference{Object: "machine", Annotation: "none"}, IPAddressFromIPPool: "prov"}),
			says:    "network n: annotation none of the machine names no pool",
		},
		"an address of the other family": {
			network: ipv4(infrav1.NetworkSource{IPAddressFromIPPool: "six"}), says: "network n: pool six gave fd00::5, which is no address of an ipv4 network",
		},
		"an address without a prefix": {
			network: ipv4(infrav1.NetworkSource{IPAddressFromIPPool: "bare"}),
			says:    "network n: address 192.168.0.11 of pool bare has no prefix: write prefix or subnet into the pool",
		},
		"the prefix of an address without one": {
			meta: &infrav1.MetaData{PrefixesFromIPPool: []infrav1.MetaDataFromPool{{Key: "k", Name: "bare"}}},
			says: "address 192.168.0.11 of pool bare has no prefix: write prefix or subnet into the pool",
		},
		"a parameter that is stated twice": {
			network: &infrav1.NetworkData{Links: infrav1.NetworkLinks{Bonds: []infrav1.Bond{{ID: "b", Parameters: map[string]apiextensionsv1.JSON{
				"mode": {Raw: []byte(`"x"`)}, "links": {Raw: []byte(`1`)}, "miimon": {Raw: []byte(`1`)},
			}}}}},
			says: `illegal params "links", "mode" into bond params blob into link id=b`,
		},
		"a prefix that is too long": {
			network: &infrav1.NetworkData{Networks: infrav1.Networks{IPv4DHCP: []infrav1.DynamicIPv4{{ID: "n", Routes: []infrav1.RouteIPv4{{Network: "10.0.0.0", Prefix: 33}}}}}},
			says:    "network n: route to 10.0.0.0: prefix 33 is not between 0 and 32",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.subject
			if s == nil {
				s = subject()
			}
			var err error
			if test.meta != nil {
				_, err = MetaData(test.meta, s, known)
			} else {
				_, err = NetworkData(test.network, s, known)
			}
			require.EqualError(t, err, test.says)
		})
	}
}

func TestNothingIsRenderedAsEmptyLists(t *testing.T) {
	got, err := NetworkData(&infrav1.NetworkData{}, subject(), nil)
	require.NoError(t, err)
	assert.Equal(t, "links: []\nnetworks: []\nservices: []\n", string(got))
	got, err = MetaData(&infrav1.MetaData{}, subject(), nil)
	require.NoError(t, err)
	assert.Equal(t, "providerid: metal/host-7/worker-0-m3m\n", string(got))
}
