// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/demo"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// machine is number i with its data whole; changes make it different.
func machine(t testing.TB, i int, change ...func(*inventory.Machine)) *inventory.Machine {
	t.Helper()
	report, err := inventory.ParseReport(demo.Machine(i))
	require.NoError(t, err)
	uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	m := &inventory.Machine{
		Node:   inventory.Node{UUID: uuid, Driver: "fake-hardware", State: inventory.NodeEnroll},
		Report: report, FirstSeen: now, PortsRead: now, Seen: now,
	}
	for k, mac := range report.MACs {
		m.Ports = append(m.Ports, inventory.Port{UUID: fmt.Sprintf("%s-%d", uuid, k), Node: uuid, MAC: mac, PXE: k == 0})
	}
	for _, c := range change {
		c(m)
	}
	return m
}

func resource(name string, change ...func(*inventory.Resource)) inventory.Resource {
	r := inventory.Resource{
		Ref: inventory.Ref{Namespace: "ns", Name: name}, Created: now.Add(-time.Hour),
		Template: metal3v1.ResourceNameTemplate{HardwareDetails: metal3v1.DetailHostname, Fallback: []metal3v1.HardwareDetail{metal3v1.DetailBootMAC}},
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

func snapshot(r inventory.Resource, machines ...*inventory.Machine) inventory.Snapshot {
	return inventory.Snapshot{
		Now: now, Looked: now, Self: r.Ref, Resources: []inventory.Resource{r}, Machines: machines, Tokens: 1000, NextToken: time.Second,
	}
}

func creations(d inventory.Decision) []inventory.CreateHost {
	var out []inventory.CreateHost
	for _, a := range d.Actions {
		if c, ok := a.(inventory.CreateHost); ok {
			out = append(out, c)
		}
	}
	return out
}

func TestVerdictOnOneMachine(t *testing.T) {
	serial := func(s string) func(*inventory.Machine) {
		return func(m *inventory.Machine) { m.Report.Hardware.SystemVendor.SerialNumber = s }
	}
	type change = func(*inventory.Snapshot)
	host := func(h inventory.Host) change { return func(s *inventory.Snapshot) { s.Hosts = append(s.Hosts, h) } }
	other := inventory.Ref{Namespace: "else", Name: "other"}
	cases := map[string]struct {
		machine func(*inventory.Machine)
		change  change
		// reason is empty for a machine that is created or known.
		reason  string
		waiting bool
		created bool
	}{
		"whole data make a host":         {created: true, reason: metal3v1.WaitingForCreation, waiting: true},
		"no port and no inventory yet":   {machine: func(m *inventory.Machine) { m.Report, m.Ports = nil, nil }, reason: metal3v1.WaitingForPorts, waiting: true},
		"ports before their inventory":   {machine: func(m *inventory.Machine) { m.Report = nil }, reason: metal3v1.WaitingForReading, waiting: true},
		"inventory before the last port": {machine: func(m *inventory.Machine) { m.Ports = m.Ports[:1] }, reason: metal3v1.WaitingForPorts, waiting: true},
		"ports that Ironic never makes are waited for half a minute": {
			machine: func(m *inventory.Machine) { m.Ports, m.FirstSeen = m.Ports[:1], now.Add(-31*time.Second) }, created: true, reason: metal3v1.WaitingForCreation, waiting: true},
		"a boot interface without port is a failure in the end": {
			machine: func(m *inventory.Machine) { m.Ports, m.FirstSeen = m.Ports[1:], now.Add(-6*time.Minute) }, reason: metal3v1.RefusedDiscoveryFailed},
		"an inventory that was not asked for yet, at any age": {
			machine: func(m *inventory.Machine) { m.Report, m.FirstSeen = nil, now.Add(-time.Hour) }, reason: metal3v1.WaitingForReading, waiting: true},
		"no inventory so far": {
			machine: func(m *inventory.Machine) { m.Report, m.Missing, m.MissingLast = nil, now, now }, reason: metal3v1.WaitingForInventory, waiting: true},
		"answers for five minutes that there is no inventory": {
			machine: func(m *inventory.Machine) { m.Report, m.Missing, m.MissingLast = nil, now.Add(-5*time.Minute), now }, reason: metal3v1.RefusedDiscoveryFailed},
		"ports that were not asked for again": {
			machine: func(m *inventory.Machine) {
				m.Ports, m.FirstSeen, m.PortsRead = m.Ports[1:], now.Add(-time.Hour), now.Add(-time.Hour)
			},
			reason: metal3v1.WaitingForPorts, waiting: true},
		"an inventory that cannot be read": {
			machine: func(m *inventory.Machine) { m.Report, m.Unreadable = nil, "odd" }, reason: metal3v1.RefusedDiscoveryFailed},
		"a node that was not seen for a while": {
			machine: func(m *inventory.Machine) { m.Seen = now.Add(-time.Minute) }, reason: metal3v1.WaitingForNode, waiting: true},
		"Ironic could not take it in":              {machine: func(m *inventory.Machine) { m.Report, m.Ports, m.Node.LastError = nil, nil, "no MAC" }, reason: metal3v1.RefusedDiscoveryFailed},
		"the ramdisk reported an error":            {machine: func(m *inventory.Machine) { m.Report.Failed = "disk" }, reason: metal3v1.RefusedDiscoveryFailed},
		"no usable MAC":                            {machine: func(m *inventory.Machine) { m.Report.MACs = nil }, reason: metal3v1.RefusedMACUnusable},
		"an occupied node":                         {machine: func(m *inventory.Machine) { m.Node.State, m.Node.Instance = "active", "x" }, reason: metal3v1.RefusedNodeInUse},
		"a node that another host has by ID":       {change: func(s *inventory.Snapshot) { host(inventory.Host{Ref: other, NodeID: s.Machines[0].Node.UUID})(s) }},
		"a node that another host has by name":     {machine: func(m *inventory.Machine) { m.Node.Name = "else~other" }, change: host(inventory.Host{Ref: other})},
		"a boot MAC that another host has":         {change: host(inventory.Host{Ref: other, BootMAC: demo.MAC(1, 0)})},
		"any port that is another host's boot MAC": {change: host(inventory.Host{Ref: other, BootMAC: demo.MAC(1, 1)})},
		"an interface that stands in another host": {change: host(inventory.Host{Ref: other, BootMAC: "02:00:00:00:00:09", MACs: []string{demo.MAC(1, 1)}}), reason: metal3v1.RefusedDuplicateMAC},
		"a serial that another host has":           {change: host(inventory.Host{Ref: other, Serial: "sn00000001"}), reason: metal3v1.RefusedDuplicateSerial},
		"a serial that another host has, where serials do not count": {change: func(s *inventory.Snapshot) {
			host(inventory.Host{Ref: other, Serial: "sn00000001"})(s)
			s.Resources[0].IgnoreSerial = true
		}, created: true, reason: metal3v1.WaitingForCreation, waiting: true},
		"a management controller that another host has, where they do not count": {change: func(s *inventory.Snapshot) {
			host(inventory.Host{Ref: other, BMC: inventory.NormalBMC("redfish://172.0.0.1/x")})(s)
			s.Resources[0].IgnoreBMC = true
		}, created: true, reason: metal3v1.WaitingForCreation, waiting: true},
		"a host that was registered by hand, whose node has the driver of discovery": {
			change: host(inventory.Host{Ref: other, BootMAC: demo.MAC(1, 0), Driver: "redfish"}), reason: metal3v1.RefusedDriver},
		"a host that was handed over, whose node was seen before": {
			change: host(inventory.Host{Ref: other, BootMAC: demo.MAC(1, 0), Driver: "redfish", Since: now})},
		"a host that was registered by hand, whose node has its driver": {change: host(inventory.Host{Ref: other, BootMAC: demo.MAC(1, 0), Driver: "fake-hardware"})},
		"a placeholder serial identifies nothing": {machine: serial("To Be Filled By O.E.M."),
			change: host(inventory.Host{Ref: other, Serial: inventory.NormalSerial("to be filled by o.e.m.")}), created: true, reason: metal3v1.WaitingForCreation, waiting: true},
		"a management controller that another host has": {change: host(inventory.Host{Ref: other, BMC: inventory.NormalBMC("redfish://172.0.0.1/x")}), reason: metal3v1.RefusedDuplicateBMC},
		"a name that another host has":                  {change: host(inventory.Host{Ref: inventory.Ref{Namespace: "ns", Name: "node-00001"}}), reason: metal3v1.RefusedNameTaken},
		"an ignored machine": {change: func(s *inventory.Snapshot) {
			s.Reservations = map[string]inventory.Reservation{demo.MAC(1, 0): {Ignored: true}}
		}},
		"a paused resource":                      {change: func(s *inventory.Snapshot) { s.Resources[0].Paused = true }, reason: metal3v1.WaitingForResume, waiting: true},
		"no token left":                          {change: func(s *inventory.Snapshot) { s.Tokens = 0 }, reason: metal3v1.WaitingForRate, waiting: true},
		"Ironic does not answer":                 {change: func(s *inventory.Snapshot) { s.Frozen = true }, reason: metal3v1.WaitingForNode, waiting: true},
		"the largest number of hosts is reached": {change: func(s *inventory.Snapshot) { s.Resources[0].MaxHosts = new(int32) }, reason: metal3v1.RefusedMaxHosts},
		"no name and no fallback": {machine: func(m *inventory.Machine) { m.Report.Hardware.Hostname = "localhost" },
			change: func(s *inventory.Snapshot) { s.Resources[0].Template.Fallback = nil }, reason: metal3v1.WaitingForName, waiting: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := machine(t, 1)
			if c.machine != nil {
				c.machine(m)
			}
			s := snapshot(resource("r"), m)
			if c.change != nil {
				c.change(&s)
			}
			d := inventory.Plan(s)
			assert.Equal(t, c.created, len(creations(d)) == 1, "created")
			if c.reason == "" {
				assert.Empty(t, d.Verdicts)
				return
			}
			require.Len(t, d.Verdicts, 1)
			assert.Equal(t, c.reason, d.Verdicts[0].Reason, d.Verdicts[0].Message)
			assert.Equal(t, c.waiting, d.Verdicts[0].Waiting)
			assert.Regexp(t, `^[A-Z0-9].*\.$`, d.Verdicts[0].Message, "a sentence")
		})
	}
}

func TestTheFirstOfTwoTwinsBecomesAHost(t *testing.T) {
	twin := machine(t, 2, func(m *inventory.Machine) { m.Report.Hardware.SystemVendor.SerialNumber = "SN00000001" })
	d := inventory.Plan(snapshot(resource("r"), machine(t, 1), twin))
	require.Len(t, creations(d), 1)
	assert.Equal(t, "node-00001", creations(d)[0].Host.Name)
	assert.Equal(t, metal3v1.RefusedDuplicateSerial, d.Verdicts[1].Reason)
	assert.Contains(t, d.Verdicts[1].Message, "ns/node-00001")
}

func TestTheOldestResourceThatSelectsAMachineTakesIt(t *testing.T) {
	big, err := inventory.CompileSelector(`hardware.ramMebibytes >= 1000000`)
	require.NoError(t, err)
	all := []inventory.Resource{
		resource("young"),
		resource("picky", func(r *inventory.Resource) { r.Created, r.Selects = now.Add(-3*time.Hour), big }),
		resource("old", func(r *inventory.Resource) { r.Created = now.Add(-2 * time.Hour) }),
		resource("broken", func(r *inventory.Resource) { r.Created, r.Broken = now.Add(-4*time.Hour), "why" }),
		resource("going", func(r *inventory.Resource) { r.Created, r.Going = now.Add(-5*time.Hour), true }),
	}
	taken := map[string]int{}
	for _, r := range all {
		s := snapshot(r, machine(t, 1))
		s.Resources = all
		d := inventory.Plan(s)
		taken[r.Name] = len(creations(d))
		if r.Name != "old" {
			assert.EqualValues(t, 1, d.Counts.NotSelected, r.Name)
		}
	}
	assert.Equal(t, map[string]int{"young": 0, "picky": 0, "old": 1, "broken": 0, "going": 0}, taken)
}

func TestAPausedResourceKeepsItsMachinesFromOthers(t *testing.T) {
	old := resource("old", func(r *inventory.Resource) { r.Created, r.Paused = now.Add(-2*time.Hour), true })
	young := resource("young")
	s := snapshot(young, machine(t, 1))
	s.Resources = []inventory.Resource{young, old}
	assert.Empty(t, creations(inventory.Plan(s)))
}

func TestLabelsAndAnnotationsComeFromTheHardware(t *testing.T) {
	text := func(s string) *inventory.Text {
		x, err := inventory.CompileText(s)
		require.NoError(t, err)
		return x
	}
	r := resource("r", func(r *inventory.Resource) {
		r.Labels = map[string]*inventory.Text{"vendor": text("${hardware.systemVendor.manufacturer}"), "ram": text("${int(hardware.ramMebibytes) / 1024}Gi")}
		r.Annotations = map[string]*inventory.Text{"bmc": text("at ${bmcAddress}")}
	})
	c := creations(inventory.Plan(snapshot(r, machine(t, 1))))
	require.Len(t, c, 1)
	assert.Equal(t, map[string]string{"vendor": "Example-Corp", "ram": "64Gi"}, c[0].Labels)
	assert.Equal(t, map[string]string{"bmc": "at 172.0.0.1"}, c[0].Annotations)
	r.Labels["odd"] = text("${hardware.nothing}")
	d := inventory.Plan(snapshot(r, machine(t, 1)))
	assert.Equal(t, metal3v1.RefusedTemplateInvalid, d.Verdicts[0].Reason)
}

func TestTheBootMACIsFoundByTheFirstRuleThatHolds(t *testing.T) {
	m := machine(t, 1)
	rule := func() inventory.BootRule {
		c := creations(inventory.Plan(snapshot(resource("r"), m)))
		require.Len(t, c, 1)
		return c[0].BootRule
	}
	assert.Equal(t, inventory.BootReported, rule())
	m.Report.BootMAC = ""
	assert.Equal(t, inventory.BootPort, rule())
	m.Ports[0].PXE = false
	assert.Equal(t, inventory.BootCarrier, rule())
	m.Report.CarrierMAC = ""
	assert.Equal(t, inventory.BootFirst, rule())
}

func TestAHostWithoutStatusIsCompleted(t *testing.T) {
	m := machine(t, 1)
	s := snapshot(resource("r"), m)
	s.Hosts = []inventory.Host{{Ref: inventory.Ref{Namespace: "ns", Name: "node-00001"}, NodeID: m.Node.UUID, BootMAC: demo.MAC(1, 0), Resource: "r", Held: true}}
	require.Equal(t, []inventory.Action{inventory.WriteStatus{
		Host: s.Hosts[0].Ref, BootMAC: demo.MAC(1, 0), Node: m.Node.UUID, Report: m.Report,
	}}, inventory.Plan(s).Actions)
	s.Self.Name, s.Resources = "other", []inventory.Resource{resource("other")}
	assert.Empty(t, inventory.Plan(s).Actions, "the report is left to the resource that needs it")
	s.Self.Name, s.Resources = "r", []inventory.Resource{resource("r")}
	s.Hosts[0].HasStatus = true
	assert.Equal(t, []inventory.Action{inventory.DropReport{Node: m.Node.UUID}}, inventory.Plan(s).Actions)
	s.Hosts[0].NodeID = "gone"
	require.IsType(t, inventory.WriteStatus{}, inventory.Plan(s).Actions[0])
	assert.Equal(t, "gone", inventory.Plan(s).Actions[0].(inventory.WriteStatus).Replaced)
	s.Hosts[0].Held = false
	assert.IsType(t, inventory.DropReport{}, inventory.Plan(s).Actions[0], "after the hand-over the status is not ours")
}

func TestAMachineThatComesBackGoesToTheOlderOfTwoHosts(t *testing.T) {
	m := machine(t, 1)
	s := snapshot(resource("r"), m)
	now := s.Now
	host := inventory.Host{
		Ref: inventory.Ref{Namespace: "ns", Name: "node-00001"}, Created: now, NodeID: "gone", BootMAC: demo.MAC(1, 0), Resource: "r", Held: true, HasStatus: true,
	}
	squatter := inventory.Host{Ref: inventory.Ref{Namespace: "a", Name: "squatter"}, Created: now, BootMAC: demo.MAC(1, 0), HasStatus: true}
	for range 2 {
		for _, hosts := range [][]inventory.Host{{host, squatter}, {squatter, host}} {
			s.Hosts = hosts
			actions := inventory.Plan(s).Actions
			require.Len(t, actions, 1)
			require.IsType(t, inventory.WriteStatus{}, actions[0])
			assert.Equal(t, host.Ref, actions[0].(inventory.WriteStatus).Host)
		}
		squatter.Created, squatter.NodeID = now.Add(time.Second), "claimed"
	}
}

func TestAHostThatOnlyNamesANodeGetsNothingOfIt(t *testing.T) {
	m := machine(t, 1)
	s := snapshot(resource("r"), m)
	pretender := inventory.Host{Ref: inventory.Ref{Namespace: "ns", Name: "a"}, NodeID: m.Node.UUID, BootMAC: demo.MAC(7, 0), Resource: "r", Held: true}
	s.Hosts = []inventory.Host{pretender}
	assert.Equal(t, []inventory.Action{inventory.DropReport{Node: m.Node.UUID}}, inventory.Plan(s).Actions)
	s.Hosts[0].Namespace = "elsewhere"
	s.Hosts = append(s.Hosts, inventory.Host{
		Ref: inventory.Ref{Namespace: "ns", Name: "node-00001"}, NodeID: m.Node.UUID, BootMAC: demo.MAC(1, 0), Resource: "r", Held: true, HasStatus: true,
	})
	assert.Zero(t, inventory.Plan(s).LostHosts, "the host that has the node is not lost")
}

// TestRandomFleets lets machines come, go, share identities and change, applies what each of three resources decides, and demands
// on every step that no boot MAC has two hosts and, in the end, that every machine without a twin has one.
func TestRandomFleets(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { randomFleet(t, rand.New(rand.NewPCG(seed, 1))) })
	}
}

func randomFleet(t *testing.T, random *rand.Rand) {
	resources := []inventory.Resource{resource("a"), resource("b"), resource("c")}
	resources[2].Template.HardwareDetails = metal3v1.DetailSerialNumber
	sim := &simulation{t: t, machines: map[string]*inventory.Machine{}, hosts: map[inventory.Ref]inventory.Host{}}
	for range 80 {
		switch random.IntN(6) {
		case 0, 1:
			sim.arrive(random)
		case 2:
			sim.leave(random)
		case 3:
			sim.deleteHost(random)
		default:
			sim.step(resources, resources[random.IntN(3)].Ref, random.IntN(4))
		}
		sim.check()
	}
	for range 3 {
		for _, r := range resources {
			sim.step(resources, r.Ref, 1000)
			sim.check()
		}
	}
	d := inventory.Plan(sim.snapshot(resources, resources[0].Ref, 1000))
	assert.Empty(t, creations(d), "no action is left")
	assert.Zero(t, d.Counts.Waiting)
}

type simulation struct {
	t        *testing.T
	machines map[string]*inventory.Machine
	hosts    map[inventory.Ref]inventory.Host
	arrivals int
}

func (s *simulation) snapshot(resources []inventory.Resource, self inventory.Ref, tokens int) inventory.Snapshot {
	snap := inventory.Snapshot{Now: now, Self: self, Resources: resources, Tokens: tokens, NextToken: time.Second}
	for _, uuid := range slices.Sorted(maps.Keys(s.machines)) {
		snap.Machines = append(snap.Machines, s.machines[uuid])
	}
	for _, ref := range slices.SortedFunc(maps.Keys(s.hosts), func(a, b inventory.Ref) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	}) {
		snap.Hosts = append(snap.Hosts, s.hosts[ref])
	}
	return snap
}

// arrive lets a machine report: mostly a new one, sometimes one that was there, with a shared serial or with a NIC of another.
func (s *simulation) arrive(random *rand.Rand) {
	s.arrivals++
	i := 1 + random.IntN(12)
	m := machine(s.t, i)
	for _, known := range s.machines {
		for _, p := range known.Ports {
			if p.MAC == demo.MAC(i, 0) || p.MAC == demo.MAC(i, 1) {
				return // Ironic refuses it
			}
		}
	}
	m.Node.UUID = fmt.Sprintf("00000000-0000-4000-8000-%012d", s.arrivals)
	for k := range m.Ports {
		m.Ports[k].Node = m.Node.UUID
	}
	switch random.IntN(5) {
	case 0:
		m.Report.Hardware.SystemVendor.SerialNumber = "SN-twin"
	case 1:
		m.Report.BootMAC = "" // another rule finds the boot MAC
	}
	s.machines[m.Node.UUID] = m
}

func (s *simulation) leave(random *rand.Rand) {
	if keys := slices.Sorted(maps.Keys(s.machines)); len(keys) > 0 {
		delete(s.machines, keys[random.IntN(len(keys))])
	}
}

// deleteHost removes a host and, as its finalizer does, its node.
func (s *simulation) deleteHost(random *rand.Rand) {
	for ref, h := range s.hosts {
		if random.IntN(3) == 0 {
			delete(s.machines, h.NodeID)
			delete(s.hosts, ref)
			return
		}
	}
}

func (s *simulation) step(resources []inventory.Resource, self inventory.Ref, tokens int) {
	d := inventory.Plan(s.snapshot(resources, self, tokens))
	require.LessOrEqual(s.t, len(creations(d)), tokens)
	for _, a := range d.Actions {
		switch a := a.(type) {
		case inventory.CreateHost:
			_, taken := s.hosts[a.Host]
			require.False(s.t, taken, "the name %s is given twice", a.Host)
			s.hosts[a.Host] = inventory.Host{
				Ref: a.Host, NodeID: a.Node, BootMAC: a.BootMAC, MACs: a.Report.MACs, Resource: self.Name, Held: true, HasStatus: true,
				Serial: inventory.NormalSerial(a.Report.Hardware.SystemVendor.SerialNumber),
			}
		case inventory.WriteStatus:
			h := s.hosts[a.Host]
			h.NodeID = a.Node
			s.hosts[a.Host] = h
		}
	}
}

func (s *simulation) check() {
	macs := map[string]inventory.Ref{}
	for ref, h := range s.hosts {
		before, twice := macs[h.BootMAC]
		require.False(s.t, twice, "%s and %s have one boot MAC", before, ref)
		macs[h.BootMAC] = ref
	}
}

// BenchmarkDiff compares 100,000 nodes with 100,000 hosts, all known, the name of the figure being discovery.diff_100k.
func BenchmarkDiff(b *testing.B) {
	const n = 100_000
	s := snapshot(resource("r"))
	for i := 1; i <= n; i++ {
		m := &inventory.Machine{Node: inventory.Node{UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), State: inventory.NodeEnroll}, FirstSeen: now}
		for k := range 2 {
			m.Ports = append(m.Ports, inventory.Port{MAC: demo.MAC(i, k), Node: m.Node.UUID})
		}
		s.Machines = append(s.Machines, m)
		h := inventory.Host{
			Ref: inventory.Ref{Namespace: "ns", Name: fmt.Sprint("node-", i)}, NodeID: m.Node.UUID, BootMAC: demo.MAC(i, 0),
			MACs: []string{demo.MAC(i, 0), demo.MAC(i, 1)}, Serial: fmt.Sprint("sn", i), Resource: "r", HasStatus: true, Held: true,
		}
		if i%2 == 0 { // half are found by MAC only
			h.NodeID = ""
		}
		s.Hosts = append(s.Hosts, h)
	}
	b.ReportAllocs()
	for b.Loop() {
		if d := inventory.Plan(s); d.Counts.Known != n {
			b.Fatal("not all nodes are known: ", d.Counts)
		}
	}
}

func TestAnIronicIsForOneNamespaceUnlessItIsShared(t *testing.T) {
	at := func(namespace, name string, age int, change ...func(*inventory.Resource)) inventory.Resource {
		r := inventory.Resource{Ref: inventory.Ref{Namespace: namespace, Name: name}, Created: time.Unix(int64(1000-age), 0)}
		for _, c := range change {
			c(&r)
		}
		return r
	}
	shared := func(r *inventory.Resource) { r.Shared = true }
	going := func(r *inventory.Resource) { r.Going = true }
	for name, c := range map[string]struct {
		asking []inventory.Resource
		want   []string
	}{
		"no resources":                                   {nil, nil},
		"the namespace of the oldest":                    {[]inventory.Resource{at("b", "new", 1), at("a", "old", 2), at("a", "newest", 0)}, []string{"a/old", "a/newest"}},
		"a resource that is being deleted has no Ironic": {[]inventory.Resource{at("a", "old", 2, going), at("b", "new", 1)}, []string{"b/new"}},
		"those that share": {
			[]inventory.Resource{at("b", "new", 1, shared), at("c", "newest", 0), at("a", "old", 2, shared)}, []string{"a/old", "b/new"},
		},
		"those that share come first": {[]inventory.Resource{at("a", "old", 2), at("b", "new", 1, shared)}, []string{"b/new"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, r := range inventory.Admitted(c.asking) {
				got = append(got, r.String())
			}
			assert.Equal(t, c.want, got)
		})
	}
}

func TestTheFirstMachineOnWhichASelectorFailsIsNamed(t *testing.T) {
	selects, err := inventory.CompileSelector("hardware.rack == 'r1'")
	require.NoError(t, err)
	d := inventory.Plan(snapshot(resource("r", func(r *inventory.Resource) { r.Selects = selects }), machine(t, 1), machine(t, 2)))
	assert.EqualValues(t, 2, d.Counts.NotSelected)
	assert.Equal(t, 2, d.Unevaluated)
	assert.Equal(t, machine(t, 1).Node.UUID, d.UnevaluatedNode)
	assert.Contains(t, d.UnevaluatedWhy, "rack")
}

// TestALargeFirstReadingRefusesNoMachine has 10,000 machines that appear at once, whose inventories are read slowly, for an hour.
func TestALargeFirstReadingRefusesNoMachine(t *testing.T) {
	const fleet = 10_000
	s := snapshot(resource("r"))
	for i := range fleet {
		s.Machines = append(s.Machines, machine(t, i+1, func(m *inventory.Machine) { m.Report, m.FirstSeen = nil, now.Add(-time.Hour) }))
	}
	d := inventory.Plan(s)
	assert.Zero(t, d.Counts.Refused)
	assert.EqualValues(t, fleet, d.Counts.Waiting)
	assert.Zero(t, d.Counts.Read)
	for i := range 100 {
		s.Machines[i] = machine(t, i+1)
	}
	d = inventory.Plan(s)
	assert.EqualValues(t, 100, d.Counts.Read, "progress is seen")
	assert.Len(t, creations(d), 100)
}

// TestMachinesThatWereNeverInspectedKeepNoOtherFromBeingRead has more of them than reports that are asked for at once, and one new machine behind them.
func TestMachinesThatWereNeverInspectedKeepNoOtherFromBeingRead(t *testing.T) {
	const missing = 1600
	s := snapshot(resource("r"))
	for i := range missing {
		s.Machines = append(s.Machines, machine(t, i+1, func(m *inventory.Machine) {
			m.Report, m.Missing, m.MissingLast = nil, now.Add(-time.Hour), now
		}))
	}
	young := machine(t, missing+1, func(m *inventory.Machine) { m.Report = nil })
	s.Machines = append(s.Machines, young)
	d := inventory.Plan(s)
	assert.Contains(t, d.Actions, inventory.FetchReport{Node: young.Node.UUID})
	assert.Contains(t, d.Actions, inventory.FetchReport{Node: s.Machines[0].Node.UUID}, "they are asked for again after a reading of everything")
	assert.EqualValues(t, missing, d.Counts.Refused)
}

// TestAnIgnoredMachineIsReadOnce follows machines that are kept away, more than reports that are asked for at once, and one behind them.
func TestAnIgnoredMachineIsReadOnce(t *testing.T) {
	const ignored = 1600
	s := snapshot(resource("r"))
	s.Reservations = map[string]inventory.Reservation{}
	for i := range ignored {
		m := machine(t, i+1)
		s.Reservations[m.Report.BootMAC] = inventory.Reservation{Ignored: true}
		s.Machines = append(s.Machines, m)
	}
	young := machine(t, ignored+1, func(m *inventory.Machine) { m.Report = nil })
	s.Machines = append(s.Machines, young)
	d := inventory.Plan(s)
	assert.EqualValues(t, ignored, d.Counts.Ignored)
	assert.Contains(t, d.Actions, inventory.DropReport{Node: s.Machines[0].Node.UUID})
	for i, m := range s.Machines[:ignored] {
		s.Machines[i] = m.WithoutReport()
	}
	after := inventory.Plan(s)
	assert.Equal(t, []inventory.Action{inventory.FetchReport{Node: young.Node.UUID}}, after.Actions)
	assert.Equal(t, d.Counts, after.Counts)

	clear(s.Reservations)
	assert.Contains(t, inventory.Plan(s).Actions, inventory.FetchReport{Node: s.Machines[0].Node.UUID}, "it is not kept away any more")
}

// TestADriverIsJudgedByWhatIronicSaidAfterTheHandOver follows a hand-over, after which the mirror still has the driver of discovery.
func TestADriverIsJudgedByWhatIronicSaidAfterTheHandOver(t *testing.T) {
	m := machine(t, 1)
	s := snapshot(resource("r"), m)
	s.Hosts = []inventory.Host{{Ref: inventory.Ref{Namespace: "ns", Name: "h"}, NodeID: m.Node.UUID, BootMAC: demo.MAC(1, 0), Driver: "redfish", Since: now}}
	d := inventory.Plan(s)
	assert.Empty(t, d.Verdicts)
	assert.NotZero(t, d.RequeueAfter, "clocks differ: it is too early to ask")
	s.Looked = now.Add(time.Minute)
	d = inventory.Plan(s)
	assert.Empty(t, d.Verdicts)
	assert.Contains(t, d.Actions, inventory.ConfirmNode{Node: m.Node.UUID})
	m.Seen = s.Looked
	require.Len(t, inventory.Plan(s).Verdicts, 1, "it has the driver of discovery all the same")
	m.Node.Driver = "redfish"
	assert.Empty(t, inventory.Plan(s).Verdicts)
}

func TestAMachineIsAskedForOnceMoreWhenItsReportWaited(t *testing.T) {
	stale := machine(t, 1, func(m *inventory.Machine) { m.Seen = now.Add(-2 * inventory.FreshTime) })
	d := inventory.Plan(snapshot(resource("r"), stale))
	assert.Empty(t, creations(d))
	assert.Contains(t, d.Actions, inventory.ConfirmNode{Node: stale.Node.UUID})
	stale.Seen = now
	assert.Len(t, creations(inventory.Plan(snapshot(resource("r"), stale))), 1)
}

// TestAMachineThatWaitedForMoreThanItsTurnIsAskedFor has machines that Ironic has shown a moment ago, and that waited since.
func TestAMachineThatWaitedForMoreThanItsTurnIsAskedFor(t *testing.T) {
	for name, waits := range map[string]func(*inventory.Snapshot){
		"a pause":   func(s *inventory.Snapshot) { s.Resources[0].Paused = true },
		"a dry run": func(s *inventory.Snapshot) { s.Resources[0].Dry = true },
		"the rate":  func(s *inventory.Snapshot) { s.Tokens = 0 },
		"maxHosts":  func(s *inventory.Snapshot) { s.Resources[0].MaxHosts = new(int32) },
		"its name": func(s *inventory.Snapshot) {
			s.Hosts = []inventory.Host{{Ref: inventory.Ref{Namespace: "ns", Name: "node-00001"}}}
		},
		"a twin": func(s *inventory.Snapshot) {
			s.Hosts = []inventory.Host{{Ref: inventory.Ref{Namespace: "ns", Name: "h"}, Serial: "sn00000001"}}
		},
		"Ironic, away": func(s *inventory.Snapshot) { s.Frozen = true },
	} {
		t.Run(name, func(t *testing.T) {
			m := machine(t, 1, func(m *inventory.Machine) { m.NodeSeen = m.Seen })
			s := snapshot(resource("r"), m)
			s.Looked = now.Add(time.Second)
			waits(&s)
			d := inventory.Plan(s)
			require.Empty(t, creations(d))
			ask := inventory.ConfirmNode{Node: m.Node.UUID}
			require.NotContains(t, d.Actions, ask, "while it waits, it is not asked for")

			next := snapshot(resource("r"), m)
			for range 2 { // the answer is on its way
				next.Looked = s.Looked.Add(time.Second)
				next.Waited = inventory.WaitedAfter(s, d)
				d, s = inventory.Plan(next), next
				assert.Empty(t, creations(d))
				assert.Contains(t, d.Actions, ask)
			}
			m.Seen = next.Looked
			assert.Empty(t, creations(inventory.Plan(next)), "its report proves nothing: an inspection service of its own keeps it")
			m.NodeSeen = next.Looked
			assert.Len(t, creations(inventory.Plan(next)), 1)
		})
	}
	turn := snapshot(resource("r"))
	for i := range inventory.BatchSize + 1 {
		turn.Machines = append(turn.Machines, machine(t, i+1))
	}
	d := inventory.Plan(turn)
	require.Equal(t, metal3v1.WaitingForCreation, d.Verdicts[inventory.BatchSize].Reason)
	assert.Empty(t, inventory.WaitedAfter(turn, d), "what waits for its turn costs no request")
}

// TestAHostThatWasDeletedIsNotMadeAgainOfWhatIronicSaidBefore: its node goes with it, and the mirror may still have that.
func TestAHostThatWasDeletedIsNotMadeAgainOfWhatIronicSaidBefore(t *testing.T) {
	m := machine(t, 1)
	m.NodeSeen = m.Seen.Add(-time.Second) // its report came after that
	s := snapshot(resource("r"), m)
	for name, left := range map[string]time.Time{"gone after that": m.NodeSeen.Add(time.Millisecond), "at that moment": m.NodeSeen, "being deleted": m.NodeSeen.Add(time.Hour)} {
		s.Left = map[string]time.Time{m.Node.UUID: left}
		d := inventory.Plan(s)
		assert.Empty(t, creations(d), name)
		assert.Contains(t, d.Actions, inventory.ConfirmNode{Node: m.Node.UUID}, name)
	}
	s.Left = map[string]time.Time{m.Node.UUID: m.NodeSeen.Add(-time.Millisecond)}
	assert.Len(t, creations(inventory.Plan(s)), 1, "a node that is there after its host went becomes a host again")
}

// TestOneLostNodeIsReported has a host whose node is gone, beside two whose nodes are there.
func TestOneLostNodeIsReported(t *testing.T) {
	s := snapshot(resource("r"), machine(t, 1), machine(t, 2))
	for i := range 3 {
		s.Hosts = append(s.Hosts, inventory.Host{
			Ref: inventory.Ref{Namespace: "ns", Name: fmt.Sprint("h", i+1)}, UID: fmt.Sprint(i + 1), Resource: "r", Held: true, HasStatus: true, LastSeen: "unknown",
			NodeID: machine(t, i+1).Node.UUID, BootMAC: demo.MAC(i+1, 0),
		})
	}
	lost := inventory.TellLost{Host: s.Hosts[2].Ref, UID: "3", Node: s.Hosts[2].NodeID, Lost: true}
	d := inventory.Plan(s)
	assert.Equal(t, []inventory.Action{lost}, publishes(d))
	assert.EqualValues(t, 1, d.Counts.Lost)
	s.Hosts[2].Lost = true
	assert.Empty(t, publishes(inventory.Plan(s)), "it is reported once")

	t.Run("not while Ironic is silent", func(t *testing.T) {
		s := s
		s.Frozen, s.Hosts = true, slices.Clone(s.Hosts)
		s.Hosts[2].Lost = false
		assert.Empty(t, publishes(inventory.Plan(s)))
	})
	t.Run("a machine that comes back as another node is not lost", func(t *testing.T) {
		s := s
		s.Machines = append(slices.Clone(s.Machines), machine(t, 3, func(m *inventory.Machine) { m.Node.UUID = "00000000-0000-4000-8000-00000000beef" }))
		lost.Lost = false
		assert.Equal(t, []inventory.Action{lost}, publishes(inventory.Plan(s)))
	})
	t.Run("a mass disappearance is reported on the resource, and not on each host", func(t *testing.T) {
		s := snapshot(resource("r"))
		for i := range 6 {
			s.Hosts = append(s.Hosts, inventory.Host{Ref: inventory.Ref{Namespace: "ns", Name: fmt.Sprint("h", i)}, Resource: "r", Held: true, HasStatus: true,
				LastSeen: "unknown", NodeID: fmt.Sprint("gone-", i)})
		}
		d := inventory.Plan(s)
		assert.Empty(t, publishes(d))
		assert.True(t, d.MassLoss())
	})
}

func publishes(d inventory.Decision) []inventory.Action {
	return slices.DeleteFunc(slices.Clone(d.Actions), func(a inventory.Action) bool { _, ok := a.(inventory.TellLost); return !ok })
}

// TestHardwareIsReadAgainAfterAnInspection has a host whose machine a client inspected in Ironic.
func TestHardwareIsReadAgainAfterAnInspection(t *testing.T) {
	const before, after = "2026-11-21T10:00:00Z", "2026-11-21T11:00:00Z"
	m := machine(t, 1, func(m *inventory.Machine) { m.Node.Inspected, m.Report = after, nil })
	s := snapshot(resource("r"), m)
	s.Hosts = []inventory.Host{{Ref: inventory.Ref{Namespace: "ns", Name: "h"}, UID: "1", Resource: "r", Held: true, HasStatus: true, LastSeen: before,
		NodeID: m.Node.UUID, BootMAC: demo.MAC(1, 0)}}
	assert.Equal(t, []inventory.Action{inventory.FetchReport{Node: m.Node.UUID}}, inventory.Plan(s).Actions)
	m.Report = machine(t, 1).Report
	d := inventory.Plan(s)
	require.Len(t, d.Actions, 1)
	write, ok := d.Actions[0].(inventory.WriteStatus)
	require.True(t, ok)
	assert.True(t, write.Again)
	assert.Equal(t, after, write.Inspected)
	s.Hosts[0].LastSeen = after
	assert.Equal(t, []inventory.Action{inventory.DropReport{Node: m.Node.UUID}}, inventory.Plan(s).Actions)
	t.Run("not for a host that an operator manages", func(t *testing.T) {
		s.Hosts[0].LastSeen = ""
		assert.Equal(t, []inventory.Action{inventory.DropReport{Node: m.Node.UUID}}, inventory.Plan(s).Actions)
	})
}

// TestWhatIsStillBeingListedIsNotLost has a fleet of which Ironic has listed one machine so far, and hosts of others.
func TestWhatIsStillBeingListedIsNotLost(t *testing.T) {
	s := snapshot(resource("r"), machine(t, 1))
	host := func(i int, node, mac string) inventory.Host {
		return inventory.Host{
			Ref: inventory.Ref{Namespace: "ns", Name: fmt.Sprint("h", i)}, UID: fmt.Sprint(i), Resource: "r", Held: true, HasStatus: true, LastSeen: "unknown", NodeID: node, BootMAC: mac,
		}
	}
	s.Hosts = []inventory.Host{host(1, "listed-later", demo.MAC(1, 0)), host(2, machine(t, 2).Node.UUID, demo.MAC(2, 0))}
	replaces := func(a inventory.Action) bool { _, ok := a.(inventory.WriteStatus); return ok }
	d := inventory.Plan(s)
	require.True(t, slices.ContainsFunc(d.Actions, replaces), "the machine came back as another node")
	require.EqualValues(t, 2, d.Counts.Lost)
	s.Partial = true
	d = inventory.Plan(s)
	assert.False(t, slices.ContainsFunc(d.Actions, replaces))
	assert.Empty(t, publishes(d))
	assert.Zero(t, d.Counts.Lost)
}
