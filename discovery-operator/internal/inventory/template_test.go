// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

func text(t *testing.T, source string) *inventory.Text {
	t.Helper()
	compiled, err := inventory.CompileText(source)
	require.NoError(t, err)
	return compiled
}

func selector(t *testing.T, source string) *inventory.Expression {
	t.Helper()
	compiled, err := inventory.CompileSelector(source)
	require.NoError(t, err)
	return compiled
}

// only is the creation of the one host that a resource makes of machine 1.
func only(t *testing.T, r inventory.Resource, change ...func(*inventory.Machine)) inventory.CreateHost {
	t.Helper()
	made := creations(inventory.Plan(snapshot(r, machine(t, 1, change...))))
	require.Len(t, made, 1)
	return made[0]
}

func TestAManagementControllerComesFromTheReport(t *testing.T) {
	rule := &inventory.BMCRule{
		Address: text(t, "redfish://${bmcAddress}/redfish/v1/Systems/1"), Secret: "usual",
		Secrets: []inventory.SecretRule{
			{Selects: selector(t, "hardware.systemVendor.manufacturer == 'none'"), Secret: "by-vendor"},
			{MACPrefix: demo.MAC(1, 0)[:8], Selects: selector(t, "hardware.hostname == 'node-00001'"), Secret: "by-prefix"},
			{Secret: "never"},
		},
	}
	r := resource("r", func(r *inventory.Resource) { r.BMC = rule })
	c := only(t, r)
	assert.Equal(t, "redfish://172.0.0.1/redfish/v1/Systems/1", c.BMCAddress)
	assert.Equal(t, "by-prefix", c.BMCSecret)
	c = only(t, r, func(m *inventory.Machine) { m.Report.BMCAddress = "2001:db8::1" })
	assert.Equal(t, "redfish://[2001:db8::1]/redfish/v1/Systems/1", c.BMCAddress)
	for _, none := range []string{"", "127.0.0.1"} {
		c = only(t, r, func(m *inventory.Machine) { m.Report.BMCAddress = none })
		assert.Empty(t, c.BMCAddress, "credentials are sent nowhere")
	}
	rule.Secret, rule.Secrets = "", nil
	assert.Empty(t, only(t, r).BMCAddress, "there are no credentials for it")
}

// TestTwoMachinesDoNotGetOneManagementController has templates whose addresses are alike although the machines reported different ones.
func TestTwoMachinesDoNotGetOneManagementController(t *testing.T) {
	shared := func(address string, ignore bool) inventory.Resource {
		return resource("r", func(r *inventory.Resource) {
			r.BMC, r.IgnoreBMC = &inventory.BMCRule{Address: text(t, address), Secret: "usual"}, ignore
		})
	}
	by := inventory.Ref{Namespace: "ns", Name: "by-hand"}
	for name, c := range map[string]struct {
		resource inventory.Resource
		hosts    []inventory.Host
		made     int
	}{
		"one address for all":                      {shared("ipmi://proxy.example:6230", false), nil, 1},
		"one address for all, which is wanted":     {shared("ipmi://proxy.example:6230", true), nil, 2},
		"a path for each machine":                  {shared("redfish://proxy.example/redfish/v1/Systems/${hardware.hostname}", false), nil, 2},
		"an address that a host made by hand has":  {shared("ipmi://proxy.example:6230", false), []inventory.Host{{Ref: by, BMCKey: "proxy.example:6230"}}, 0},
		"a host made by hand with another address": {shared("ipmi://proxy.example:6230", false), []inventory.Host{{Ref: by, BMCKey: "proxy.example:6231"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(c.resource, machine(t, 1), machine(t, 2))
			s.Hosts = c.hosts
			d := inventory.Plan(s)
			assert.Len(t, creations(d), c.made)
			refused := 0
			for _, v := range d.Verdicts {
				if v.Reason == metal3v1.RefusedDuplicateBMC {
					assert.Contains(t, v.Message, "proxy.example:6230 stands in host ns/")
					refused++
				}
			}
			assert.Equal(t, 2-c.made, refused)
		})
	}
}

func TestARuleApprovesMachines(t *testing.T) {
	for rule, manual := range map[string]bool{"hardware.hostname == 'node-00001'": false, "hardware.hostname == 'other'": true, "hardware.rack == 'r1'": true} {
		c := only(t, resource("r", func(r *inventory.Resource) { r.Manual, r.Approves = true, selector(t, rule) }))
		assert.Equal(t, manual, c.Manual, rule)
		assert.Equal(t, !manual, c.Ruled, rule)
	}
	c := only(t, resource("r", func(r *inventory.Resource) { r.Approves = selector(t, "true") }))
	assert.False(t, c.Ruled, "no approval is needed")
}

// TestARuleThatIsWrittenLaterApprovesHostsThatWait has hosts that wait for approval, whose reports were dropped.
func TestARuleThatIsWrittenLaterApprovesHostsThatWait(t *testing.T) {
	s := snapshot(resource("r", func(r *inventory.Resource) {
		r.Manual, r.Approves = true, selector(t, "hardware.hostname != 'node-00003'")
	}))
	for i := 1; i <= 4; i++ {
		m := machine(t, i)
		s.Machines = append(s.Machines, m.WithoutReport())
		s.Hosts = append(s.Hosts, inventory.Host{
			Ref: inventory.Ref{Namespace: "ns", Name: fmt.Sprint("h", i)}, UID: fmt.Sprint(i), NodeID: m.Node.UUID, BootMAC: demo.MAC(i, 0), Resource: "r",
			Held: true, HasStatus: true, Unapproved: i < 4,
		})
	}
	var asked []inventory.Action
	for _, m := range s.Machines[:3] {
		asked = append(asked, inventory.FetchReport{Node: m.Node.UUID})
	}
	assert.Equal(t, asked, inventory.Plan(s).Actions, "of the one that waits for no approval nothing is asked")
	for i := range 3 {
		s.Machines[i] = machine(t, i+1)
	}
	d := inventory.Plan(s)
	for i := range 2 {
		assert.Contains(t, d.Actions, inventory.ApproveHost{Host: s.Hosts[i].Ref, UID: s.Hosts[i].UID, Node: s.Machines[i].Node.UUID})
	}
	assert.Equal(t, []string{s.Machines[2].Judgement()}, d.Unruled)
	for i, m := range s.Machines {
		assert.Equal(t, m.Report != nil, slices.Contains(d.Actions, inventory.Action(inventory.DropReport{Node: m.Node.UUID})))
		s.Machines[i] = m.WithoutReport()
	}
	s.Hosts[0].Unapproved, s.Hosts[1].Unapproved, s.Judged = false, false, map[string]bool{d.Unruled[0]: true}
	assert.Empty(t, inventory.Plan(s).Actions, "a machine is judged once")
	s.Machines[2].Node.Inspected = "2026-11-21T11:00:00Z"
	assert.Equal(t, []inventory.Action{inventory.FetchReport{Node: s.Machines[2].Node.UUID}}, inventory.Plan(s).Actions, "and again when it was inspected again")
}

func TestAnExpressionNamesHosts(t *testing.T) {
	named := func(source string) inventory.CreateHost {
		return only(t, resource("r", func(r *inventory.Resource) { r.Template.Prefix, r.Named = "rack-", text(t, source) }))
	}
	assert.Equal(t, "rack-sn00000001-52", named("${hardware.systemVendor.serialNumber}-${bootMAC.substring(0, 2)}").Host.Name)
	assert.Equal(t, "rack-node-00001", named("${hardware.rack}").Host.Name, "a failing expression leaves the name to the details")
}

// TestRackAndPortNameHosts names hosts after the switch and the port of their machines, which come by LLDP.
func TestRackAndPortNameHosts(t *testing.T) {
	const rackAndPort = "${hardware.nics[0].lldp.switchSystemName.split('-')[0]}-${hardware.nics[0].lldp.portID}"
	silent := func(m *inventory.Machine) { m.Report.Hardware.NIC[0].LLDP = nil }
	for name, c := range map[string]struct {
		machine *inventory.Machine
		named   string
		want    string
	}{
		"switch and port":            {machine(t, 7), "${hardware.nics[0].lldp.switchSystemName}-${hardware.nics[0].lldp.portID}", "rack0001-leaf-ethernet1-7"},
		"rack and port":              {machine(t, 7), rackAndPort, "rack0001-ethernet1-7"},
		"the next rack":              {machine(t, 41), rackAndPort, "rack0002-ethernet1-1"},
		"a switch that says nothing": {machine(t, 7, silent), rackAndPort, "node-00007"},
	} {
		t.Run(name, func(t *testing.T) {
			r := resource("r", func(r *inventory.Resource) { r.Named = text(t, c.named) })
			made := creations(inventory.Plan(snapshot(r, c.machine)))
			require.Len(t, made, 1)
			assert.Equal(t, c.want, made[0].Host.Name)
		})
	}
}

func TestWhatASwitchSaysIsReadFromBothServices(t *testing.T) {
	const nics = `{"inventory":{"interfaces":[{"name":"eno1","mac_address":"52:54:00:00:00:01"},{"name":"eno2","mac_address":"52:54:01:00:00:01"}]},`
	const said = `{"switch_chassis_id":"02:00:5e:00:00:01","switch_port_id":"Ethernet1/7","switch_system_name":"rack0001-leaf",
		"switch_port_untagged_vlan_id":101,"switch_port_vlans":[{"id":101,"name":"machines"},{"id":102,"name":"storage"}]}`
	for name, data := range map[string]string{
		"Ironic":                           nics + `"plugin_data":{"parsed_lldp":{"eno1":` + said + `}}}`,
		"ironic-inspector":                 nics + `"all_interfaces":{"eno1":{"pxe":true,"lldp_processed":` + said + `},"eno2":{"pxe":false}}}`,
		"an interface with an odd message": nics + `"plugin_data":{"parsed_lldp":{"eno1":` + said + `,"eno2":["odd"]}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			r, err := inventory.ParseReport([]byte(data))
			require.NoError(t, err)
			require.Len(t, r.Hardware.NIC, 2)
			nic := r.Hardware.NIC[0]
			assert.Equal(t, &metal3v1.LLDP{SwitchID: "02:00:5e:00:00:01", PortID: "Ethernet1/7", SwitchSystemName: "rack0001-leaf"}, nic.LLDP)
			assert.EqualValues(t, 101, nic.VLANID)
			assert.Equal(t, []metal3v1.VLAN{{ID: 101, Name: "machines"}, {ID: 102, Name: "storage"}}, nic.VLANs)
			assert.Nil(t, r.Hardware.NIC[1].LLDP)
		})
	}
}

func TestACounterNamesHosts(t *testing.T) {
	name := func(source string) *inventory.Text {
		compiled, err := inventory.CompileName(source)
		require.NoError(t, err)
		return compiled
	}
	machines := []*inventory.Machine{machine(t, 1), machine(t, 2), machine(t, 3), machine(t, 4, func(m *inventory.Machine) {
		m.Report.Hardware.SystemVendor.Manufacturer = "Other"
	})}
	counting := func(r *inventory.Resource) {
		r.Template.Prefix = "rack-"
		r.Named = name("${hardware.systemVendor.manufacturer.substring(0, 5)}-${string(1000 + counter).substring(1)}")
	}
	s := snapshot(resource("r", counting), machines...)
	s.Hosts = append(s.Hosts, inventory.Host{Ref: inventory.Ref{Namespace: s.Self.Namespace, Name: "rack-examp-002"}})
	var names []string
	for _, c := range creations(inventory.Plan(s)) {
		names = append(names, c.Host.Name)
	}
	assert.Equal(t, []string{"rack-examp-001", "rack-examp-003", "rack-examp-004", "rack-other-001"}, names,
		"each gets the first number that is free, in the order of the nodes")
	_, err := inventory.CompileText("${counter}")
	require.ErrorContains(t, err, "counter", "only a name is counted")
	_, err = inventory.CompileName("${counter + 'x'}")
	require.Error(t, err)
}

func TestADryRunMakesNothingAndSaysWhat(t *testing.T) {
	d := inventory.Plan(snapshot(resource("r", func(r *inventory.Resource) { r.Dry = true }), machine(t, 1), machine(t, 2, func(m *inventory.Machine) {
		m.Report.Hardware.Hostname = "node-00001"
	})))
	assert.Empty(t, creations(d))
	require.Len(t, d.Verdicts, 2)
	assert.Equal(t, metal3v1.WaitingForDryRunEnd, d.Verdicts[0].Reason)
	assert.True(t, d.Verdicts[0].Waiting)
	assert.Equal(t, "node-00001", d.Verdicts[0].Name)
	assert.Equal(t, metal3v1.RefusedNameTaken, d.Verdicts[1].Reason, "conflicts among machines are seen, too")
}
