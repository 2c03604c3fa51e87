// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
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

func TestARuleApprovesMachines(t *testing.T) {
	for rule, manual := range map[string]bool{"hardware.hostname == 'node-00001'": false, "hardware.hostname == 'other'": true, "hardware.rack == 'r1'": true} {
		c := only(t, resource("r", func(r *inventory.Resource) { r.Manual, r.Approves = true, selector(t, rule) }))
		assert.Equal(t, manual, c.Manual, rule)
		assert.Equal(t, !manual, c.Ruled, rule)
	}
	c := only(t, resource("r", func(r *inventory.Resource) { r.Approves = selector(t, "true") }))
	assert.False(t, c.Ruled, "no approval is needed")
}

func TestAnExpressionNamesHosts(t *testing.T) {
	named := func(source string) inventory.CreateHost {
		return only(t, resource("r", func(r *inventory.Resource) { r.Template.Prefix, r.Named = "rack-", text(t, source) }))
	}
	assert.Equal(t, "rack-sn00000001-52", named("${hardware.systemVendor.serialNumber}-${bootMAC.substring(0, 2)}").Host.Name)
	assert.Equal(t, "rack-node-00001", named("${hardware.rack}").Host.Name, "a failing expression leaves the name to the details")
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
