// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/validation"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func TestLegalName(t *testing.T) {
	for in, want := range map[string]string{
		"Node 1":                                 "node-1",
		"R2-D2_x":                                "r2-d2-x",
		"--a--":                                  "a",
		"a..b":                                   "a.b",
		"a.-b-.c":                                "a.b.c",
		"":                                       "",
		"...":                                    "",
		"ÄÖ":                                     "",
		"6a9cd1f2-0000-4000-8000-00000000000a":   "",
		"6A9CD1F2-0000-4000-8000-00000000000A":   "",
		"n-6a9cd1f2-0000-4000-8000-00000000000a": "n-6a9cd1f2-0000-4000-8000-00000000000a",
		strings.Repeat("a", 300):                 strings.Repeat("a", 253),
	} {
		assert.Equal(t, want, inventory.LegalName(in), in)
	}
}

func TestPlaceholder(t *testing.T) {
	for _, s := range []string{"", " ", "0", "None", "N/A", "To Be Filled By O.E.M.", "Default string", "xxxxxxxx", "000000", "0123456789", "----", "System Serial Number"} {
		assert.True(t, inventory.Placeholder(s), s)
	}
	for _, s := range []string{"SN00000001", "CZJ1234", "00A", "7"[:0] + "77B"} {
		assert.False(t, inventory.Placeholder(s), s)
	}
}

func TestNames(t *testing.T) {
	name := func(template metal3v1.ResourceNameTemplate, change func(*inventory.Machine)) (string, metal3v1.HardwareDetail, bool) {
		m := machine(t, 1)
		if change != nil {
			change(m)
		}
		c := creations(inventory.Plan(snapshot(resource("r", func(r *inventory.Resource) { r.Template = template }), m)))
		if len(c) == 0 {
			return "", "", false
		}
		return c[0].Host.Name, c[0].Detail, c[0].FellBack
	}
	for detail, want := range map[metal3v1.HardwareDetail]string{
		metal3v1.DetailHostname: "p-node-00001-s", metal3v1.DetailIP: "p-10-0-0-1-s", metal3v1.DetailSerialNumber: "p-sn00000001-s",
		metal3v1.DetailBootMAC: "p-52-54-00-00-00-01-s", metal3v1.DetailProvisioningID: "p-00000000-0000-4000-8000-000000000001-s",
	} {
		got, from, _ := name(metal3v1.ResourceNameTemplate{Prefix: "p-", Suffix: "-s", HardwareDetails: detail}, nil)
		assert.Equal(t, want, got)
		assert.Equal(t, detail, from)
	}
	got, from, fell := name(metal3v1.ResourceNameTemplate{
		HardwareDetails: metal3v1.DetailSerialNumber, Fallback: []metal3v1.HardwareDetail{metal3v1.DetailHostname, metal3v1.DetailBootMAC},
	}, func(m *inventory.Machine) {
		m.Report.Hardware.SystemVendor.SerialNumber, m.Report.Hardware.Hostname = "Default string", "localhost"
	})
	assert.Equal(t, "52-54-00-00-00-01", got)
	assert.Equal(t, metal3v1.DetailBootMAC, from)
	assert.True(t, fell)
}

func TestNormalMAC(t *testing.T) {
	for in, want := range map[string]string{
		"52:54:00:AA:bb:01": "52:54:00:aa:bb:01", "01-52-54-00-aa-bb-01": "52:54:00:aa:bb:01", "52-54-00-aa-bb-01": "52:54:00:aa:bb:01",
		"": "", "52:54": "", "52:54:00:aa:bb:0g": "", "5254.00aa.bb01": "", "52:54:00:aa:bb:01:02:03": "",
	} {
		assert.Equal(t, want, inventory.NormalMAC(in), in)
	}
	for mac, usable := range map[string]bool{
		"52:54:00:aa:bb:01": true, "00:00:00:00:00:00": false, "ff:ff:ff:ff:ff:ff": false, "01:00:5e:00:00:01": false, "00:e0:4c:68:00:01": false, "": false,
	} {
		assert.Equal(t, usable, inventory.UsableMAC(mac), mac)
	}
}

func TestExpressions(t *testing.T) {
	_, err := inventory.CompileSelector(`hardware.`)
	require.Error(t, err)
	_, err = inventory.CompileSelector(`"text"`)
	require.ErrorContains(t, err, "true or false")
	_, err = inventory.CompileSelector(`nothing == 1`)
	require.Error(t, err)
	_, err = inventory.CompileText("${unclosed")
	require.Error(t, err)
	for source, want := range map[string]int{
		`bootMAC.startsWith("52:54:")`: 1, `hardware.nics.exists(n, n.speedGbps >= 25)`: 1, `node.autoDiscovered`: 0,
		`hardware.missing == 1`: 0, `bmcAddress == "172.0.0.1"`: 1, `size(hardware.storage) > 5`: 0,
	} {
		e, err := inventory.CompileSelector(source)
		require.NoError(t, err, source)
		r := resource("r", func(r *inventory.Resource) { r.Selects = e })
		assert.Len(t, creations(inventory.Plan(snapshot(r, machine(t, 1)))), want, source)
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(demo.Machine(1))
	f.Add([]byte(`{"inventory":{"interfaces":[{"mac_address":null,"name":7}],"memory":{"physical_mb":"x"}},"plugin_data":{"parsed_lldp":{"a":[]}}}`))
	f.Add([]byte(`{"inventory":{"hostname":"\u0000\u001b[31mred\ud800"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := inventory.ParseReport(data)
		if err != nil {
			return
		}
		for _, s := range []string{r.Hardware.Hostname, r.Hardware.SystemVendor.SerialNumber, r.Hardware.CPU.Model, r.Failed, r.BMCAddress} {
			if len(s) > 256 || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
				t.Fatalf("%q is not bounded and clean", s)
			}
		}
		for _, mac := range append(r.MACs, r.BootMAC, r.FirstMAC, r.CarrierMAC) {
			if mac != "" && !inventory.UsableMAC(mac) {
				t.Fatalf("%q is not usable", mac)
			}
		}
		if len(r.Hardware.NIC) > 128 || len(r.Hardware.Storage) > 128 || len(r.Hardware.CPU.Flags) > 512 {
			t.Fatal("a list is not bounded")
		}
	})
}

func FuzzLegalName(f *testing.F) {
	f.Add("Node 1")
	f.Fuzz(func(t *testing.T, s string) {
		if name := inventory.LegalName(s); name != "" {
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Fatalf("%q from %q: %v", name, s, problems)
			}
		}
		if label := inventory.LegalLabel(s); len(validation.IsValidLabelValue(label)) > 0 {
			t.Fatalf("label %q from %q", label, s)
		}
	})
}
