// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metal3v1 "github.com/muster-io/muster/apis/metal3/v1alpha1"
	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// WrongPassword is the one that every management controller of the rack refuses.
const WrongPassword = "wrong"

// Further marks in the host name of a machine, for the life that a host has.
const (
	// MarkRefuses: the management controller refuses all credentials.
	MarkRefuses = "refuses"
	// MarkSilent: the management controller does not answer.
	MarkSilent = "silent"
	// MarkPowerless: the management controller does not switch the machine.
	MarkPowerless = "powerless"
	// MarkUninspectable: an inspection of the machine fails.
	MarkUninspectable = "uninspectable"
	// MarkAgentless: the machine does not run the ramdisk.
	MarkAgentless = "agentless"
	// MarkUncleanable: the machine cannot be cleaned.
	MarkUncleanable = "uncleanable"
)

// managed is what a rack knows of a machine that an operator manages.
type managed struct {
	info     map[string]string
	boot     string
	password string
	// properties and network are what the node says of the machine.
	properties, network map[string]any
	power               string
	target              string
	powerTarget         string
	// uninspected keeps what an inspection will find.
	uninspected *inventory.Report
	// inspected is when the last inspection ended well; inspections counts those that were begun, waited how often Ironic looked for the ramdisk.
	inspected           time.Time
	inspections, waited int
	deployment
}

// A ramdisk has booted when Ironic looks for it the boot-th time. One that does not report is looked for with patience.
const boot, patience = 2, 100

func (n *node) marked(mark string) bool {
	r := n.report
	if r == nil {
		r = n.uninspected
	}
	return r != nil && strings.Contains(r.Hardware.Hostname, mark)
}

// Managed reads what the manager of a host has to know of its node. A requested change happens after one read.
func (r *Rack) Managed(_ context.Context, id string) (hoststate.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(id)
	if i < 0 {
		return hoststate.Node{}, missing("node", id)
	}
	n := r.nodes[i]
	out := hoststate.Node{
		UUID: n.UUID, Name: n.Name, Driver: n.Driver, Info: maps.Clone(n.info), State: n.State, Target: n.target, Power: n.power,
		PowerTarget: n.powerTarget, LastError: n.LastError, Instance: n.Instance, Locked: n.Locked,
		Boot: n.boot, Inspector: "agent", Inspected: n.inspected, Deployment: masked(n.deployInfo), Deploy: n.deploy, PowerBy: n.powerBy, Clean: n.clean,
		Maintenance: n.maintenance, Leaving: n.leaving, Properties: n.properties, Network: n.network,
	}
	n.settle()
	return out, nil
}

// Examined is Managed: only the rack inspects its machines.
func (r *Rack) Examined(ctx context.Context, id string) (hoststate.Node, error) {
	return r.Managed(ctx, id)
}

// settle does what the node was asked for.
func (n *node) settle() {
	refused := n.refusal()
	switch {
	case n.powerTarget != "":
		asked := n.powerTarget
		n.powerTarget, n.LastError = "", refused
		if refused == "" && n.marked(MarkPowerless) && asked != n.power {
			n.LastError = "Failed to change the power: the management controller does not switch the machine"
		}
		if n.LastError == "" {
			n.power = asked
		}
	case n.State == inventory.NodeVerifying:
		n.State, n.target, n.LastError = inventory.NodeManageable, "", refused
		if refused != "" {
			n.State = inventory.NodeEnroll
		} else if n.power == "" {
			n.power = hoststate.PowerDown
		}
	case n.State == hoststate.Inspects:
		n.State, n.power, n.LastError = hoststate.InspectWait, hoststate.PowerOn, refused
		if refused != "" {
			n.State, n.target = hoststate.InspectFailed, ""
		}
	case n.State == hoststate.InspectWait:
		n.waited++
		switch {
		case n.marked(MarkUninspectable), n.waited > patience:
			n.State, n.target, n.LastError = hoststate.InspectFailed, "", "timeout reached while inspecting the node"
		case n.waited < boot:
		case n.report != nil:
			n.take(n.report)
		case n.uninspected != nil:
			n.take(n.uninspected)
		}
	default:
		n.settleDeployment()
	}
}

// take ends an inspection with what the ramdisk reports.
func (n *node) take(report *inventory.Report) {
	n.State, n.target, n.LastError, n.report, n.inspected = inventory.NodeManageable, "", "", report, time.Now()
}

// Boot makes the machine that has a MAC of the report boot the ramdisk, which reports to the inspection that waits for it.
func (r *Rack) Boot(data []byte) (string, error) {
	report, err := inventory.ParseReport(data)
	if err != nil {
		return "", fmt.Errorf("reporting a machine: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, mac := range report.MACs {
		if n := r.byMAC(mac); n != nil && n.State == hoststate.InspectWait {
			n.take(report)
			return n.UUID, nil
		}
	}
	return "", fmt.Errorf("no inspection waits for a machine with one of the MACs %s", strings.Join(report.MACs, ", "))
}

// Inspections is how many inspections of a node were begun, for tests.
func (r *Rack) Inspections(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(id); i >= 0 {
		return r.nodes[i].inspections
	}
	return 0
}

// refusal is what the management controller has against the credentials, empty if nothing.
func (n *node) refusal() string {
	switch {
	case n.Driver == "fake-hardware":
		return ""
	case n.Driver == hoststate.ManualDriver:
		return ""
	case n.marked(MarkSilent):
		return "Failed to get power state: the management controller does not answer"
	case n.password == WrongPassword, n.marked(MarkRefuses):
		return "Failed to get power state: HTTP 401: the management controller refuses the credentials"
	}
	return ""
}

// Find looks for a node by one of its names, and then by one of its MACs.
func (r *Rack) Find(_ context.Context, names, macs []string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range names {
		if i := slices.IndexFunc(r.nodes, func(n *node) bool { return n.UUID == name || n.Name != "" && n.Name == name }); i >= 0 {
			return r.nodes[i].UUID, nil
		}
	}
	for _, mac := range macs {
		if n := r.byMAC(mac); n != nil {
			return n.UUID, nil
		}
	}
	return "", missing("node", strings.Join(append(names, macs...), ", "))
}

func (r *Rack) byMAC(mac string) *node {
	for _, n := range r.nodes {
		if slices.ContainsFunc(n.ports, func(p inventory.Port) bool { return strings.EqualFold(p.MAC, mac) }) {
			return n
		}
	}
	return nil
}

// EnrolNode makes a node that no machine has reported for.
func (r *Rack) EnrolNode(_ context.Context, name string, a hoststate.Access) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.nodes, func(n *node) bool { return n.Name == name }) {
		return "", inventory.Failf(inventory.ProblemBusy, "a node has the name %s", name)
	}
	if !slices.Contains(drivers, a.Driver) {
		return "", inventory.Failf(inventory.ProblemRefused, "driver %s is not enabled", a.Driver)
	}
	r.reports++
	n := &node{Node: inventory.Node{UUID: uuid(name, r.reports), Name: name, Driver: a.Driver, State: inventory.NodeEnroll}}
	n.info, n.password = maps.Clone(a.Info), a.Password
	n.describe(a.Machine)
	r.nodes = append(r.nodes, n)
	return n.UUID, nil
}

// EnsurePort gives a node a port with a MAC, if it has none.
func (r *Rack) EnsurePort(_ context.Context, id, mac string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	n := r.nodes[i]
	switch owner := r.byMAC(mac); {
	case owner == n:
		return nil
	case owner != nil:
		return inventory.Failf(inventory.ProblemRefused, "MAC %s belongs to another node: %s", mac, owner.UUID)
	}
	r.reports++
	n.ports = append(n.ports, inventory.Port{UUID: uuid(mac, r.reports), Node: n.UUID, MAC: strings.ToLower(mac), PXE: true})
	return nil
}

// Write gives a node the name of its host, and driver and credentials of its management controller.
func (r *Rack) Write(_ context.Context, known hoststate.Node, name string, a hoststate.Access) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(known.UUID)
	if err != nil {
		return err
	}
	n := r.nodes[i]
	if !slices.Contains(drivers, a.Driver) || n.Driver != a.Driver && n.marked(MarkStuck) {
		return inventory.Failf(inventory.ProblemRefused, "driver %s is not enabled", a.Driver)
	}
	if slices.ContainsFunc(r.nodes, func(other *node) bool { return other != n && other.Name == name }) {
		return inventory.Failf(inventory.ProblemRefused, "another node has the name %s", name)
	}
	if n.info == nil {
		n.info = map[string]string{}
	}
	if n.Driver != a.Driver || len(a.Boot) > 0 && !slices.Contains(a.Boot, n.boot) {
		n.boot = first(a.Boot)
	}
	n.Name, n.Driver, n.password, n.powerBy = name, a.Driver, a.Password, a.PowerBy
	delete(n.info, a.Surplus(hoststate.Node{Info: n.info}))
	maps.Copy(n.info, a.Lacking(hoststate.Node{Info: n.info}))
	n.describe(a.Machine)
	return nil
}

// SetProvision asks for a change of the provision state.
func (r *Rack) SetProvision(_ context.Context, id, target string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	n := r.nodes[i]
	switch {
	case n.busyNow():
		return inventory.Failf(inventory.ProblemBusy, "node %s is locked", id)
	case target == "manage" && n.State == inventory.NodeEnroll:
		n.State, n.target = inventory.NodeVerifying, inventory.NodeManageable
	case target == "manage" && (n.State == hoststate.InspectFailed || n.State == inventory.NodeAvailable):
		n.State = inventory.NodeManageable
	case target == "inspect" && (n.State == inventory.NodeManageable || n.State == hoststate.InspectFailed):
		n.State, n.target, n.LastError, n.inspected, n.waited = hoststate.Inspects, inventory.NodeManageable, "", time.Time{}, 0
		n.inspections++
	case target == "abort" && n.State == hoststate.InspectWait:
		n.State, n.target, n.LastError = hoststate.InspectFailed, "", "Inspection was aborted by request."
	default:
		return n.setDeployment(target)
	}
	return nil
}

// cannot refuses a change of the provision state.
func (n *node) cannot(target string) error {
	return inventory.Failf(inventory.ProblemRefused, "a node that is %s cannot do %s", n.State, target)
}

func (n *node) busyNow() bool {
	return n.powerTarget != "" || n.State == inventory.NodeVerifying || n.State == hoststate.Inspects || n.State == hoststate.Undeploying ||
		n.State == hoststate.Deploying || n.State == hoststate.Cleaning || n.State == hoststate.Adopting
}

// Inspect has a machine inspected by its ramdisk.
func (r *Rack) Inspect(ctx context.Context, known hoststate.Node, _ metal3v1.InspectionMode, m hoststate.Machine) error {
	if err := r.SetProvision(ctx, known.UUID, "inspect"); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(known.UUID); i >= 0 {
		r.nodes[i].describe(m)
	}
	return nil
}

// describe makes a node say what its host says of the machine.
func (n *node) describe(m hoststate.Machine) {
	properties := m.Properties(hoststate.Node{Properties: n.properties})
	n.properties = maps.Clone(n.properties) // what was read of the node stays as it is
	if n.properties == nil {
		n.properties = map[string]any{}
	}
	for key, value := range properties {
		n.properties[key] = value
	}
	if m.Network != nil {
		n.network = m.Network
	}
}

// SetPower asks for a change of the power.
func (r *Rack) SetPower(_ context.Context, id, target string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	n := r.nodes[i]
	if n.busyNow() {
		return inventory.Failf(inventory.ProblemBusy, "node %s is locked", id)
	}
	switch target {
	case hoststate.PowerOn, hoststate.Rebooting, hoststate.SoftRestart:
		n.powerTarget = hoststate.PowerOn
	case hoststate.PowerDown, hoststate.SoftDown:
		n.powerTarget = hoststate.PowerDown
	default:
		return inventory.Failf(inventory.ProblemRefused, "%s is not a state of power", target)
	}
	n.LastError = ""
	return nil
}

// Power is what the machine of a node really does, for tests.
func (r *Rack) Power(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(id); i >= 0 {
		return r.nodes[i].power
	}
	return ""
}
