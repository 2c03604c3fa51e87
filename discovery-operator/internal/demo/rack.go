// Copyright The Muster Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"crypto/sha1" //nolint:gosec // names are made with it, nothing is protected
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-io/muster/discovery-operator/internal/hoststate"
	"github.com/muster-io/muster/discovery-operator/internal/inventory"
)

// Version is the version of Ironic's API that the rack behaves like.
const Version = "1.96"

// Rack is a set of machines that discovery has seen. Its methods are safe for concurrent use.
type Rack struct {
	mu      sync.Mutex
	nodes   []*node
	reports int
}

type node struct {
	inventory.Node
	ports  []inventory.Port
	report *inventory.Report
	busy   int
	managed
}

// New returns an empty rack.
func New() *Rack { return &Rack{} }

// Marks in the host name of a machine make it behave in special ways, so that every situation can be shown.
const (
	// MarkNoPorts: Ironic never makes a port for the machine.
	MarkNoPorts = "no-ports"
	// MarkNoInventory: Ironic has no inventory of it, unless it is inspected.
	MarkNoInventory = "no-inventory"
	// MarkFailed: Ironic could not take it in.
	MarkFailed = "failed"
	// MarkBusy: Ironic works on the node for the first two changes that are tried.
	MarkBusy = "busy"
	// MarkStuck: no driver but the present one can be set.
	MarkStuck = "stuck"
	// MarkInUse: another client uses the node.
	MarkInUse = "in-use"
)

// Enrol takes a report in, as an inspection ramdisk posts it, and returns the UUID of the new node. A machine that is known
// by one of its MACs is refused.
func (r *Rack) Enrol(data []byte) (string, error) {
	report, err := inventory.ParseReport(data)
	if err != nil {
		return "", fmt.Errorf("enrolling a machine: %w", err)
	}
	report.AutoDiscovered = true
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.nodes {
		for _, p := range n.ports {
			if slices.Contains(report.MACs, p.MAC) {
				return "", fmt.Errorf("enrolling a machine: MAC %s belongs to node %s", p.MAC, n.UUID)
			}
		}
	}
	r.reports++
	n := &node{Node: inventory.Node{UUID: uuid(report.FirstMAC, r.reports), Driver: "fake-hardware", State: inventory.NodeEnroll}}
	n.report = report
	for i, mac := range report.MACs {
		n.ports = append(n.ports, inventory.Port{
			UUID: uuid(mac, r.reports), Node: n.UUID, MAC: mac, PXE: mac == report.BootMAC || i == 0 && report.BootMAC == "",
		})
	}
	n.mark(report.Hardware.Hostname)
	r.nodes = append(r.nodes, n)
	return n.UUID, nil
}

func (n *node) mark(hostname string) {
	switch {
	case strings.Contains(hostname, MarkNoPorts):
		n.ports, n.report = nil, nil
	case strings.Contains(hostname, MarkNoInventory):
		n.report, n.uninspected = nil, n.report
	case strings.Contains(hostname, MarkFailed):
		n.ports, n.report, n.LastError = nil, nil, "no interface has a MAC"
	case strings.Contains(hostname, MarkBusy):
		n.busy = 2
	case strings.Contains(hostname, MarkInUse):
		n.State, n.Instance = "active", uuid(hostname, 0)
	}
}

// uuid derives an identifier that looks like a UUID from text and a number.
func uuid(s string, n int) string {
	h := sha1.Sum(fmt.Appendf(nil, "%s/%d", s, n)) //nolint:gosec // names are made with it, nothing is protected
	h[6], h[8] = h[6]&0x0f|0x50, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

func missing(kind, id string) error {
	return inventory.Failf(inventory.ProblemNotFound, "%s %s is not in the rack", kind, id)
}

// Version implements fleet.Lister.
func (r *Rack) Version(context.Context) (string, error) { return Version, nil }

// Enter implements fleet.Lister.
func (r *Rack) Enter(context.Context) error { return nil }

// Nodes implements fleet.Lister.
func (r *Rack) Nodes(_ context.Context, after string) ([]inventory.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := 0
	if after != "" {
		if from = r.find(after) + 1; from == 0 {
			return nil, missing("node", after)
		}
	}
	out := make([]inventory.Node, 0, len(r.nodes)-from)
	for _, n := range r.nodes[from:] {
		out = append(out, n.Node)
	}
	return out, nil
}

func (r *Rack) find(id string) int {
	return slices.IndexFunc(r.nodes, func(n *node) bool { return n.UUID == id })
}

// Ports implements fleet.Lister.
func (r *Rack) Ports(_ context.Context, after string) ([]inventory.Port, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []inventory.Port
	for _, n := range r.nodes {
		all = append(all, n.ports...)
	}
	if after == "" {
		return all, nil
	}
	i := slices.IndexFunc(all, func(p inventory.Port) bool { return p.UUID == after })
	if i < 0 {
		return nil, missing("port", after)
	}
	return all[i+1:], nil
}

// Node implements fleet.Reader.
func (r *Rack) Node(_ context.Context, id string) (inventory.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(id)
	if i < 0 {
		return inventory.Node{}, missing("node", id)
	}
	return r.nodes[i].Node, nil
}

// PortsOf implements fleet.Reader. Ironic answers with an error for a node that is gone.
func (r *Rack) PortsOf(_ context.Context, id string) ([]inventory.Port, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := r.find(id)
	if i < 0 {
		return nil, missing("node", id)
	}
	return slices.Clone(r.nodes[i].ports), nil
}

// Report implements fleet.Reader.
func (r *Rack) Report(_ context.Context, id string) (*inventory.Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i := r.find(id); i >= 0 && r.nodes[i].report != nil {
		return r.nodes[i].report, nil
	}
	return nil, missing("inventory of node", id)
}

// drivers that the rack accepts.
var drivers = []string{"fake-hardware", "ipmi", "redfish", "idrac", hoststate.ManualDriver}

// Reinspect makes the machine of a node report again, in an inspection that a client had Ironic do.
func (r *Rack) Reinspect(id string, data []byte, at time.Time) error {
	report, err := inventory.ParseReport(data)
	if err != nil {
		return fmt.Errorf("inspecting a machine: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	r.nodes[i].report, r.nodes[i].Inspected = report, at.UTC().Format(time.RFC3339)
	return nil
}

// change looks a node up to change it.
func (r *Rack) change(id string) (int, error) {
	i := r.find(id)
	if i < 0 {
		return 0, missing("node", id)
	}
	if r.nodes[i].busy > 0 {
		r.nodes[i].busy--
		return 0, inventory.Failf(inventory.ProblemBusy, "node %s is locked", id)
	}
	return i, nil
}

// SetDriver switches the driver of a node, and its boot interface.
func (r *Rack) SetDriver(_ context.Context, id, driver string, boot ...string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	n := r.nodes[i]
	if !slices.Contains(drivers, driver) || n.report != nil && strings.Contains(n.report.Hardware.Hostname, MarkStuck) {
		return inventory.Failf(inventory.ProblemRefused, "driver %s is not enabled", driver)
	}
	n.Driver, n.boot = driver, first(boot)
	return nil
}

// first is the boot interface that the rack chooses among those that are asked for, from the network where there is none.
func first(boot []string) string {
	if len(boot) == 0 {
		return "ipxe"
	}
	return boot[0]
}

// DeleteNode removes a node.
func (r *Rack) DeleteNode(_ context.Context, id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	i, err := r.change(id)
	if err != nil {
		return err
	}
	if r.nodes[i].Instance != "" && !r.nodes[i].maintenance {
		return inventory.Failf(inventory.ProblemBusy, "node %s is in use", id)
	}
	switch r.nodes[i].State {
	case hoststate.Inspects, hoststate.InspectWait, hoststate.InspectFailed:
		return inventory.Failf(inventory.ProblemBusy, "node %s is %s", id, r.nodes[i].State)
	}
	r.nodes = slices.Delete(r.nodes, i, i+1)
	return nil
}

// PowerUp enrols machines one by one, at the given distance, until the context ends. They are machines number first and up.
func (r *Rack) PowerUp(ctx context.Context, first, count int, every time.Duration) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := first; i < first+count; i++ {
		if _, err := r.Enrol(Machine(i)); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
	return nil
}
