// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// huge is a report within the limits of each of its lists, which together are more than an object can hold.
func huge(t *testing.T) []byte {
	t.Helper()
	long := func(i int) string { return fmt.Sprintf("%0240d", i) }
	var nics, disks, vlans, flags []any
	lldp := map[string]any{}
	for i := range 64 {
		vlans = append(vlans, map[string]any{"id": i + 1, "name": long(i)})
	}
	for i := range 512 {
		flags = append(flags, long(i))
	}
	for i := range 64 {
		name := fmt.Sprintf("eth%d", i)
		nics = append(nics, map[string]any{
			"name": name, "mac_address": fmt.Sprintf("52:54:00:00:00:%02x", i), "ipv4_address": fmt.Sprintf("10.0.0.%d", i+1),
			"ipv6_address": fmt.Sprintf("2001:db8::%d", i+1), "vendor": long(i), "product": long(i), "pci_address": long(i),
		})
		lldp[name] = map[string]any{"switch_chassis_id": long(i), "switch_port_id": long(i), "switch_system_name": long(i), "switch_port_vlans": vlans}
	}
	for i := range 128 {
		disks = append(disks, map[string]any{
			"name": long(i), "by_path": long(i), "model": long(i), "vendor": long(i), "serial": long(i), "wwn": long(i), "wwn_vendor_extension": long(i),
			"wwn_with_extension": long(i), "hctl": long(i), "size": 1,
		})
	}
	data, err := json.Marshal(map[string]any{
		"inventory":   map[string]any{"interfaces": nics, "disks": disks, "cpu": map[string]any{"flags": flags}},
		"plugin_data": map[string]any{"parsed_lldp": lldp},
	})
	require.NoError(t, err)
	require.Greater(t, len(data), 1<<20)
	return data
}

func TestAReportIsCutUntilAnObjectHoldsIt(t *testing.T) {
	r, err := inventory.ParseReport(huge(t))
	require.NoError(t, err)
	data, err := json.Marshal(r.Hardware)
	require.NoError(t, err)
	assert.LessOrEqual(t, len(data), 192<<10, "so that it also fits into the annotation in which a status moves")
	assert.NotEmpty(t, r.Hardware.NIC)
	assert.NotEmpty(t, r.Hardware.Storage)
	assert.Len(t, r.MACs, 64, "identifiers of the machine are not cut")
	assert.Contains(t, strings.Join(r.Cut, ", "), "VLANs")
}

func TestAnOrdinaryReportIsNotCut(t *testing.T) {
	assert.Empty(t, machine(t, 1).Report.Cut)
}

func TestAValueOfAnOddTypeIsNamed(t *testing.T) {
	_, err := inventory.ParseReport([]byte(`{"inventory":{"interfaces":"none"}}`))
	require.ErrorContains(t, err, "interfaces")
	require.ErrorContains(t, err, "string")
}

func TestAddressesThatIdentifyNothing(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "::1", "127.1.2.3", "169.254.1.1", "fe80::1", "localhost", "redfish://127.0.0.1/x", "0.0.0.0", "::"} {
		assert.Empty(t, inventory.NormalBMC(address), address)
	}
	assert.Equal(t, "192.0.2.1", inventory.NormalBMC("192.0.2.1"))
	for _, address := range []string{"ipmi://192.0.2.1:6230", "ipmi:192.0.2.1:6230", "192.0.2.1:6230"} {
		assert.Equal(t, "192.0.2.1", inventory.NormalBMC(address), address)
		assert.Equal(t, "192.0.2.1:6230", inventory.BMCKey(address), address)
	}
}

func TestTextsOfReportsAreCleanAndBounded(t *testing.T) {
	long := strings.Repeat("x", 300)
	for said, want := range map[string]string{
		`"node-1"`: "node-1", `"  node 1 "`: "node 1", `"a\tb\u0000c\"d"`: `abc"d`, "\"a\x7fb\xffc\"": "abc", `"zürich\u200b"`: "zürich", `"` + long + `"`: long[:253],
		`"\u0041` + long + `"`: "A" + long[:252], `"` + long[:252] + `ü"`: long[:252] + "ü", `"` + long[:253] + `ü"`: long[:253], `17`: "17", `null`: "", `["a"]`: "", `""`: "",
	} {
		r, err := inventory.ParseReport([]byte(`{"inventory":{"hostname":` + said + `}}`))
		require.NoError(t, err, said)
		assert.Equal(t, want, r.Hardware.Hostname, said)
	}
}
